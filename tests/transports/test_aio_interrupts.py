"""Ctrl-C at the steps of a loop that Trio hosts, also of trio-asyncio's: it always ends."""

from __future__ import annotations

import asyncio
import gc
import importlib.util
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FrameType

import pytest
import sniffio
import trio
from bridging import wait_for_ever
from strikes import default_handler, is_bare, is_told, lines_of, sweep_lines, sweep_steps
from trio.testing import MockClock

import turnstop.transports.aio
from turnstop.transports.aio import open_aio

__all__ = ["default_handler"]

# Seconds in which a run that hangs is ended. None takes a tenth of that.
WITHIN = 20
OURS = frozenset(map(str, Path(turnstop.transports.aio.__file__).parent.glob("*.py")))
PARTS = {
    "opening": "/trio_asyncio/_loop.py",
    "running": ("/trio_asyncio/_base.py", "/trio_asyncio/_async.py"),
}


class Hung(Exception):
    """It did not end."""


class Scene:
    """A call that leaves a task, on a loop that closes."""

    def run(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, WITHIN)
        try:
            trio.run(self.main, clock=MockClock(autojump_threshold=0))
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0)

    async def work(self) -> None:
        asyncio.get_running_loop().call_later(0.01, int)
        await asyncio.create_task(asyncio.sleep(0.02))
        self.left = asyncio.create_task(asyncio.sleep(100))

    async def main(self) -> None:
        try:
            async with open_aio() as aio:
                await aio.call(self.work)
        finally:
            self.library = sniffio.thread_local.name

    def check(self) -> None:
        assert self.library == "trio"


@pytest.fixture(autouse=True)
def alarm() -> Iterator[None]:
    def ring(number: int, frame: FrameType | None) -> None:
        raise Hung

    before = signal.signal(signal.SIGALRM, ring)
    Scene().run()  # What is imported at first is no part of it.
    yield
    signal.signal(signal.SIGALRM, before)
    gc.collect()  # Here, where what is struck may say that it never took its first step.


pytestmark = [
    pytest.mark.skipif(
        sys.version_info >= (3, 14) or importlib.util.find_spec("trio_asyncio") is None,
        reason="pip install 'turnstop[aio]'",
    ),
    # What is struck between a coroutine's making and its first step never takes that.
    pytest.mark.filterwarnings("ignore:coroutine '.*' was never awaited:RuntimeWarning"),
]


def test_ctrl_c_on_any_line_of_ours_ends_a_hosted_loop() -> None:
    lines = lines_of(Scene().run, OURS)
    assert len(lines) > 100
    assert sweep_lines(Scene, lines, is_bare) == []


@pytest.mark.parametrize("part", PARTS)
def test_ctrl_c_at_any_step_of_trio_asyncios_ends_a_hosted_loop(part: str) -> None:
    def wanted(code: CodeType) -> bool:
        return code.co_filename.endswith(PARTS[part])

    # One of its own tasks, struck in its first step, makes a group.
    ends = is_told if part == "opening" else is_bare
    steps, wrong = sweep_steps(Scene, wanted, ends, every=7)
    assert steps > 200
    assert wrong == []


def test_ctrl_c_in_a_loop_around_trio_is_told_to_trio_alone(default_handler: None) -> None:
    seen: list[str] = []

    async def guest() -> None:
        async with open_aio() as aio:
            await aio.call(asyncio.sleep, 0)
        try:
            await trio.sleep_forever()
        except BaseException as error:
            seen.append(type(error).__name__)
            raise

    async def hold() -> None:
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[object] = loop.create_future()
        trio.lowlevel.start_guest_run(
            guest,
            run_sync_soon_threadsafe=loop.call_soon_threadsafe,
            done_callback=ended.set_result,
        )
        loop.call_soon(strike)
        found: object = await ended
        found.unwrap()  # type: ignore[attr-defined]

    def strike() -> None:
        signal.raise_signal(signal.SIGINT)
        seen.append("went on")

    # Not of trio-asyncio's making, as a notebook's is.
    loop = asyncio.SelectorEventLoop()
    try:
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(hold())
    finally:
        loop.close()
    assert seen[0] == "went on"


@pytest.mark.parametrize("by", ["a task", "a timer"])
def test_ctrl_c_in_a_callback_ends_it_at_once(default_handler: None, by: str) -> None:
    seen: list[str] = []

    async def begin() -> None:
        if by == "a timer":
            asyncio.get_running_loop().call_later(0.001, spin)
            await wait_for_ever()
        spin()

    def spin() -> None:
        try:
            signal.raise_signal(signal.SIGINT)
            seen.append("went on")
        finally:
            seen.append("left")

    async def main() -> None:
        async with open_aio() as aio:
            await aio.call(begin)

    with pytest.raises(KeyboardInterrupt):
        trio.run(main)
    assert seen == ["left"]


def test_ctrl_c_ends_what_a_task_does_at_its_very_end() -> None:
    struck: list[str] = []

    async def linger() -> None:
        try:
            while True:
                try:
                    await asyncio.sleep(100)
                except asyncio.CancelledError:
                    pass
        finally:
            try:
                signal.raise_signal(signal.SIGINT)
            except KeyboardInterrupt:
                struck.append("there")
                raise

    async def begin() -> None:
        kept.append(asyncio.create_task(linger()))
        await asyncio.sleep(0)

    async def main() -> None:
        async with open_aio() as aio:
            await aio.call(begin)

    kept: list[object] = []
    with pytest.raises(KeyboardInterrupt):
        trio.run(main, clock=MockClock(autojump_threshold=0))
    assert struck == ["there"]
