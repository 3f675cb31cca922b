"""A pid is given to another program: whoever has it now is never signalled.

Where the machine lets us choose the next pid, it really is.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import trio

from turnstop._identity import find_start
from turnstop.abc import Emit, End, How, Proof
from turnstop.transports.orphans import ProcessAddress, attach_process, new_mark

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
LAST = Path("/proc/sys/kernel/ns_last_pid")
# It tells what reaches it, and so does what it has started: nothing but the end of the test may.
INNOCENT = """trap 'echo signalled' TERM INT HUP
sh -c "trap 'echo signalled' TERM INT HUP; echo up; while :; do sleep 0.02; done" &
while :; do sleep 0.02; done"""

Begin = Callable[..., "subprocess.Popen[bytes]"]


class Deaf:
    def __call__(self, event: object) -> None:
        raise AssertionError

    async def ask(self, ask: object) -> object:
        raise AssertionError


deaf: Emit = Deaf()


@pytest.fixture
def begin() -> Iterator[Begin]:
    """Start a shell in a session of its own; all of it is ended, whatever becomes of it."""
    begun: list[subprocess.Popen[bytes]] = []

    def run(command: str, **env: str) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            ["/bin/sh", "-c", command],
            stdout=subprocess.PIPE,
            env={**os.environ, **env},
            start_new_session=True,
        )
        begun.append(process)
        assert process.stdout is not None
        assert process.stdout.readline() == b"up\n"
        return process

    yield run
    for process in begun:
        # While it was not waited for, the pid is its own; a group outlives its leader.
        if process.returncode is None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        assert process.stdout is not None
        process.stdout.close()


def said(process: subprocess.Popen[bytes]) -> bytes:
    """What it has said since it was up."""
    assert process.stdout is not None
    os.set_blocking(process.stdout.fileno(), False)
    return process.stdout.read() or b""


async def end_all_of(address: ProcessAddress) -> End:
    turn = attach_process(str(address))
    await turn.cancel(lambda: None)
    await turn.kill()
    assert await turn.sweep(await turn.leftovers()) == []
    return await turn.follow(deaf)


async def is_untouched(process: subprocess.Popen[bytes]) -> bool:
    await trio.sleep(0.2)
    return process.poll() is None and said(process) == b""


def is_choosable() -> bool:
    return os.access(LAST, os.W_OK)


def give_away(pid: int, begin: Begin) -> subprocess.Popen[bytes]:
    """Start a program that is given this pid: the machine counts on from what it is told."""
    # Starts are told in hundredths of a second: in one, no machine gives all the others away first.
    time.sleep(0.03)
    until = time.monotonic() + 10
    while time.monotonic() < until:
        LAST.write_text(str(pid - 1))
        process = begin(INNOCENT)
        if process.pid == pid:
            return process
        # Another program of this machine was quicker.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    pytest.skip("others start programs all the time: the pid could not be had")


async def test_it_really_is_another_program_now(begin: Begin) -> None:
    if not is_choosable():
        pytest.skip("this machine does not let us choose a pid")
    mark = new_mark()
    process = begin("echo up; exec sleep 300", **dict([mark]))
    address = ProcessAddress.of(process.pid, mark)
    process.kill()
    process.wait()
    other = give_away(process.pid, begin)
    assert find_start(other.pid) != address.started
    end = await end_all_of(address)
    assert (end.how, end.proof) == (How.CANCELLED, Proof.PROCESS)
    assert await is_untouched(other)


@pytest.mark.parametrize("later", [-1, 1, 1000])
async def test_a_leader_that_began_at_another_time(later: int, begin: Begin) -> None:
    process = begin(INNOCENT)
    address = ProcessAddress.of(process.pid, new_mark())
    before = attrs.evolve(address, started=address.started - later)
    assert (await end_all_of(before)).proof is Proof.PROCESS
    assert await is_untouched(process)


async def test_on_another_start_of_the_machine_it_was_another(begin: Begin) -> None:
    process = begin(INNOCENT)
    address = ProcessAddress.of(process.pid, new_mark())
    machine, _, container = address.host.split()
    before = attrs.evolve(address, host=f"{machine} another-boot {container}")
    assert (await end_all_of(before)).proof is Proof.PROCESS
    assert await is_untouched(process)


async def test_what_carries_another_mark_is_no_part_of_it(begin: Begin) -> None:
    name, value = new_mark()
    process = begin(INNOCENT, **{name: value})
    ahead = ProcessAddress.ahead((name, value[:-1]))
    assert (await end_all_of(ahead)).proof is Proof.PROCESS
    assert await is_untouched(process)


def has_ended(pid: int) -> bool:
    return find_start(pid) == 0


async def test_a_leader_that_nobody_has_waited_for_is_over(begin: Begin) -> None:
    mark = new_mark()
    process = begin("setsid sleep 300 & echo up; exec sleep 300", **dict([mark]))
    address, other = ProcessAddress.of(process.pid, mark), begin(INNOCENT)
    os.kill(process.pid, signal.SIGKILL)
    while not has_ended(process.pid):  # noqa: ASYNC110 - a process's end is no event here
        await trio.sleep(0.01)
    # A zombie: it keeps its pid until somebody waits for it.
    assert os.path.exists(f"/proc/{process.pid}")  # noqa: ASYNC240
    (left,) = await address.find()
    assert (await end_all_of(address)).proof is Proof.PROCESS
    assert has_ended(left.pid)
    assert await is_untouched(other)


async def test_what_a_leader_has_left_is_ended_and_who_has_its_pid_is_not(begin: Begin) -> None:
    if not is_choosable():
        pytest.skip("this machine does not let us choose a pid")
    mark = new_mark()
    process = begin("trap '' TERM; setsid sleep 300 & echo up; exec sleep 300", **dict([mark]))
    address = ProcessAddress.of(process.pid, mark)
    process.kill()
    process.wait()
    (left,) = await address.find()
    other = give_away(process.pid, begin)
    assert (await end_all_of(address)).proof is Proof.PROCESS
    assert has_ended(left.pid)
    assert await is_untouched(other)


async def test_it_is_said_to_be_told_while_it_is_there(begin: Begin) -> None:
    mark = new_mark()
    process = begin("echo up; exec sleep 300", **dict([mark]))
    alive: list[bool] = []
    turn = attach_process(str(ProcessAddress.of(process.pid, mark)))
    await turn.cancel(lambda: alive.append(process.poll() is None))
    assert alive == [True]
    process.wait(timeout=10)
