"""Ctrl-C in the middle of our own code: on each of its lines, or at each step, one run for each.

A scene is made anew for each run. A signal's handler runs between two steps of Python's, so each is
tried; but for those in which a function that awaits is woken only to wake what it awaits.
"""

from __future__ import annotations

import dis
import signal
import sqlite3
import sys
from collections.abc import Callable, Collection, Iterable, Iterator
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, NamedTuple, Protocol

import pytest
import trio

import turnstop
from turnstop import _sqlite
from turnstop.testing._determinism import deterministic

__all__ = [
    "Line",
    "Scene",
    "Struck",
    "default_handler",
    "files_of",
    "is_bare",
    "is_told",
    "lines_of",
    "opened",
    "strike",
    "strike_at",
    "sweep_lines",
    "sweep_steps",
]

# Seconds of the processor, for each run where somebody watches over the whole test.
WITHIN = 4.0

AWAITING = ("SEND", "YIELD_VALUE", "RESUME", "JUMP_BACKWARD_NO_INTERRUPT", "END_SEND")

Line = tuple[CodeType, int]
Wanted = Callable[[CodeType], bool]
Tracer = Callable[[FrameType, str, object], Any]


class Struck(NamedTuple):
    """What came of a run.

    Attributes:
        steps: how many there were in the wanted code.
        where: it was interrupted; empty where it was not.
        caught: what it raised.
    """

    steps: int
    where: str
    caught: BaseException | None


class Scene(Protocol):
    """What is interrupted."""

    def run(self) -> object:
        """Play it; what it raises is judged."""

    def check(self) -> None:
        """See that nothing was left half done, whatever was reached."""


@pytest.fixture(autouse=True)
def default_handler() -> Iterator[None]:
    """Trio handles Ctrl-C only where nobody else does. Import it where it is to be used."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[sqlite3.Connection]:
    """The connections that our code opens. Import it where it is to be used."""
    opened: list[sqlite3.Connection] = []

    def open_noted(path: Path) -> sqlite3.Connection:
        opened.append(connect(path))
        return opened[-1]

    connect = _sqlite._open
    monkeypatch.setattr(_sqlite, "_open", open_noted)
    return opened


def files_of(*modules: str) -> frozenset[str]:
    """Where these modules of turnstop are, such as "claims/_claims"."""
    place = Path(turnstop.__file__).parent
    return frozenset(str(place / f"{name}.py") for name in modules)


def _traced(run: Callable[[], object], enter: Tracer) -> BaseException | None:
    if signal.getitimer(signal.ITIMER_PROF)[0]:
        signal.setitimer(signal.ITIMER_PROF, WITHIN)
    sys._getframe().f_trace_opcodes = True  # else Python 3.12 traces none
    sys.settrace(enter)
    try:
        run()
    except BaseException as error:
        return error
    finally:
        sys.settrace(None)
    return None


@cache
def _passes_on(code: CodeType) -> frozenset[int]:
    """Where Python looks for no signal: it is on its way into what is awaited, or out of it."""
    found = [one for one in dis.get_instructions(code) if one.opname in AWAITING]
    return frozenset(
        one.offset for one in found if one.opname != "RESUME" or (one.arg or 0) & 3 > 1
    )


def lines_of(run: Callable[[], object], files: Collection[str]) -> list[Line]:
    """The lines of these files that a run reaches."""
    found: dict[Line, None] = {}

    def local(frame: FrameType, event: str, arg: object) -> Any:
        if event == "line":
            found[frame.f_code, frame.f_lineno] = None
        return local

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        return local if frame.f_code.co_filename in files else None

    if (error := _traced(run, enter)) is not None:
        raise error
    return list(found)


def strike(run: Callable[[], object], line: Line) -> tuple[bool, BaseException | None]:
    """Run it with Ctrl-C on one line, the first time that it is reached; whether it was."""
    hit = False
    code, number = line

    def local(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal hit
        if event == "line" and frame.f_lineno == number and not hit:
            hit = True
            signal.raise_signal(signal.SIGINT)
        return local

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        return local if frame.f_code is code and not hit else None

    caught = _traced(run, enter)
    return hit, caught


def strike_at(run: Callable[[], object], step: int, wanted: Wanted) -> Struck:
    """Run it with Ctrl-C at one bytecode of the wanted code; with none where it is 0."""
    count = 0
    where = ""

    def local(frame: FrameType, event: str, arg: object) -> Any:
        nonlocal count, where
        if event == "opcode" and frame.f_lasti not in _passes_on(frame.f_code):
            count += 1
            if count == step:
                where = f"{frame.f_code.co_qualname}:{frame.f_lineno}"
                signal.raise_signal(signal.SIGINT)
        return local

    def enter(frame: FrameType, event: str, arg: object) -> Any:
        if not wanted(frame.f_code):
            return None
        frame.f_trace_opcodes = True
        return local

    caught = _traced(run, enter)
    return Struck(count, where, caught)


def is_bare(error: BaseException | None) -> None:
    """The end of a scene whose own nurseries make no groups."""
    assert type(error) is KeyboardInterrupt, repr(error)


def is_told(error: BaseException | None) -> None:
    """The end of a scene in which more than one thing may go wrong."""
    assert "KeyboardInterrupt" in repr(error), repr(error)


def sweep_lines(
    make: Callable[[], Scene],
    lines: Iterable[Line],
    ends: Callable[[BaseException | None], None] = is_told,
) -> list[str]:
    """Strike each line of a new scene; what was wrong after that."""
    wrong: list[str] = []
    for code, number in lines:
        scene = make()
        hit, caught = strike(scene.run, (code, number))
        if hit:
            _judge(scene, caught, ends, f"{code.co_qualname}:{number}", wrong)
        if isinstance(caught, trio.TrioInternalError):
            break  # it hangs, and the clean-up after that fails the lines after it
    return wrong


def sweep_steps(
    make: Callable[[], Scene],
    wanted: Wanted,
    ends: Callable[[BaseException | None], None] = is_bare,
    every: int = 1,
) -> tuple[int, list[str]]:
    """Strike at each step of a new scene; how many there are, and what was wrong."""
    with deterministic(0):
        scene = make()
        whole = strike_at(scene.run, 0, wanted)
        if whole.caught is not None:
            raise whole.caught
        scene.check()
        wrong: list[str] = []
        for step in range(1, whole.steps + 1, every):
            scene = make()
            struck = strike_at(scene.run, step, wanted)
            if not struck.where and struck.caught is None:
                break  # some runs have a few steps less, and this was beyond the last
            _judge(scene, struck.caught, ends, f"step {step}, {struck.where}", wrong)
            if isinstance(struck.caught, trio.TrioInternalError):
                break
    return whole.steps, wrong


def _judge(
    scene: Scene,
    caught: BaseException | None,
    ends: Callable[[BaseException | None], None],
    where: str,
    wrong: list[str],
) -> None:
    try:
        ends(caught)
        scene.check()
    except AssertionError as error:
        wrong.append(f"{where}: {str(error)[:200]!r} {caught!r}")
