"""Work of a process itself: over when that is gone, and never ended from elsewhere."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import attrs
import pytest
import trio
from trio.testing import MockClock

from turnstop import BackendLost, Ending, Settlement, StopBudget, open_rooms
from turnstop._house import Orphan
from turnstop._records import StopRequest
from turnstop.abc import Proof
from turnstop.events import Event
from turnstop.transports import owners, proctable
from turnstop.transports.orphans import PROCESS
from turnstop.transports.owners import OwnedTurn, OwnerAddress, attach_owner, new_owner

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

Begin = Callable[..., "subprocess.Popen[bytes]"]


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Run a shell, with a variable or two."""
    begun: list[subprocess.Popen[bytes]] = []

    def run(command: str = "echo up; exec sleep 300", **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command], stdout=subprocess.PIPE, env={**os.environ, **env}
        )
        begun.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield run
    for process in begun:
        process.kill()
        process.wait()
        assert process.stdout is not None
        process.stdout.close()


def address_of(process: subprocess.Popen[bytes]) -> OwnerAddress:
    """The address that it would have made of a turn of its own."""
    here = new_owner()
    started = owners.find_start(process.pid)
    assert started
    return attrs.evolve(here, pid=process.pid, started=started).of_turn(1)


def die(process: subprocess.Popen[bytes]) -> None:
    """Kill it, and leave it to be waited for."""
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)


class Entry:
    def note_address(self, address: str) -> None: ...

    def note_asked(self, request: StopRequest) -> None: ...

    def note_settled(self, settlement: Settlement) -> None: ...

    def note_left(self) -> None: ...

    async def saved(self) -> None: ...


@attrs.frozen
class Left:
    """A journal in which one turn was left."""

    address: OwnerAddress

    def admit(self, backend: str, room: str, turn_id: str) -> Entry:
        return Entry()

    async def take_over(self, backend: str, *, again: bool = False) -> Sequence[Orphan]:
        return [] if again else [Orphan("kitchen", "1", str(self.address), Entry())]


class Reader:
    def __call__(self, event: Event) -> None:
        raise AssertionError

    async def ask(self, ask: object) -> object:
        raise AssertionError


class Engine:
    async def start(self, request: object) -> OwnedTurn:
        raise AssertionError

    async def attach(self, address: str) -> OwnedTurn:
        return attach_owner(address)


async def recover(address: OwnerAddress, budget: StopBudget | None = None) -> Settlement:
    found: list[Settlement] = []
    async with open_rooms(
        Engine(), journal=Left(address), budget=budget, observers=[found.append]
    ) as rooms:
        while rooms.statistics().rooms:  # noqa: ASYNC110 - rooms have no word for it
            await trio.sleep(0.005)
    (settlement,) = found
    return settlement


async def test_it_is_over_with_its_process(begin: Begin) -> None:
    process = begin()
    address = address_of(process)
    die(process)
    # Nobody has waited for it yet: it is in the table, and does nothing any more.
    settled = await recover(address)
    assert (settled.ending, settled.proof, settled.clean) == (Ending.STOPPED, Proof.PROCESS, True)
    assert settled.errors == ()
    process.wait()
    settled = await recover(address)
    assert (settled.ending, settled.proof, settled.clean) == (Ending.STOPPED, Proof.PROCESS, True)


async def test_a_process_that_is_there_is_not_said_to_be_gone_nor_signalled(begin: Begin) -> None:
    process = begin("trap 'echo told; exit' TERM INT HUP QUIT USR1; echo up; while :; do :; done")
    process.send_signal(signal.SIGSTOP)  # One that hangs.
    try:
        settled = await recover(address_of(process), StopBudget(0.3, 0.2))
    finally:
        process.send_signal(signal.SIGCONT)
    assert (settled.ending, settled.gone, settled.sent_at) == (Ending.UNCONFIRMED, False, None)
    assert [type(error) for error in settled.errors] == [BackendLost]
    assert "end it yourself" in str(settled.errors[0])
    (survivor,) = settled.survivors
    assert str(process.pid) in survivor
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    await trio.sleep(0.05)
    assert process.stdout.read() is None
    assert process.poll() is None


async def test_a_process_that_ends_meanwhile(begin: Begin, nursery: trio.Nursery) -> None:
    process = begin()

    async def end() -> None:
        await trio.sleep(0.2)
        process.kill()

    nursery.start_soon(end)
    settled = await recover(address_of(process))
    assert (settled.ending, settled.clean) == (Ending.STOPPED, True)


async def test_this_process_is_one_that_is_there() -> None:
    settled = await recover(new_owner(), StopBudget(0.1, 0.1))
    assert settled.ending is Ending.UNCONFIRMED


async def test_its_own_programs_are_ended_and_nobody_elses(begin: Begin) -> None:
    process = begin()
    address = address_of(process)
    stubborn = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    ours = begin(f'setsid sh -c "{stubborn}"', **address.env)
    anothers = begin(**address.of_turn(2).env)
    unmarked = begin()
    process.kill()
    settled = await recover(address)
    assert (settled.ending, settled.clean) == (Ending.STOPPED, True)
    ours.wait()
    await trio.sleep(0.05)
    assert (anothers.poll(), unmarked.poll()) == (None, None)


async def test_it_is_not_over_before_its_own_programs_are(begin: Begin) -> None:
    process = begin()
    address = address_of(process)
    ours = begin("trap 'exit 7' TERM; echo up; while :; do sleep 0.05; done", **address.env)
    die(process)
    turn = attach_owner(str(address))
    with trio.move_on_after(0.3) as waiting:
        await turn.follow(Reader())
    assert waiting.cancelled_caught
    sent: list[int | None] = []
    await turn.cancel(lambda: sent.append(ours.poll()))
    assert (await turn.follow(Reader())).proof is Proof.PROCESS
    # It was asked before it was made to.
    assert (sent, ours.wait()) == ([None], 7)


async def test_its_programs_are_ended_by_force_too(begin: Begin) -> None:
    process = begin()
    address = address_of(process)
    deaf = "trap '' TERM; echo up; while :; do sleep 0.05; done"
    ours = begin(deaf, **address.env)
    die(process)
    await attach_owner(str(address)).kill()
    assert ours.wait(timeout=5) == -signal.SIGKILL


async def test_what_no_force_ends_is_named(
    begin: Begin, monkeypatch: pytest.MonkeyPatch, autojump_clock: MockClock
) -> None:
    process, ours = begin(), begin()
    address = address_of(process)
    die(process)

    async def look(marks: Mapping[str, str]) -> Sequence[proctable.Marked]:
        await trio.lowlevel.checkpoint()
        entry = proctable._read_entry(ours.pid)
        assert entry is not None
        return [proctable.Marked(entry, marks)]

    # As it is of one that sits in the kernel.
    monkeypatch.setattr(proctable, "_signal", lambda *_: None)
    with pytest.raises(BackendLost, match=f"still alive: pid {ours.pid}"):
        await attach_owner(str(address), look).kill()


async def test_nobody_is_said_to_be_told_who_could_not_be_looked_for(begin: Begin) -> None:
    process = begin()
    address = address_of(process)
    die(process)

    async def look(marks: Mapping[str, str]) -> Sequence[proctable.Marked]:
        await trio.lowlevel.checkpoint()
        raise BackendLost("the process table cannot be read now")

    sent: list[bool] = []
    with pytest.raises(BackendLost, match="cannot be read now"):
        await attach_owner(str(address), look).cancel(lambda: sent.append(True))
    assert sent == []


SERVICE = """
import os, subprocess, sys
from turnstop import BackendLost
from turnstop.transports.owners import attach_owner

for address in sys.argv[1:]:
    try:
        attach_owner(address)
    except BackendLost as error:
        print(error)
    else:
        print("taken up")
"""


def test_a_service_that_the_work_itself_has_restarted_does_not_take_it_up(begin: Begin) -> None:
    process = begin()
    address = address_of(process)
    die(process)
    another = address.of_turn(2)
    # Its parent, here this process, may be the work's own program too: nothing tells that.
    told = subprocess.run(
        [sys.executable, "-c", SERVICE, str(address), str(another)],
        env={**os.environ, **address.env},
        stdout=subprocess.PIPE,
        text=True,
        timeout=60,
        check=True,
    ).stdout.splitlines()
    assert told == [
        f"the turn, of pid {process.pid}, has begun this very process: end what is left of it "
        "yourself, and start this one from elsewhere",
        "taken up",
    ]


def test_of_one_that_ran_elsewhere_it_is_said_where(monkeypatch: pytest.MonkeyPatch) -> None:
    # Also by a program of its work: there it can be seen whether it has ended.
    address = new_owner()
    for name, value in address.env.items():
        monkeypatch.setenv(name, value)
    *here, _ = address.host.split()
    with pytest.raises(BackendLost, match="in another container: see there"):
        attach_owner(str(attrs.evolve(address, host=" ".join([*here, "another"]))))


async def test_its_programs_are_left_alone_while_it_is_there(begin: Begin) -> None:
    address = address_of(begin())
    ours = begin(**address.env)
    await recover(address, StopBudget(0.1, 0.1))
    assert ours.poll() is None


async def test_a_pid_that_is_anothers_now(begin: Begin) -> None:
    process = begin()
    address = address_of(process)
    settled = await recover(attrs.evolve(address, started=address.started - 1))
    assert (settled.ending, settled.clean) == (Ending.STOPPED, True)
    assert process.poll() is None


async def test_the_machine_was_started_since(begin: Begin) -> None:
    address = address_of(begin())
    machine, _, container = address.host.split()
    settled = await recover(attrs.evolve(address, host=f"{machine} another-boot {container}"))
    assert (settled.ending, settled.clean) == (Ending.STOPPED, True)


@pytest.mark.parametrize("others", [(0, 1), (2,)])
async def test_what_cannot_be_seen_here_is_not_said_to_be_gone(others: tuple[int, ...]) -> None:
    address = new_owner()
    parts = address.host.split()
    for part in others:
        parts[part] = "another"
    settled = await recover(attrs.evolve(address, host=" ".join(parts)))
    assert settled.ending is Ending.UNCONFIRMED
    assert "see there" in str(settled.errors)


def test_a_process_whose_start_was_not_told(begin: Begin) -> None:
    process = begin()
    address = attrs.evolve(address_of(process), started=0)
    assert address.may_be_there()
    die(process)
    assert not address.may_be_there()
    process.wait()
    assert not address.may_be_there()


def test_where_no_file_can_be_opened_any_more(begin: Begin) -> None:
    address = address_of(begin())
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        assert address.may_be_there()
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_program_that_has_replaced_itself_has_lost_its_work() -> None:
    here = new_owner()
    assert here.may_be_there()
    assert here.of_turn(1).may_be_there()
    assert not attrs.evolve(here, mark="another-1").may_be_there()


def test_an_address_tells_it_all() -> None:
    address = new_owner().of_turn(5, 'a "session"')
    assert OwnerAddress.parse(str(address)) == address
    turn = attach_owner(str(address))
    assert (turn.address, turn.owner, turn.session) == (str(address), address, 'a "session"')
    assert attach_owner(str(new_owner())).session is None
    assert not str(address).startswith(PROCESS)


BARE = str(new_owner()).removeprefix(owners.OWNER)


@pytest.mark.parametrize(
    "address", ["", "process:[]", "owner:", "owner:[1]", "owner:{}", "5", BARE]
)
def test_another_kind_of_address(address: str) -> None:
    with pytest.raises(BackendLost, match="no address of work"):
        attach_owner(address)
