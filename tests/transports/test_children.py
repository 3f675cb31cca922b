"""A turn that is a program: how it ended is told by its exit status, and a stop ends all of it."""

from __future__ import annotations

import gc
import os
import warnings
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import turnstop
from turnstop import BackendError, BackendRefused, Ending, Proof
from turnstop.abc import How, Request
from turnstop.events import Text
from turnstop.journal import open_journal
from turnstop.transports import children
from turnstop.transports.children import ChildTurn, start_child
from turnstop.transports.proctable import find_marked

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")


@attrs.define
class Shells:
    """Each turn is a shell script."""

    name = "shells"
    announces = True

    options: dict[str, Any] = attrs.field(factory=dict)
    turns: list[ChildTurn] = attrs.field(factory=list)

    async def start(self, request: Request[str]) -> ChildTurn:
        turn = await start_child(request, ["/bin/sh", "-c", request.content], **self.options)
        self.turns.append(turn)
        return turn


async def play(script: str, **options: Any) -> tuple[turnstop.Turn, str, BaseException | None]:
    error = None
    said = ""
    async with turnstop.open_rooms(Shells(options)) as rooms:
        turn = rooms.turn("kitchen", script)
        try:
            async with turn:
                async for event in turn:
                    assert isinstance(event, Text)
                    said += event.delta
        except BackendError as raised:
            error = raised
    return turn, said, error


async def test_a_program_that_ends_well_is_finished_with_what_it_said() -> None:
    turn, said, error = await play("printf 'it b\\303\\244kes'", env={"LC_ALL": "C"})
    assert error is None
    assert said == "it bäkes"
    assert turn.ending is Ending.FINISHED
    assert turn.settlement is not None
    assert (turn.settlement.request, turn.settlement.proof) == (None, Proof.PROCESS)


async def test_what_it_leaves_half_written_is_told_too() -> None:
    _, said, error = await play("printf 'it b\\303'")
    assert (said, error) == ("it b\N{REPLACEMENT CHARACTER}", None)


@pytest.mark.parametrize(
    ("script", "says"),
    [("echo no; exit 3", "exited with status 3"), ("kill -SEGV $$", "was ended by signal 11")],
)
async def test_a_program_that_fails_is_a_turn_that_failed(script: str, says: str) -> None:
    turn, _, error = await play(script)
    assert turn.ending is Ending.FAILED
    assert says in str(error)


async def test_a_program_that_is_missing_is_refused() -> None:
    async with turnstop.open_rooms(Missing()) as rooms:
        turn = rooms.turn("kitchen", "")
        with pytest.raises(BackendRefused, match="could not be started"):
            async with turn:
                async for _ in turn:
                    pass


class Missing:
    async def start(self, request: Request[str]) -> ChildTurn:
        return await start_child(request, ["/no/such/program"])


async def _stop(script: str, **options: Any) -> turnstop.Turn:
    """Stop it once it has said something."""
    async with turnstop.open_rooms(Shells(options)) as rooms:
        async with rooms.turn("kitchen", script) as turn:
            async for _ in turn:
                break
    return turn


async def test_a_stop_ends_it_and_what_it_has_begun() -> None:
    value = f"children-{os.getpid()}"
    script = "setsid sleep 300 & trap '' TERM; echo up; while :; do sleep 0.05; done"
    turn = await _stop(script, env={"CHILDREN_TEST": value})
    assert turn.ending is Ending.STOPPED
    assert turn.settlement is not None
    assert turn.settlement.proof is Proof.PROCESS
    assert await find_marked({"CHILDREN_TEST": value}) == []


async def test_its_grace_is_for_ending_by_itself(tmp_path: Path) -> None:
    script = "trap 'sleep 0.6; date > cleaned; exit 0' TERM; echo up; while :; do sleep 0.05; done"
    turn = await _stop(script, cwd=tmp_path, grace=4.0)
    assert turn.ending is Ending.STOPPED
    assert (tmp_path / "cleaned").exists()


async def test_one_that_had_exited_is_not_stopped() -> None:
    # What it has begun still has its stdout: that is what the stop ends.
    async with turnstop.open_rooms(shells := Shells()) as rooms:
        async with rooms.turn("kitchen", "sleep 300 & echo up") as turn:
            async for _ in turn:
                await shells.turns[0]._process.wait()
                break
    assert turn.ending is Ending.FINISHED


async def silent(address: str) -> None: ...


REQUEST: Any = attrs.make_class("R", {"announce": attrs.field()})(silent)


async def test_by_force_it_is_ended_at_once_and_was_stopped() -> None:
    turn = await start_child(REQUEST, ["/bin/sh", "-c", "trap '' TERM; while :; do :; done"])
    with trio.fail_after(10):
        await turn.kill()
        end = await turn.follow(lambda event: None)  # type: ignore[arg-type]
    assert (end.how, end.proof) == (How.CANCELLED, Proof.PROCESS)


async def test_where_no_processes_are_shown_none_is_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(children, "has_table", lambda: False)
    with pytest.raises(BackendRefused, match="no process is shown here"):
        await start_child(REQUEST, ["/bin/sh", "-c", "exit 0"])


async def test_it_is_announced_before_it_is_begun(tmp_path: Path) -> None:
    announced: list[bool] = []

    async def announce(address: str) -> None:
        announced.append((tmp_path / "begun").exists())

    request = attrs.evolve(REQUEST, announce=announce)
    turn = await start_child(request, ["/bin/sh", "-c", "touch begun"], cwd=tmp_path)
    await turn.follow(lambda event: None)  # type: ignore[arg-type]
    assert announced == [False]
    assert (tmp_path / "begun").exists()


async def test_nothing_of_it_is_left_open(tmp_path: Path) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        async with open_journal(tmp_path / "turns.db") as journal:
            async with turnstop.open_rooms(shells := Shells(), journal=journal) as rooms:
                for script in ("echo done", "echo up; sleep 300"):
                    async with rooms.turn("kitchen", script) as turn:
                        async for _ in turn:
                            break
        assert [turn._process.returncode is None for turn in shells.turns] == [False, False]
        shells.turns.clear()
        del turn
        gc.collect()
    assert [str(one.message) for one in caught] == []
