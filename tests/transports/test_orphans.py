"""Children whose parent is gone: found by another process, and ended; strangers are not touched."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, assert_no_checkpoints

from turnstop import BackendLost
from turnstop._identity import find_start
from turnstop.abc import End, How, Proof
from turnstop.events import Event
from turnstop.transports import orphans, proctable
from turnstop.transports.orphans import ProcessAddress, attach_process, new_mark

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

STUBBORN = """trap '' TERM
(trap '' TERM; while :; do sleep 0.05; done) &
nohup sleep 300 >/dev/null 2>&1 &
setsid sh -c "trap '' TERM; while :; do sleep 0.05; done" &
echo up; while :; do sleep 0.05; done"""


class Reader:
    def __call__(self, event: Event) -> None:
        raise AssertionError

    async def ask(self, ask: object) -> object:
        raise AssertionError


@attrs.define
class Child:
    process: subprocess.Popen[bytes]
    address: ProcessAddress


def start(command: str) -> Child:
    mark = new_mark()
    process = subprocess.Popen(
        ["/bin/sh", "-c", command],
        stdout=subprocess.PIPE,
        env={**os.environ, **dict([mark])},
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"up\n"
    return Child(process, ProcessAddress.of(process.pid, mark))


@pytest.fixture
def stubborn() -> Iterator[Child]:
    yield from ended(start(STUBBORN))


@pytest.fixture
def meek() -> Iterator[Child]:
    yield from ended(start("echo up; exec sleep 300"))


def ended(child: Child) -> Iterator[Child]:
    yield child
    child.process.kill()
    child.process.wait()
    assert child.process.stdout is not None
    child.process.stdout.close()
    for left in proctable._pick_marked(proctable._Table(), dict([child.address.mark])):
        os.kill(left.process.pid, signal.SIGKILL)


async def test_what_ignores_its_end_or_has_left_is_ended_too(stubborn: Child) -> None:
    with trio.fail_after(30):
        while len({one.session for one in await stubborn.address.find()}) < 2:  # noqa: ASYNC110
            await trio.sleep(0.01)
    turn = attach_process(str(stubborn.address))
    begun = time.monotonic()
    sent: list[float] = []
    await turn.cancel(lambda: sent.append(time.monotonic()))
    assert sent
    stubborn.process.wait()
    end = await turn.follow(Reader())
    assert (end.how, end.proof) == (How.CANCELLED, Proof.PROCESS)
    assert await stubborn.address.find() == []
    assert time.monotonic() - begun < 5


async def test_what_a_dead_one_has_left_is_known_by_its_mark(stubborn: Child) -> None:
    stubborn.process.kill()
    stubborn.process.wait()
    assert len(await stubborn.address.find()) >= 3
    turn = attach_process(str(stubborn.address))
    await turn.kill()
    assert await turn.leftovers() == []


async def test_one_that_was_announced_only_is_known_by_its_mark(meek: Child) -> None:
    ahead = ProcessAddress.ahead(meek.address.mark)
    turn = attach_process(str(ahead))
    assert [one.pid for one in await ahead.find()] == [meek.process.pid]
    await turn.cancel(lambda: None)
    meek.process.wait()
    assert await ahead.find() == []


async def test_a_pid_that_is_anothers_now_is_never_signalled(meek: Child) -> None:
    # As it would be found had the pid been given away since.
    earlier = meek.address.started - 1
    before = attrs.evolve(meek.address, started=earlier, mark=("ANOTHER", "1"))
    turn = attach_process(str(before))
    await turn.cancel(lambda: None)
    await turn.kill()
    assert (await turn.follow(Reader())).proof is Proof.PROCESS
    assert await turn.leftovers() == []
    await trio.sleep(0.05)
    assert meek.process.poll() is None


async def test_the_machine_was_started_since(meek: Child) -> None:
    machine, _, container = meek.address.host.split()
    before = attrs.evolve(meek.address, host=f"{machine} another-boot {container}")
    assert await before.find() == []
    assert (await attach_process(str(before)).follow(Reader())).proof is Proof.PROCESS


@pytest.mark.parametrize("others", [(0, 1), (2,)])
async def test_what_cannot_be_seen_here_is_not_said_to_be_gone(
    others: tuple[int, ...], meek: Child
) -> None:
    parts = meek.address.host.split()
    for part in others:
        parts[part] = "another"
    with pytest.raises(BackendLost, match="see there"):
        attach_process(str(attrs.evolve(meek.address, host=" ".join(parts))))


async def test_what_its_room_goes_on_with(meek: Child) -> None:
    assert attach_process(str(meek.address)).session is None
    with_session = ProcessAddress.of(meek.process.pid, meek.address.mark, 'a "session"')
    turn = attach_process(str(with_session))
    assert turn.session == 'a "session"'
    assert ProcessAddress.parse(turn.address) == with_session
    ahead = ProcessAddress.ahead(meek.address.mark, "s")
    assert ProcessAddress.parse(str(ahead)).session == "s"


@pytest.mark.parametrize(
    "address",
    ["", "http://x", "process:", "process:[1]", "process:{}", "5", "process:[1,2,3,4,5,6,7]"],
)
async def test_another_kind_of_address(address: str) -> None:
    with pytest.raises(BackendLost, match="no address of a process"):
        attach_process(address)


async def test_of_the_tools_only_what_the_turn_has_begun_is_its_own(meek: Child) -> None:
    def begin(**more: str) -> subprocess.Popen[bytes]:
        env = {**dict([meek.address.mark]), **more}
        return subprocess.Popen(["sleep", "300"], env=env, start_new_session=True)

    earlier, helper = begin(A_TOOL="1"), begin()
    await trio.sleep(0.05)  # The process table counts in hundredths.
    mine = begin(A_TOOL="2")
    try:
        since = find_start(mine.pid)
        turn = attach_process(str(attrs.evolve(meek.address, tool={"A_TOOL": None}, since=since)))
        await turn.cancel(lambda: None)
        meek.process.wait()
        helper.wait()
        assert (await turn.follow(Reader())).proof is Proof.PROCESS
        found = await turn.leftovers()
        assert [one.pid for one in found] == [mine.pid]
        assert await turn.sweep(found) == []
        assert earlier.poll() is None
    finally:
        for one in (earlier, mine, helper):
            one.kill()
            one.wait()


class NoFiles:
    """A process that cannot open a file any more, for as long as this lasts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch

    def __enter__(self) -> None:
        def refuse(*_: object, **__: object) -> None:
            raise OSError(errno.EMFILE, "Too many open files")

        self._monkeypatch.setattr(proctable, "open", refuse, raising=False)
        self._monkeypatch.setattr(proctable.os, "listdir", refuse)

    def __exit__(self, *_: object) -> None:
        self._monkeypatch.undo()


async def test_what_cannot_be_seen_now_is_not_said_to_be_gone(
    meek: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = attach_process(str(meek.address))
    ends = []

    async def follow() -> None:
        ends.append(await turn.follow(Reader()))

    async with trio.open_nursery() as nursery:
        with NoFiles(monkeypatch):
            await turn.look()
            nursery.start_soon(follow)
            for call in (turn.kill, turn.leftovers, meek.address.find):
                with pytest.raises(BackendLost, match=r"cannot be read now: .*Too many open files"):
                    await call()
            await trio.sleep(0.2)
            assert ends == []
            assert meek.process.poll() is None
        await turn.cancel(lambda: None)
        await trio.to_thread.run_sync(meek.process.wait)
    assert [end.proof for end in ends] == [Proof.PROCESS]


async def test_where_no_processes_are_shown_nothing_is_said_of_them(
    meek: Child, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(proctable, "_PROC", tmp_path)
    with pytest.raises(BackendLost, match=f"see that pid {meek.process.pid} has ended"):
        attach_process(str(meek.address))


async def test_a_machine_that_was_given_another_name_is_the_same(meek: Child) -> None:
    _, *rest = meek.address.host.split()
    renamed = attrs.evolve(meek.address, host=" ".join(["another-name", *rest]))
    assert [one.pid for one in await renamed.find()] == [meek.process.pid]
    attach_process(str(renamed))


async def test_where_its_last_start_cannot_be_told_nothing_is_gone(
    meek: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = attach_process(str(meek.address))
    monkeypatch.setattr(orphans, "find_host", lambda: meek.address.host.split()[0])
    for call in (meek.address.find, turn.leftovers):
        with pytest.raises(BackendLost, match="cannot be told now"):
            await call()
    with pytest.raises(BackendLost, match="cannot be told now"):
        attach_process(str(meek.address))


async def test_the_table_is_not_looked_through_while_what_is_known_lives(
    meek: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks = []
    look = proctable._pick_marked

    def count(table: Any, marks: dict[str, str]) -> object:
        looks.append(marks)
        return look(table, marks)

    monkeypatch.setattr(proctable, "_pick_marked", count)
    turn = attach_process(str(meek.address))
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.follow, Reader())
        await trio.sleep(0.5)
        assert len(looks) == 1
        meek.process.kill()
        meek.process.wait()
    assert len(looks) == 2


@attrs.define
class Told:
    """Who is asked how a turn ended; notes whether its process ran yet."""

    child: Child
    error: BackendLost | None = None
    ran: list[bool] = attrs.field(factory=list)

    async def __call__(self, process: ProcessAddress) -> tuple[End, object | None]:
        assert process == self.child.address
        self.ran.append(find_start(process.pid) != 0)
        if self.error is not None:
            raise self.error
        return End(How.COMPLETED, Proof.EVENT), "its session"


async def test_how_it_ended_is_asked_when_it_is_gone_and_not_before(meek: Child) -> None:
    told = Told(meek)
    turn = attach_process(str(meek.address), tell=told)
    await turn.look()
    ends: list[How] = []

    async def follow() -> None:
        ends.append((await turn.follow(Reader())).how)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(follow)
        await trio.sleep(0.1)
        assert told.ran == []
        await turn.cancel(lambda: None)
    assert ends == [How.COMPLETED]
    assert (told.ran, turn.session) == ([False], "its session")


async def test_of_one_that_is_gone_all_is_known_at_the_first_look(meek: Child) -> None:
    meek.process.kill()
    meek.process.wait()
    told = Told(meek)
    turn = attach_process(str(meek.address), tell=told)
    await turn.look()
    assert (told.ran, turn.session) == ([False], "its session")
    with assert_no_checkpoints():
        end = await turn.follow(Reader())
    assert (end.how, end.proof) == (How.COMPLETED, Proof.EVENT)


async def test_where_nobody_tells_how_it_ended_it_is_gone_all_the_same(meek: Child) -> None:
    meek.process.kill()
    meek.process.wait()
    turn = attach_process(str(meek.address), tell=Told(meek, BackendLost("no such thread")))
    with pytest.raises(BackendLost, match="was not told: no such thread") as caught:
        await turn.follow(Reader())
    assert caught.value.gone


async def test_what_is_told_from_nothing_else_is_there_once(meek: Child) -> None:
    assert await meek.address.find_tools() == []
    found = await attach_process(str(meek.address)).leftovers()
    assert [one.pid for one in found] == [meek.process.pid]


async def test_tools_of_another_start_of_the_machine_are_not_looked_for(meek: Child) -> None:
    machine, _, container = meek.address.host.split()
    host = f"{machine} another-boot {container}"
    before = attrs.evolve(meek.address, host=host, tool={meek.address.mark[0]: None})
    assert await before.find_tools() == []
    here = attrs.evolve(before, host=meek.address.host)
    assert [one.pid for one in await here.find_tools()] == [meek.process.pid]


async def test_nobody_is_said_to_be_told_who_could_not_be_looked_for(
    meek: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    turn = attach_process(str(meek.address))
    sent: list[bool] = []
    with NoFiles(monkeypatch), pytest.raises(BackendLost, match="cannot be read now"):
        await turn.cancel(lambda: sent.append(True))
    assert sent == []


async def test_one_that_was_announced_only_has_no_session_to_look_through(
    meek: Child, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks: list[object] = []
    read = proctable._read_table

    def count() -> object:
        looks.append(None)
        return read()

    monkeypatch.setattr(proctable, "_read_table", count)
    await ProcessAddress.ahead(meek.address.mark).find()
    assert len(looks) == 1
    await meek.address.find()
    assert len(looks) == 3


async def test_a_table_that_cannot_be_read_is_not_read_all_the_time(
    monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    looks: list[float] = []

    async def refuse(marks: object) -> object:
        looks.append(trio.current_time())
        assert len(looks) < 100
        await trio.lowlevel.checkpoint()
        raise BackendLost("it cannot be read now")

    monkeypatch.setattr(orphans, "find_marked", refuse)
    turn = attach_process(str(ProcessAddress.ahead(new_mark())))
    with trio.move_on_after(1.02):
        await turn.follow(Reader())
    assert len(looks) == 21
