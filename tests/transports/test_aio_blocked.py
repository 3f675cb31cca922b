"""What blocks the loop can be found: by asyncio's own debugging, as the page says."""

from __future__ import annotations

import asyncio

import pytest

from turnstop.transports.aio import open_aio


class Job:
    async def run(self) -> None:
        await asyncio.sleep(0)  # The first step may be taken within the call.


async def debug() -> None:
    loop = asyncio.get_running_loop()
    loop.set_debug(True)
    loop.slow_callback_duration = 0.0


async def test_asyncios_debugging_names_the_function_whose_step_is_slow(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with open_aio(thread=True) as aio:
        await aio.call(debug)
        await aio.call(Job().run)
    slow = [line for line in caplog.messages if "Job.run() " in line]
    assert any(line.startswith("Executing <Task ") and " took " in line for line in slow), slow
