"""A wait with an end."""

import trio
from trio.testing import MockClock

from turnstop.transports.pace import wait_at_most


async def test_it_ends_with_the_sign_or_with_the_time(autojump_clock: MockClock) -> None:
    event = trio.Event()
    begin = trio.current_time()
    assert not await wait_at_most(event, 2.0)
    assert trio.current_time() == begin + 2.0
    async with trio.open_nursery() as nursery:

        async def later() -> None:
            await trio.sleep(1.0)
            event.set()

        nursery.start_soon(later)
        assert await wait_at_most(event, 2.0)
    assert trio.current_time() == begin + 3.0
