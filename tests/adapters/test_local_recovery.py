"""The process that works on functions is killed, with turns under way; the next one takes stock."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import trio
from runs import look

from turnstop import Ending, Proof, Settlement, StopBudget, open_rooms
from turnstop.adapters.local import ThreadWork, Work, open_local
from turnstop.journal import open_journal
from turnstop.transports.proctable import find_marked

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")

STUBBORN = "trap '' TERM HUP; echo $$; while :; do sleep 0.05; done"
OWNER = f"""
import os, subprocess, sys, trio, turnstop
from turnstop.adapters.local import open_local
from turnstop.journal import open_journal
from turnstop.events import Text

STUBBORN = {STUBBORN!r}

async def coroutine(work):
    with trio.CancelScope(shield=True):
        await trio.lowlevel.open_process(
            ["setsid", "sh", "-c", STUBBORN], env={{**os.environ, **work.env}}
        )
        await trio.sleep_forever()

def thread(work):
    subprocess.run(["sh", "-c", STUBBORN], env={{**os.environ, **work.env}}, start_new_session=True)

async def main(path, kind):
    async with (
        open_journal(path) as journal,
        open_local(globals()[kind]) as local,
        turnstop.open_rooms(local, journal=journal) as rooms,
        rooms.turn("kitchen", "bake", turn_id="1") as turn,
    ):
        async for _ in turn: pass

trio.run(main, *sys.argv[1:])
"""


@contextmanager
def owner(path: Path, kind: str) -> Iterator[tuple[int, int]]:
    """A process that works on a turn, and the program that the turn has started."""
    command = [sys.executable, "-c", OWNER, str(path), kind]
    here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=here) as process:
        assert process.stdout is not None
        try:
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


async def nothing(work: Work) -> None:
    raise AssertionError


async def recover(path: Path, budget: StopBudget | None = None) -> list[Settlement]:
    found: list[Settlement] = []
    async with (
        open_journal(path) as journal,
        open_local(nothing) as local,
        open_rooms(local, journal=journal, budget=budget, observers=[found.append]) as rooms,
    ):
        while rooms.statistics().rooms:  # noqa: ASYNC110 - rooms have no word for it
            await trio.sleep(0.005)
    return found


@pytest.mark.parametrize("kind", ["coroutine", "thread"])
async def test_its_work_has_ended_with_it_and_its_programs_are_ended(
    tmp_path: Path, kind: str
) -> None:
    path = tmp_path / "turns.db"
    with owner(path, kind) as (_, program):
        assert look(program)
    assert look(program)
    (found,) = await recover(path)
    assert (found.ending, found.proof, found.clean) == (Ending.STOPPED, Proof.PROCESS, True)
    assert found.request is not None
    assert found.request.kind == "recovery"
    assert found.errors == ()
    assert not look(program)
    assert await recover(path) == []


async def test_one_that_stands_still_has_not_left_anything(tmp_path: Path) -> None:
    path = tmp_path / "turns.db"
    with owner(path, "coroutine") as (pid, program):
        os.kill(pid, signal.SIGSTOP)
        assert await recover(path) == []
        assert look(program)
    assert len(await recover(path)) == 1


async def test_a_functions_programs_are_ended_with_its_turn(tmp_path: Path) -> None:
    told = tmp_path / "pid"

    async def agent(work: Work) -> None:
        command = f"setsid sh -c {shlex.quote(STUBBORN)} > {told} & wait"
        await trio.run_process(["sh", "-c", command], env={**os.environ, **work.env}, check=False)

    async with open_local(agent) as local, open_rooms(local) as rooms:
        async with rooms.turn("kitchen", "bake") as turn:
            while not (told.exists() and told.read_text()):  # noqa: ASYNC110 - another program's
                await trio.sleep(0.005)
            program = int(told.read_text())
            assert look(program)
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.clean) == (Ending.STOPPED, True)
    assert not look(program)


async def test_a_program_that_a_thread_waits_for_is_ended(tmp_path: Path) -> None:
    told = tmp_path / "pid"

    def agent(work: ThreadWork) -> None:
        command = ["setsid", "sh", "-c", f"({STUBBORN}) > {told}"]
        subprocess.run(command, env={**os.environ, **work.env})

    budget = StopBudget(0.2, 5.0)
    async with open_local(agent) as local, open_rooms(local, budget=budget) as rooms:
        async with rooms.turn("kitchen", "bake") as turn:
            while not (told.exists() and told.read_text()):  # noqa: ASYNC110 - another program's
                await trio.sleep(0.005)
    assert not look(int(told.read_text()))
    assert turn.settlement is not None
    assert "sh" not in str(turn.settlement.survivors)


@pytest.mark.parametrize("check", [False, True])
async def test_a_thread_that_waits_for_a_program_is_stopped_by_its_end(check: bool) -> None:
    began = trio.Event()

    def agent(work: ThreadWork) -> None:
        trio.from_thread.run_sync(began.set)
        for seconds in ("767", "768"):
            subprocess.run(["sleep", seconds], env={**os.environ, **work.env}, check=check)

    async with open_local(agent) as local, open_rooms(local) as rooms:
        async with rooms.turn("kitchen", "bake") as turn:
            await began.wait()
            await trio.sleep(0.1)
    found = turn.settlement
    assert found is not None
    assert (turn.ending, found.clean, found.survivors) == (Ending.STOPPED, True, ())
    assert found.asked_at is not None
    assert found.settled_at - found.asked_at < StopBudget().cancel_within


async def test_a_thread_whose_program_is_deaf_is_stopped_too(tmp_path: Path) -> None:
    told = tmp_path / "pid"

    def agent(work: ThreadWork) -> None:
        command = ["setsid", "sh", "-c", f"({STUBBORN}) > {told}"]
        subprocess.run(command, env={**os.environ, **work.env})

    async with open_local(agent) as local, open_rooms(local) as rooms:
        async with rooms.turn("kitchen", "bake") as turn:
            while not (told.exists() and told.read_text()):  # noqa: ASYNC110 - another program's
                await trio.sleep(0.005)
    assert not look(int(told.read_text()))
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.clean) == (Ending.STOPPED, True)


async def test_the_programs_of_two_turns_are_told_apart() -> None:
    marks: list[dict[str, str]] = []

    async def agent(work: Work) -> None:
        marks.append(work.env)

    for _ in range(2):
        async with open_local(agent) as local, open_rooms(local) as rooms:
            for _ in range(2):
                async with rooms.turn("kitchen", "bake"):
                    await trio.sleep(0.01)
    assert len({tuple(mark.items()) for mark in marks}) == 4
    assert await find_marked(marks[0]) == []
