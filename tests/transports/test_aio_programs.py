"""Programs with a bridge end when they are told to, whatever asyncio code does at that moment."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BOUND = 30

FRAME = """
import asyncio, sys, threading, time
import trio
from turnstop.transports.aio import open_aio

def ready():
    print("ready", flush=True)

{body}

async def main():
    async with open_aio(thread={thread}, close_within=0.2) as aio:
        await use(aio)

trio.run(main)
print("went on")
"""

CALL = """
async def use(aio):
    await aio.call(work)
"""

IN_FLIGHT = """
async def work():
    ready()
    await asyncio.get_running_loop().create_future()
"""
SPINS = """
async def work():
    ready()
    while True:
        sum(range(100))
"""
SPINS_IN_A_CHILD = """
async def spin():
    ready()
    while True:
        sum(range(100))

async def work():
    await asyncio.gather(spin(), asyncio.sleep(1000))
"""
SPINS_WITHOUT_BLOCKING = """
async def work():
    ready()
    while True:
        await asyncio.sleep(0)
"""
SWALLOWS = """
async def work():
    ready()
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass
"""
SWALLOWS_AND_SPINS = """
async def work():
    ready()
    while True:
        try:
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
"""
IN_A_THREAD = """
def block():
    ready()
    time.sleep(1000)

async def use(aio):
    await aio.call(asyncio.to_thread, block)
"""
BLOCKS_IN_C = """
async def work():
    ready()
    time.sleep(1000)
"""
IN_A_CALLBACK = """
def spin():
    ready()
    while True:
        sum(range(100))

async def work():
    asyncio.get_running_loop().call_soon(spin)
    await asyncio.sleep(1000)
"""
BLOCKS_TWICE = """
def spin():
    print("ready", flush=True)
    while True:
        sum(range(100))

async def work():
    loop = asyncio.get_running_loop()
    loop.call_soon(spin)
    loop.call_soon(spin)
    await asyncio.sleep(1000)
"""
SWALLOWS_EVERYTHING = """
kept = []

async def refuse():
    while True:
        try:
            await asyncio.sleep(1000)
        except BaseException:
            pass

async def work():
    kept.append(asyncio.create_task(refuse()))
    await asyncio.sleep(0)
    ready()
    await refuse()
"""
STARTS_WHAT_REFUSES = """
kept = []

async def refuse():
    while True:
        try:
            await asyncio.sleep(1000)
        except asyncio.CancelledError:
            pass

async def work():
    ready()
    while True:
        try:
            await asyncio.sleep(0)
            kept.append(asyncio.create_task(refuse()))
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
"""
OPENS_WHAT_REFUSES = """
kept = []

async def generate():
    while True:
        try:
            yield
        except BaseException:
            while True:
                try:
                    await asyncio.sleep(1000)
                except asyncio.CancelledError:
                    pass

async def work():
    ready()
    while True:
        try:
            await asyncio.sleep(0)
            kept.append(generate())
            await anext(kept[-1])
        except asyncio.CancelledError:
            pass
"""
SUBMITS = """
async def work():
    ready()
    while True:
        try:
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 0)
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            pass
"""
SWALLOWS_BY_TIMEOUTS = """
async def work():
    ready()
    while True:
        try:
            async with asyncio.timeout(1000):
                await asyncio.sleep(1000)
        except BaseException:
            pass
"""
SWALLOWS_IN_A_GROUP = """
async def work():
    ready()
    async with asyncio.TaskGroup():
        while True:
            try:
                await asyncio.sleep(1000)
            except asyncio.CancelledError:
                pass
"""
INTERRUPTED = {
    name: CALL + globals()[name]
    for name in (
        "IN_FLIGHT",
        "SPINS",
        "SPINS_IN_A_CHILD",
        "SPINS_WITHOUT_BLOCKING",
        "SWALLOWS",
        "SWALLOWS_AND_SPINS",
        "IN_A_THREAD",
        "BLOCKS_IN_C",
        "IN_A_CALLBACK",
        "BLOCKS_TWICE",
        "SWALLOWS_EVERYTHING",
        "SWALLOWS_BY_TIMEOUTS",
        "SWALLOWS_IN_A_GROUP",
        "STARTS_WHAT_REFUSES",
        "OPENS_WHAT_REFUSES",
        "SUBMITS",
    )
}


def begin(body: str, host: str) -> subprocess.Popen[str]:
    script = FRAME.format(body=textwrap.dedent(body), thread=host == "thread")
    paths = os.pathsep.join(filter(None, (os.fspath(ROOT), os.environ.get("PYTHONPATH"))))
    return subprocess.Popen(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": paths},
    )


def end(program: subprocess.Popen[str]) -> tuple[str, str]:
    try:
        return program.communicate(timeout=BOUND)
    except subprocess.TimeoutExpired:
        program.kill()
        out, err = program.communicate()
        pytest.fail(f"it hung: {out}{err}")


@pytest.mark.parametrize("body", INTERRUPTED.values(), ids=INTERRUPTED)
def test_an_interrupt_ends_the_program(host: str, body: str) -> None:
    with begin(body, host) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        out, err = end(program)
    assert "went on" not in out
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert program.returncode in (1, -signal.SIGINT)
    # As itself, not in a group: `except KeyboardInterrupt` finds it.
    assert "ExceptionGroup" not in err


@pytest.mark.parametrize(
    "work",
    ["raise SystemExit(7)", "create_task(fail())", "call_soon(leave)", "gather(fail(), wait())"],
)
def test_an_exit_in_asyncio_code_ends_the_program(host: str, work: str) -> None:
    ways = {
        "raise SystemExit(7)": "raise SystemExit(7)",
        "create_task(fail())": "kept.append(asyncio.create_task(fail())); await wait()",
        "call_soon(leave)": "asyncio.get_running_loop().call_soon(leave); await wait()",
        "gather(fail(), wait())": "await asyncio.gather(fail(), wait())",
    }
    body = f"""
    kept = []

    def leave():
        raise SystemExit(7)

    async def fail():
        await asyncio.sleep(0)
        leave()

    async def wait():
        await asyncio.get_running_loop().create_future()

    async def work():
        {ways[work]}

    async def use(aio):
        with trio.move_on_after(20):
            await aio.call(work)
    """
    with begin(body, host) as program:
        out, err = end(program)
    assert (program.returncode, out, err) == (7, "", "")


BETWEEN_STEPS = """
def interrupt():
    raise KeyboardInterrupt

async def spin(pause):
    while True:
        await asyncio.sleep(pause)

async def work():
    spinning = [asyncio.ensure_future(spin(pause)) for pause in (0, 1e-9)]
    await asyncio.sleep(0.1)
    asyncio.get_running_loop().call_soon(interrupt)
    await asyncio.gather(*spinning)
"""


IN_A_CALLBACK_OF_A_GROUP = """
def interrupt():
    time.sleep(0.1)
    raise KeyboardInterrupt

async def wait():
    async with asyncio.TaskGroup():
        await asyncio.sleep(1000)

async def work():
    loop = asyncio.get_running_loop()
    waiting = loop.create_task(wait())
    loop.call_later(0.05, interrupt)
    loop.call_later(0.06, print, "a timer ran when the loop had ended")
    threading.Timer(
        0.1, loop.call_soon_threadsafe, [print, "a thread's function ran when the loop had ended"]
    ).start()
    await waiting
"""


@pytest.mark.parametrize("body", [BETWEEN_STEPS, IN_A_CALLBACK_OF_A_GROUP], ids=["steps", "group"])
def test_an_interrupt_between_the_steps_of_tasks_ends_the_program(body: str, host: str) -> None:
    with begin(CALL + body, host) as program:
        out, err = end(program)
    assert out == ""
    assert err.rstrip().endswith("KeyboardInterrupt")
    assert "ExceptionGroup" not in err


@pytest.mark.parametrize(
    "body",
    [
        "SWALLOWS",
        "SWALLOWS_AND_SPINS",
        "SWALLOWS_EVERYTHING",
        "SWALLOWS_BY_TIMEOUTS",
        "SWALLOWS_IN_A_GROUP",
        "STARTS_WHAT_REFUSES",
        "OPENS_WHAT_REFUSES",
        "SUBMITS",
        "IN_A_THREAD",
    ],
)
def test_a_program_ends_though_asyncio_code_does_not(host: str, body: str) -> None:
    given_up = INTERRUPTED[body].replace(
        "await aio.call", "with trio.move_on_after(0.2): await aio.call"
    )
    with begin(given_up, host) as program:
        out, err = end(program)
    assert out == "ready\nwent on\n"
    assert program.returncode == 0
    assert "Traceback" not in err
    assert " never " not in err
    assert "RuntimeWarning" not in err


OUTLIVES_THE_INTERRUPT = """
async def work():
    # Once nothing runs: then it comes to whoever waits, and not into asyncio code.
    threading.Timer(0.1, ready).start()
    try:
        await asyncio.get_running_loop().create_future()
    finally:
        print("ended", flush=True)
        {at_last}

async def use(aio):
    try:
        await aio.call(work)
    except KeyboardInterrupt:
        statistics = aio.statistics()
        print(statistics.tasks, statistics.calls, statistics.abandoned)
"""


@pytest.mark.parametrize("at_last", ["pass", "raise ValueError"])
def test_an_interrupted_call_is_ended_where_the_program_goes_on(host: str, at_last: str) -> None:
    with begin(OUTLIVES_THE_INTERRUPT.format(at_last=at_last), host) as program:
        assert program.stdout is not None
        assert program.stdout.readline() == "ready\n"
        program.send_signal(signal.SIGINT)
        out, err = end(program)
    assert out == "ended\n0 0 0\nwent on\n"
    assert (program.returncode, err) == (0, "")
