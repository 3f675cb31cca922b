"""Ctrl-C on every line of the kernel, one run for each: nothing is ever left half done."""

from __future__ import annotations

import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import turnstop
from turnstop import StopBudget, Turn, open_rooms
from turnstop._service import open_service
from turnstop._unwrap import open_private_nursery
from turnstop.abc import Silenced
from turnstop.events import Ask, Text

from .backend import Act, Recorder, ending, hang, occupy

KERNEL = Path(turnstop.__file__).parent
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
FILES = {str(KERNEL / f"{name}.py") for name in MODULES}
Line = tuple[CodeType, int]


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


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
    assert scene.backend.calls.count("kill") >= 1
    assert "forget" in scene.backend.calls
    return list(found)


def strike(scene: Scene, code: CodeType, line: int) -> tuple[bool, BaseException | None]:
    """Run the scene with Ctrl-C on one line, the first time that it is reached."""
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
def test_ctrl_c_on_any_line_leaves_nothing_half_done(module: str) -> None:
    wrong = []
    for code, line in lines_of_the_scene():
        if Path(code.co_filename).stem != module:
            continue
        scene = Scene()
        hit, caught = strike(scene, code, line)
        try:
            if hit:
                assert caught is not None
                assert "KeyboardInterrupt" in repr(caught)
                scene.check()
        except AssertionError as error:
            wrong.append(f"{module}.{code.co_qualname}:{line}: {str(error)[:80]!r} {caught!r}")
        if isinstance(caught, trio.TrioInternalError):
            break  # it hangs, and the clean-up after that fails the lines after it
    assert wrong == []


async def serve_twice() -> None:
    async with open_service() as service:
        service.start_soon(trio.sleep_forever)
        service.start_soon(trio.sleep_forever)
        await trio.sleep(0.1)
    async with open_private_nursery() as nursery:
        await trio.sleep(0.1)
        nursery.cancel_scope.cancel()


def strike_at(step: int) -> tuple[int, BaseException | None]:
    """Serve with Ctrl-C at one bytecode of what opens and closes a nursery; how many there were."""
    count = 0

    def local(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count
        if event == "opcode":
            count += 1
            if count == step:
                signal.raise_signal(signal.SIGINT)
        return local

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        code = frame.f_code
        if Path(code.co_filename).name not in ("_unwrap.py", "_service.py"):
            return None
        if code.co_name == "_shielded":
            return None  # it calls what is not the kernel's
        frame.f_trace_opcodes = True
        return local

    caught: BaseException | None = None
    sys._getframe().f_trace_opcodes = True  # else Python 3.12 traces none
    sys.settrace(enter)
    try:
        trio.run(serve_twice, clock=MockClock(autojump_threshold=0))
    except BaseException as error:
        caught = error
    finally:
        sys.settrace(None)
    return count, caught


def test_ctrl_c_at_any_step_tears_no_nursery_apart() -> None:
    """Between the making of a nursery's exit and the wait for it, say."""
    steps, caught = strike_at(0)
    assert caught is None
    assert steps > 50
    wrong = []
    for step in range(1, steps + 1):
        _, caught = strike_at(step)
        if type(caught) is not KeyboardInterrupt:
            wrong.append((step, repr(caught)))
    assert wrong == []
