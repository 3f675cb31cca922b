"""A program that listens: its readiness, and that nothing of it is left."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest
import trio
from trio.testing import MockClock

from turnstop import BackendLost, BackendRefused
from turnstop.transports.listening import Listening, open_listening
from turnstop.transports.process import Grace
from turnstop.transports.proctable import find_marked

READY = r"listening on (http://\S+)"
GRACE = Grace(close=0.0, terminate=0.5, kill=1.0)
SERVES = "print('listening on http://127.0.0.1:1', flush=True); import time; time.sleep(300)"
needs_table = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="no /proc")


async def nothing() -> None:
    await trio.lowlevel.checkpoint()


def listening(source: str, patience: float = 20.0, farewell: object = nothing) -> object:
    return open_listening(
        [sys.executable, "-c", source],
        ready=READY,
        mark="TURNSTOP_TEST_SERVER",
        farewell=farewell,
        patience=patience,
        grace=GRACE,
        name="a server",
    )


async def test_it_is_there_when_it_has_said_where() -> None:
    noise = "import sys; print('Welcome!'); print('x' * 2**20); sys.stderr.write('y' * 2**20);"
    async with listening(noise + SERVES) as program:
        assert program.address == "http://127.0.0.1:1"
        assert not program.exited.is_set()
    assert program.process.returncode is not None


async def test_what_it_says_later_is_read_and_its_exit_is_told() -> None:
    source = (
        "import sys; print('listening on http://127.0.0.1:1', flush=True);"
        "print('x' * 2**22, flush=True); sys.exit(7)"
    )
    with trio.fail_after(20.0):
        async with listening(source) as program:
            await program.exited.wait()
            assert program.process.returncode == 7


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("import os, time; os.close(1); time.sleep(300)", "closed its stdout"),
        ("import time; time.sleep(300)", "in 0.5 s it did not say where"),
    ],
)
async def test_one_that_does_not_say_where_is_refused(source: str, text: str) -> None:
    with trio.fail_after(20.0):
        with pytest.raises(BackendRefused, match=text):
            async with listening(source, patience=0.5 if "in 0.5" in text else 10.0):
                raise AssertionError("unreachable")


async def test_one_that_exits_before_is_lost() -> None:
    with trio.fail_after(20.0):
        with pytest.raises(BackendLost, match=r"exited with status 1.*log in first$") as caught:
            async with listening("import sys; sys.exit('log in first')"):
                raise AssertionError("unreachable")
    assert caught.value.gone


@pytest.fixture
def slow_clock() -> MockClock:
    """So that what may take a moment may take it on a busy machine too."""
    return MockClock(rate=0.02)


async def test_one_that_exits_a_moment_after_its_stdout_is_lost_and_not_refused(
    slow_clock: MockClock,
) -> None:
    source = "import os, time; os.close(1); time.sleep(0.1); os._exit(3)"
    with pytest.raises(BackendLost, match="exited with status 3") as caught:
        async with listening(source):
            raise AssertionError("unreachable")
    assert caught.value.gone


async def test_a_missing_one_is_refused() -> None:
    with pytest.raises(BackendRefused, match="install it with: get one"):
        async with open_listening(
            ["/nowhere/at/all"], ready=READY, mark="M", farewell=nothing, install="get one"
        ):
            raise AssertionError("unreachable")


async def test_the_farewell_comes_while_it_runs_also_when_cancelled() -> None:
    running: list[bool] = []
    program: Listening | None = None

    async def farewell() -> None:
        await trio.sleep(0.01)
        assert program is not None
        running.append(program.process.returncode is None)

    with trio.CancelScope() as scope:
        async with listening(SERVES, farewell=farewell) as program:
            scope.cancel()
            await trio.sleep_forever()
    assert running == [True]


async def test_a_farewell_that_hangs_is_bounded_and_a_dead_program_is_bid_none() -> None:
    bid: list[str] = []

    async def hang() -> None:
        bid.append("farewell")
        await trio.sleep_forever()

    with trio.fail_after(20.0):
        async with listening(SERVES, farewell=hang):
            pass
        async with listening(SERVES, farewell=hang) as program:
            os.kill(program.process.pid, 9)
            await program.exited.wait()
    assert bid == ["farewell"]


@needs_table
@pytest.mark.parametrize("cancelled", [False, True])
async def test_what_it_has_started_in_other_sessions_is_ended_with_it(cancelled: bool) -> None:
    source = (
        "import subprocess;"
        "subprocess.Popen(['sh', '-c', 'trap \"\" TERM; while :; do sleep 0.05; done'],"
        " start_new_session=True);" + SERVES
    )
    with trio.fail_after(20.0), trio.CancelScope() as scope:
        async with listening(source) as program:
            while len(await find_marked(dict([program.mark]))) < 2:  # noqa: ASYNC110 - a process
                await trio.sleep(0.01)
            if cancelled:
                scope.cancel()
                await trio.sleep_forever()
    assert await find_marked(dict([program.mark])) == []
