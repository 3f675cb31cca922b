"""Ctrl-C on every line that a journal has the kernel run: what was noted is ended, or left."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import trio
from trio.testing import MockClock

import turnstop
from turnstop import StopBudget, Turn, open_rooms

from .backend import occupy
from .test_recovery import Far, Notebook

KERNEL = Path(turnstop.__file__).parent
MODULES = ("_turn", "_life", "_account", "_house", "_rooms", "_admission", "_receipt")
FILES = {str(KERNEL / f"{name}.py") for name in MODULES}
Line = tuple[CodeType, int]


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
    found: dict[Line, None] = {}

    def local(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            found[frame.f_code, frame.f_lineno] = None
        return local

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        return local if frame.f_code.co_filename in FILES else None

    scene = Scene()
    sys.settrace(enter)
    try:
        scene.run()
    finally:
        sys.settrace(None)
    scene.check()
    return list(found)


def strike(scene: Scene, code: CodeType, line: int) -> tuple[bool, BaseException | None]:
    hit = False

    def local(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal hit
        if event == "line" and frame.f_lineno == line and not hit:
            hit = True
            signal.raise_signal(signal.SIGINT)
        return local

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        return local if frame.f_code is code and not hit else None

    caught: BaseException | None = None
    sys.settrace(enter)
    try:
        scene.run()
    except BaseException as error:
        caught = error
    finally:
        sys.settrace(None)
    return hit, caught


@pytest.mark.parametrize("module", MODULES)
def test_ctrl_c_on_any_line_leaves_nothing_half_noted(module: str) -> None:
    wrong = []
    for code, line in lines_of_the_scene():
        if Path(code.co_filename).stem != module:
            continue
        scene = Scene()
        hit, caught = strike(scene, code, line)
        try:
            if hit:
                assert "KeyboardInterrupt" in repr(caught)
                scene.check()
        except AssertionError as error:
            wrong.append(f"{module}.{code.co_qualname}:{line}: {str(error)[:200]!r} {caught!r}")
        if isinstance(caught, trio.TrioInternalError):
            break  # it hangs, and the clean-up after that fails the lines after it
    assert wrong == []
