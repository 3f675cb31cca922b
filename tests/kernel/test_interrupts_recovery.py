"""Ctrl-C on every line that a journal has the kernel run: what was noted is ended, or left."""

from __future__ import annotations

import pytest
import trio
from strikes import Line, default_handler, files_of, lines_of, sweep_lines
from trio.testing import MockClock

from turnstop import StopBudget, Turn, open_rooms

from .backend import occupy
from .test_recovery import Far, Notebook

__all__ = ["default_handler"]

MODULES = ("_turn", "_life", "_account", "_house", "_rooms", "_admission", "_receipt")
FILES = files_of(*MODULES)


class Announcing(Far):
    """It knows where each turn will be."""

    announces = True


class Scene:
    """Three turns were left, of which one is found later; one turn is stopped unsent."""

    def __init__(self) -> None:
        self.far = Announcing()
        self.notebook = Notebook(saves_within=0.2)
        self.given: list[str] = []
        self.turns: list[Turn] = []
        orphan = self.notebook.orphan
        self.notebook.left = [[orphan("a", "left-1"), orphan("a", "left-2")], [orphan("b", "late")]]

    def run(self) -> None:
        trio.run(self.main, clock=MockClock(autojump_threshold=0))

    async def main(self) -> None:
        budget = StopBudget(2, 1)
        async with open_rooms(self.far, budget=budget, journal=self.notebook) as rooms:
            self.rooms = rooms
            self.turns += [rooms.turn("a", "x"), rooms.turn("b", "y"), rooms.turn("c", "z")]
            async with trio.open_nursery() as nursery:
                nursery.start_soon(occupy, self.turns[0])
                nursery.start_soon(occupy, self.turns[1])
                await trio.sleep(0.1)
                rooms.stop("a", turn_id="left-2")
                async with self.turns[2]:
                    await trio.sleep(0.1)
                    self.turns[2].stop()
                await trio.sleep(11)
                rooms.stop_all()
                await rooms.retire("a")

    def check(self) -> None:
        for turn in self.turns:
            assert turn.state == "new" or turn.settlement is not None
        if hasattr(self, "rooms"):
            found = self.rooms.statistics()
            assert (found.rooms, found.live, found.waiting, found.stragglers) == (0, 0, 0, 0)
        log = self.notebook.log
        taken = {"left-1", "left-2"} if self.notebook.looks else set()
        taken |= {"late"} if not self.notebook.left else set()
        own = {row[0] for row in log if row[1] == "admitted"}
        for turn_id in own | taken:
            said = [row[1] for row in log if row[0] == turn_id]
            assert said.count("settled") + said.count("left") == 1, (turn_id, log)
            # What is admitted has its address in the same step: else nobody could tell what it is.
            assert turn_id in taken or said[1] == "address", (turn_id, log)


def lines_of_the_scene() -> list[Line]:
    scene = Scene()
    found = lines_of(scene.run, FILES)
    scene.check()
    return found


@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_on_any_line_leaves_nothing_half_noted(module: str) -> None:
    file = files_of(module)
    lines = [line for line in lines_of_the_scene() if line[0].co_filename in file]
    assert sweep_lines(Scene, lines) == []
