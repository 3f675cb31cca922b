"""Each feed keeps what `serve_rooms` relies on."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pytest

from turnstop.feeds import MemoryFeed
from turnstop.feeds.sqlite import open_sqlite_feed

from .contract import PROMISES, Make, check_feed, opened


def makers(folder: Path) -> dict[str, Make]:
    numbers = itertools.count()

    def in_a_file(**more: Any) -> Any:
        return open_sqlite_feed(folder / f"{next(numbers)}.db", poll_every=0.05, **more)

    return {"memory": lambda **more: opened(MemoryFeed(**more)), "sqlite": in_a_file}


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("feed", ["memory", "sqlite"])
async def test_keeps(feed: str, promise: str, tmp_path: Path) -> None:
    await PROMISES[promise](makers(tmp_path)[feed])


async def test_what_has_failed_is_remembered_for_a_while() -> None:
    feed = MemoryFeed()
    for number in range(10_001):
        message = feed.post("a", "work", id=str(number))
        assert message is not None
        await feed.fail(message, "why")
    assert (len(feed.failed), ("a", "0") in feed.failed) == (10_000, False)


async def test_a_feed_that_breaks_a_promise_is_found() -> None:
    async def forget(message: Any) -> None:
        pass

    def make(**more: Any) -> Any:
        feed = MemoryFeed(**more)
        feed.release = forget  # type: ignore[method-assign]
        return opened(feed)

    with pytest.raises(AssertionError):
        await check_feed(make)
