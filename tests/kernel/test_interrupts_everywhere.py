"""Ctrl-C on every line of the kernel, one run for each: nothing is ever left half done."""

from __future__ import annotations

from types import CodeType

import pytest
import trio
from strikes import Line, default_handler, files_of, lines_of, sweep_lines, sweep_steps
from trio.testing import MockClock, wait_all_tasks_blocked

from turnstop import StopBudget, Turn, open_rooms
from turnstop._service import open_service
from turnstop._unwrap import open_private_nursery
from turnstop.abc import Silenced
from turnstop.events import Ask, Text

from .backend import Act, Recorder, ending, hang, occupy

__all__ = ["default_handler"]

MODULES = (
    "_turn",
    "_life",
    "_account",
    "_house",
    "_rooms",
    "_gate",
    "_watch",
    "_workers",
    "_admission",
    "_calls",
    "_receipt",
)
FILES = files_of(*MODULES)
NURSERIES = files_of("_unwrap", "_service")


class Scene:
    """Two turns and a retire in one room; the first asks, is stopped, and has to be killed."""

    def __init__(self) -> None:
        self.backend = Recorder(
            session="s",
            cancel=hang(),
            kill=ending(takes=0.5),
            leftovers=Act(returns=["sh"]),
            sweep=Act(returns=[]),
        )
        self.turns: list[Turn] = []
        self.asks: list[str] = []

    def run(self) -> None:
        trio.run(self.main, clock=MockClock(autojump_threshold=0))

    async def serve(self) -> None:
        self.asks.append("asked")
        try:
            assert self.backend.remotes[0].emit is not None
            await self.backend.remotes[0].emit.ask(Ask("1", "question", "what?"))
            self.asks.append("answered")
        except Silenced:
            self.asks.append("silenced")
        except BaseException as error:
            self.asks.append(repr(error))
            raise

    async def main(self) -> None:
        budget = StopBudget(2, 1)
        async with open_rooms(self.backend, budget=budget, observers=[self.observe]) as rooms:
            self.rooms = rooms
            self.turns += [rooms.turn("a", "x"), rooms.turn("a", "y")]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(occupy, self.turns[1])
                async with self.turns[0] as turn:
                    await self.body(turn, nursery)

    async def body(self, turn: Turn, nursery: trio.Nursery) -> None:
        if self.turns[1].task is None:
            await wait_all_tasks_blocked()
        await wait_all_tasks_blocked()
        if not self.backend.remotes:
            return
        nursery.start_soon(self.read, turn)
        await trio.sleep(0.25)
        nursery.start_soon(self.serve)
        await wait_all_tasks_blocked()
        async for event in turn:
            assert isinstance(event, Ask)
            turn.answer(event, "that")
            break
        self.backend.remotes[0].say(Text("a"))
        self.backend.remotes[0].say(Text("b"))
        await wait_all_tasks_blocked()
        nursery.start_soon(self.rooms.retire, "a")
        await trio.sleep(1)

    async def read(self, turn: Turn) -> None:
        with trio.move_on_after(0.1):
            await turn.__anext__()

    def observe(self, _: object) -> None:
        pass

    def check(self) -> None:
        for turn in self.turns:
            assert turn.state == "new" or turn.settlement is not None
        for turn in self.turns:
            for call in ("start", "cancel", "kill"):
                assert len(self.backend.at(call, turn.turn_id)) <= 1
        if self.asks:
            assert self.asks[-1] != "asked"
        if hasattr(self, "rooms"):
            found = self.rooms.statistics()
            assert (found.rooms, found.live, found.waiting, found.stragglers) == (0, 0, 0, 0)


def lines_of_the_scene() -> list[Line]:
    scene = Scene()
    found = lines_of(scene.run, FILES)
    scene.check()
    assert scene.backend.calls.count("kill") >= 1
    assert "forget" in scene.backend.calls
    return found


@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_on_any_line_leaves_nothing_half_done(module: str) -> None:
    file = files_of(module)
    lines = [line for line in lines_of_the_scene() if line[0].co_filename in file]
    assert sweep_lines(Scene, lines) == []


class Nurseries:
    """Our own, opened and closed."""

    def run(self) -> None:
        trio.run(self.main, clock=MockClock(autojump_threshold=0))

    async def main(self) -> None:
        async with open_service() as service:
            service.start_soon(trio.sleep_forever)
            service.start_soon(trio.sleep_forever)
            await trio.sleep(0.1)
        async with open_private_nursery() as nursery:
            await trio.sleep(0.1)
            nursery.cancel_scope.cancel()
        # What was cancelled is waited for.
        with trio.move_on_after(0.1):
            async with open_service() as service:
                service.start_soon(self.close_slowly)
                await trio.sleep_forever()

    async def close_slowly(self) -> None:
        try:
            await trio.sleep_forever()
        finally:
            with trio.CancelScope(shield=True):
                await trio.sleep(0.1)

    def check(self) -> None:
        pass


def opens_and_closes(code: CodeType) -> bool:
    if code.co_name == "spawn_impl":
        # Trio's own, which would leave a task that nobody runs.
        return True
    # That one calls what is not the kernel's.
    return code.co_filename in NURSERIES and code.co_name != "_shielded"


def test_ctrl_c_at_any_step_tears_no_nursery_apart() -> None:
    """Between the making of a nursery's exit and the wait for it, say."""
    steps, wrong = sweep_steps(Nurseries, opens_and_closes)
    assert steps > 50
    assert wrong == []
