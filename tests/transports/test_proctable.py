"""The process table: marks are found wherever a process went, and only that one is ended."""

import errno
import itertools
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import BackendLost
from turnstop.transports import proctable

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

# Another run of these tests, at the same time, ends what carries its own mark.
MARK = f"TURNSTOP_TEST_MARK_{os.getpid()}"


def start(command: str, mark: str) -> subprocess.Popen[bytes]:
    """Run a shell that prints a line once all of its children run."""
    return subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdout=subprocess.PIPE,
        env={**os.environ, MARK: mark},
        start_new_session=True,
    )


def end(process: subprocess.Popen[bytes]) -> None:
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def soon() -> float:
    """A deadline that nothing here gets near, unless it looks for ever."""
    return time.monotonic() + 5


def finder(mark: str) -> Callable[[], Awaitable[list[proctable.TableEntry]]]:
    async def find() -> list[proctable.TableEntry]:
        return [marked.process for marked in await proctable.find_marked({MARK: mark})]

    return find


async def ready(process: subprocess.Popen[bytes]) -> None:
    assert process.stdout is not None
    assert await trio.to_thread.run_sync(process.stdout.readline) == b"up\n"


async def test_a_setsid_grandchild_is_found_and_ended_and_its_neighbour_is_not() -> None:
    mine = start("setsid sh -c 'trap \"\" TERM; echo up; while :; do sleep 300; done' &", "mine")
    other = start("echo up; sleep 300", "other")
    try:
        await ready(mine)
        await ready(other)
        mine.wait()
        found = await proctable.find_marked({MARK: "mine"})
        assert any("trap" in marked.process.command for marked in found)
        assert all(marked.environment[MARK] == "mine" for marked in found)
        assert await proctable.end_processes(finder("mine"), grace=0.05) == []
        assert await proctable.find_marked({MARK: "mine"}) == []
        assert other.poll() is None
    finally:
        end(mine)
        end(other)


@pytest.mark.parametrize(
    "command",
    [
        "env -i /bin/sh -c 'sleep 300 & echo up; wait' & wait",
        "env -i setsid sleep 300 & echo up; wait",
        "(env -i sleep 300 &); echo up; sleep 301",
    ],
    ids=["nested", "own session", "orphan in the session"],
)
async def test_a_child_without_its_environment_is_found(command: str) -> None:
    process = start(command, "bare")
    try:
        await ready(process)
        commands: set[str] = set()
        while "sleep 300" not in commands:  # it is still a shell for a moment
            found = await proctable.find_marked({MARK: "bare"})
            assert {marked.environment[MARK] for marked in found} == {"bare"}
            commands = {marked.process.command for marked in found}
        assert await proctable.end_processes(finder("bare")) == []
    finally:
        end(process)


async def test_one_that_was_known_by_its_parent_alone_is_killed_though_the_parent_is_gone() -> None:
    deaf = "trap '' TERM; echo up; exec sleep 300"
    process = start(f'env -i setsid sh -c "{deaf}" & wait', "orphaned")
    try:
        await ready(process)
        known = await finder("orphaned")()
        assert len(known) == 2
        assert await proctable.end_processes(finder("orphaned"), known, grace=0.05) == []
        assert proctable._alive(known) == []
    finally:
        end(process)


async def test_a_mark_is_the_whole_of_a_value() -> None:
    """Nor does it count in the value of another variable."""
    process = start(f"OTHER={MARK}=mine sleep 300 & echo up; wait", "mine-too")
    try:
        await ready(process)
        assert await finder("mine")() == []
    finally:
        end(process)


async def test_a_marked_process_keeps_its_own_environment_whatever_its_parent_has() -> None:
    process = start("env -i INNER=1 sleep 300 & echo up; wait", "outer")
    try:
        await ready(process)
        marks = {MARK: "outer", "INNER": "1"}
        names: dict[str, proctable.TableEntry] = {}
        while "sleep 300" not in names:  # it is still a shell for a moment
            found = await proctable.find_marked(marks)
            names = {marked.process.command: marked.process for marked in found}
        found = await proctable.find_marked(marks)
        (inner,) = (one for one in found if one.process == names["sleep 300"])
        assert inner.environment == {"INNER": "1"}
    finally:
        end(process)


async def test_an_environment_that_is_not_shown_for_a_moment_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "77"
    folder.mkdir()
    (folder / "environ").write_bytes(b"")
    (folder / "statm").write_text("100 50 20\n")
    (folder / "stat").write_text("77 (sh) S " + "0 " * 49)
    monkeypatch.setattr(proctable, "_PROC", tmp_path)
    monkeypatch.setattr("time.sleep", lambda _: (folder / "environ").write_bytes(b"A=1\0"))
    assert proctable._read_environment(77, soon()) == b"A=1\0"


async def test_one_whose_next_program_came_between_two_looks_is_looked_at_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    shown = {
        "environ": iter([b"", b"", b"A=1\0"]),
        "stat": itertools.repeat(b"77 (sh) S " + b"0 " * 46 + b"1000 2000 "),
    }
    monkeypatch.setattr(proctable, "_read", lambda _, name: next(shown[name]))
    assert proctable._read_environment(77, soon()) == b"A=1\0"


@pytest.mark.parametrize("place", [b"0 0 ", b"1000 1000 ", b"1000 0 ", b"1000 2000 "])
async def test_a_program_that_is_never_replaced_is_waited_for_in_vain_but_not_for_ever(
    place: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = itertools.count()
    shown = {"environ": b"", "statm": b"100 50 20", "stat": b"77 (sh) S " + b"0 " * 46 + place}
    waits: list[float] = []
    monkeypatch.setattr(proctable, "_read", lambda _, name: shown[name])
    monkeypatch.setattr("time.monotonic", lambda: next(now))
    monkeypatch.setattr("time.sleep", waits.append)
    assert proctable._read_environment(77, deadline=500) == b""
    assert len(waits) == 500
    # Whoever is in the middle of it must get the processor meanwhile.
    assert min(waits) > 0


async def test_nobody_waits_for_the_environment_of_who_was_given_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    process = subprocess.Popen(  # noqa: ASYNC220
        ["/bin/sh", "-c", "echo up; read line"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={},
        start_new_session=True,
    )
    waits: list[float] = []
    looks: list[str] = []
    read = proctable._read

    def look(pid: int, name: str) -> bytes:
        looks.append(name)
        return read(pid, name)

    try:
        await ready(process)
        monkeypatch.setattr("time.sleep", waits.append)
        monkeypatch.setattr(proctable, "_read", look)
        assert proctable._read_environment(process.pid, soon()) == b""
        assert waits == []
        assert looks.count("environ") == 1
    finally:
        end(process)
        assert process.stdin is not None
        process.stdin.close()


async def test_who_was_signalled_costs_no_file_for_ever() -> None:
    process = start("echo up; sleep 300", "open")
    try:
        await ready(process)
        entry, *_ = await proctable.find_session(process.pid, since=0)
        before = os.listdir("/proc/self/fd")
        proctable._signal(entry, signal.SIGCONT)
        assert os.listdir("/proc/self/fd") == before
    finally:
        end(process)


async def test_a_recycled_pid_is_not_signalled() -> None:
    process = start("echo up; exec sleep 300", "recycled")
    try:
        await ready(process)
        entry = (await proctable.find_marked({MARK: "recycled"}))[0].process
        predecessor = attrs.evolve(entry, started=entry.started - 1)

        async def predecessors() -> list[proctable.TableEntry]:
            return [predecessor]

        await proctable.end_processes(predecessors, grace=0.0, patience=0.0)
        # Of several signals the one with the lowest number ends it.
        process.send_signal(signal.SIGVTALRM)
        assert process.wait() == -signal.SIGVTALRM
    finally:
        end(process)


async def test_term_comes_before_kill() -> None:
    code = (
        "import signal, sys, time\n"
        "signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))\n"
        "print('up', flush=True)\n"
        "time.sleep(300)\n"
    )
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        env={**os.environ, MARK: "polite"},
        start_new_session=True,
    )
    try:
        await ready(process)
        assert await proctable.end_processes(finder("polite"), grace=20) == []
        assert process.wait() == 7
    finally:
        end(process)


async def test_a_zombie_counts_as_dead() -> None:
    process = start("echo up; exec sleep 300", "zombie")
    try:
        await ready(process)
        os.killpg(process.pid, signal.SIGKILL)
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)  # noqa: ASYNC222
        assert await finder("zombie")() == []
    finally:
        end(process)


async def test_a_process_is_found_also_while_its_program_is_replaced() -> None:
    again = 'sleep 0.005; exec sh -c "$AGAIN"'
    process = subprocess.Popen(  # noqa: ASYNC220
        ["sh", "-c", again],
        stdout=subprocess.PIPE,
        env={**os.environ, "AGAIN": again, MARK: "replaced"},
        start_new_session=True,
    )
    try:
        for _ in range(400):
            assert process.pid in [entry.pid for entry in await finder("replaced")()]
    finally:
        end(process)


async def test_entries_are_named_by_pid_and_command() -> None:
    process = start("echo up; exec sleep 300", "named")
    try:
        await ready(process)
        while True:
            (marked,) = await proctable.find_marked({MARK: "named"})
            if marked.process.command == "sleep 300":
                break
        assert str(marked.process) == f"pid {process.pid}: sleep 300"
    finally:
        end(process)


async def test_others_in_a_session_that_is_not_the_marked_ones_own_stay_out() -> None:
    """A marked process in a terminal's session does not make the terminal's jobs its own."""
    command = f"sleep 301 & env {MARK}=guest sleep 302 & echo up; wait"
    process = start(command, "host")
    try:
        await ready(process)
        while len(await proctable.find_marked({MARK: "host"})) < 2:
            pass
        while not (found := await proctable.find_marked({MARK: "guest"})):
            pass
        assert [marked.process.command for marked in found] == ["sleep 302"]
    finally:
        end(process)


async def test_this_process_and_its_ancestors_are_nobodys_leftovers() -> None:
    name, value = next(iter(_environment_at_exec().items()))
    found = {marked.process.pid for marked in await proctable.find_marked({name: value})}
    assert not found & {os.getpid(), os.getppid()}


def _environment_at_exec() -> dict[str, str]:
    pairs = Path("/proc/self/environ").read_text().split("\0")
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


async def test_a_look_does_not_queue_behind_the_applications_threads() -> None:
    limiter = trio.to_thread.current_default_thread_limiter()
    for number in range(int(limiter.total_tokens)):
        limiter.acquire_on_behalf_of_nowait(number)
    try:
        assert await proctable.find_marked({MARK: "nobody"}) == []
    finally:
        for number in range(int(limiter.total_tokens)):
            limiter.release_on_behalf_of(number)


def test_looks_that_outlived_their_run_hold_up_no_other_run() -> None:
    over = threading.Event()

    async def abandon() -> None:
        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(proctable._look, lambda _: over.wait())
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()

    async def look() -> None:
        with trio.fail_after(10):
            await proctable.find_session(os.getsid(0), since=0)

    trio.run(abandon)
    try:
        trio.run(look)
    finally:
        over.set()


@attrs.define
class Slow:
    """Looks that take until they are let go."""

    go: threading.Event = attrs.field(factory=threading.Event)
    asked: list[int] = attrs.field(factory=list)

    def look(self, questions: Sequence[Any]) -> tuple[list[Any], str]:
        self.asked.append(len(questions))
        self.go.wait()
        return [question(None) for question in questions], ""

    async def begun(self, looks: int) -> None:
        with trio.fail_after(30):
            while len(self.asked) < looks:  # noqa: ASYNC110 - a thread gives no event
                await trio.sleep(0.001)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Iterator[Slow]:
    slow = Slow()
    monkeypatch.setattr(proctable, "_answer", slow.look)
    yield slow
    slow.go.set()


async def test_who_asks_during_a_look_shares_the_next_one(slow: Slow) -> None:
    answers: dict[int, int] = {}

    async def ask(number: int) -> None:
        answers[number] = await proctable._look(lambda _: number)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(ask, 0)
        await slow.begun(1)
        for number in range(1, 50):
            nursery.start_soon(ask, number)
        await wait_all_tasks_blocked()
        assert slow.asked == [1]
        slow.go.set()
    assert slow.asked == [1, 49]
    assert answers == {number: number for number in range(50)}


async def test_a_look_whose_looker_is_cancelled_is_taken_by_the_next(slow: Slow) -> None:
    answers: list[str] = []

    async def ask() -> None:
        answers.append(await proctable._look(lambda _: "it"))

    async with trio.open_nursery() as nursery:
        scopes = [trio.CancelScope() for _ in range(3)]

        async def ask_in(scope: trio.CancelScope) -> None:
            with scope:
                await ask()

        for scope in scopes:
            nursery.start_soon(ask_in, scope)
            # On a busy machine the thread begins later than the task that waits for it.
            await slow.begun(1)
            await wait_all_tasks_blocked()
        # The first one looks; the others wait for the next look, which one of them leads.
        scopes[0].cancel()
        await slow.begun(2)
        assert slow.asked == [1, 2]
        scopes[1].cancel()
        await wait_all_tasks_blocked()
        nursery.start_soon(ask)
        slow.go.set()
    assert answers == ["it", "it"]


async def test_a_round_that_is_taken_up_again_keeps_the_next_one_together(slow: Slow) -> None:
    """Its looker was cancelled, and others had come for the next look by then."""
    looks = proctable._Looks()
    looks.waiting = following = proctable._Round([lambda _: "theirs"])
    slow.go.set()
    mine = proctable._Round([lambda _: "mine"])
    await looks._look(mine)
    assert mine.answers == ["mine"]
    assert looks.waiting is following
    assert await looks.ask(lambda _: "one more") == "one more"
    assert slow.asked == [1, 2]
    assert following.answers == ["theirs", "one more"]


async def test_a_look_that_cannot_see_all_tells_everybody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENFILE, "no file can be opened")

    monkeypatch.setattr(proctable, "open", refuse, raising=False)
    lost = []

    async def ask() -> None:
        with pytest.raises(BackendLost, match="cannot be read now") as caught:
            await proctable.find_marked({MARK: "nobody"})
        lost.append(caught.value)

    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(ask)
    assert len({id(one) for one in lost}) == 3
    monkeypatch.undo()
    assert await proctable.find_marked({MARK: "nobody"}) == []


async def test_the_environment_of_a_stranger_is_not_taken_apart(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    taken_apart: list[bytes] = []
    parse = proctable._parse

    def note(block: bytes) -> dict[str, str]:
        taken_apart.append(block)
        return parse(block)

    monkeypatch.setattr(proctable, "_parse", note)
    mine = start("echo up; exec sleep 300", "taken apart")
    try:
        await ready(mine)
        assert [one.pid for one in await finder("taken apart")()] == [mine.pid]
        assert len(taken_apart) == 1
    finally:
        end(mine)


def test_what_is_found_is_named_in_the_same_order_each_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # As a set has them, 8 comes before 1.
    entries = {pid: proctable.TableEntry(pid, 7, 0, 0) for pid in (8, 1)}
    monkeypatch.setattr(proctable, "_read_table", lambda: entries)
    monkeypatch.setattr(proctable, "_read_environment", lambda pid, deadline: b"")
    assert [*proctable._Table().environments] == [1, 8]
