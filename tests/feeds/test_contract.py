"""Each feed keeps what `serve_rooms` relies on, and one that does not is found."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import trio

import turnstop.testing.feeds
from turnstop import Message
from turnstop.feeds import Claim, MemoryFeed
from turnstop.feeds.sqlite import open_sqlite_feed
from turnstop.testing import Broken
from turnstop.testing.feeds import PROMISES, MakeFeed, check_feed

from .posting import opened


def makers(folder: Path) -> dict[str, MakeFeed]:
    numbers = itertools.count()

    def in_a_file(**more: Any) -> Any:
        return open_sqlite_feed(folder / f"{next(numbers)}.db", poll_every=0.05, **more)

    return {"memory": lambda **more: opened(MemoryFeed(**more)), "sqlite": in_a_file}


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("feed", ["memory", "sqlite"])
async def test_keeps(feed: str, promise: str, tmp_path: Path) -> None:
    await check_feed(makers(tmp_path)[feed], only=[promise])


Wrong = Callable[[MemoryFeed, Any], Any]
WRONG: dict[str, tuple[str, Wrong]] = {}


def wrong(name: str) -> Callable[[Wrong], Wrong]:
    """What is in the place of a method, and breaks the promise that it is named for."""

    def register(make: Wrong) -> Wrong:
        WRONG[make.__name__] = (name, make)
        return make

    return register


@wrong("receive")
def what_is_posted_is_received_in_order(feed: MemoryFeed, call: Any) -> Any:
    async def receive() -> Any:
        first, second = await call(), await call()
        feed._send.send_nowait(first)
        return second

    return receive


@wrong("receive")
def a_cancelled_receive_loses_nothing(feed: MemoryFeed, call: Any) -> Any:
    async def receive() -> Any:
        found = await call()
        await trio.lowlevel.checkpoint()
        return found

    return receive


@wrong("next")
def next_is_the_oldest_that_is_not_finished(feed: MemoryFeed, call: Any) -> Any:
    async def newest(room: str) -> Any:
        return (feed.unfinished(room) or (None,))[-1]

    return newest


@wrong("claim")
def a_message_is_claimed_once_until_it_is_released(feed: MemoryFeed, call: Any) -> Any:
    async def again(message: Message) -> Claim:
        found = await call(message)
        return Claim.MINE if found is Claim.BUSY else found

    return again


@wrong("fail")
def a_failed_message_is_tried_again_and_then_not(feed: MemoryFeed, call: Any) -> Any:
    async def twice(message: Message, reason: str) -> bool:
        return all([await call(kept, reason) for kept in feed.unfinished(message.room)])

    return twice


@wrong("fail")
def a_reason_may_be_any_text(feed: MemoryFeed, call: Any) -> Any:
    async def encode(message: Message, reason: str) -> Any:
        reason.encode()
        return await call(message, reason)

    return encode


@wrong("refuse")
def what_is_refused_is_finished_unless_it_is_being_handled(feed: MemoryFeed, call: Any) -> Any:
    async def finish(message: Message, reason: str) -> None:
        await feed.acknowledge(message)

    return finish


@wrong("applied")
def a_stop_pauses_its_rooms_until_play(feed: MemoryFeed, call: Any) -> Any:
    async def nothing(*told: Any) -> None:
        await trio.lowlevel.checkpoint()

    return nothing


@wrong("control")
def a_play_that_is_posted_resumes_at_once(feed: MemoryFeed, call: Any) -> Any:
    return feed._send.send_nowait


@wrong("control")
def a_stop_that_is_posted_is_known_before_it_is_heard(feed: MemoryFeed, call: Any) -> Any:
    def forget(control: Any) -> None:
        call(control)
        feed._unheard.clear()

    return forget


@wrong("post")
def an_id_that_comes_again_is_not_posted_again(feed: MemoryFeed, call: Any) -> Any:
    def forget(room: str, content: Any, *, id: str) -> Any:
        feed._finished.clear()
        return call(room, content, id=id)

    return forget


@wrong("post")
def an_id_is_not_taken_for_another_message(feed: MemoryFeed, call: Any) -> Any:
    def take(room: str, content: Any, *, id: str) -> Any:
        kept = feed._find(room, id)
        return call(room, content if kept is None else kept.message.content, id=id)

    return take


@wrong("_new_id")
def a_message_without_an_id_is_a_new_one(feed: MemoryFeed, call: Any) -> Any:
    return lambda room: f"m{next(feed._numbers)}"


@wrong("_find")
def an_id_is_its_rooms_own(feed: MemoryFeed, call: Any) -> Any:
    return lambda room, id: next((one for one in feed._kept() if one.message.id == id), None)


@wrong("next")
def rooms_are_served_from_it(feed: MemoryFeed, call: Any) -> Any:
    gone = False

    async def lose(room: str) -> Any:
        nonlocal gone
        found = await call(room)
        if isinstance(found, Message) and found.id == "b3" and not gone:
            gone = True
            await feed.acknowledge(found)
            found = await call(room)
        return found

    return lose


@pytest.mark.parametrize("promise", PROMISES)
async def test_a_feed_that_does_not_keep_it_is_found(
    promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(turnstop.testing.feeds, "WITHIN", 1.0)
    name, make = WRONG[promise]

    def make_feed(**more: Any) -> Any:
        feed: Any = MemoryFeed(**more)
        setattr(feed, name, make(feed, getattr(feed, name)))
        return opened(feed)

    with pytest.raises(Broken, match=f"^{promise}: "):
        await check_feed(make_feed)


async def test_what_has_finished_is_remembered_for_a_while() -> None:
    feed = MemoryFeed()
    for number in range(10_001):
        message = feed.post("a", "work", id=str(number))
        assert message is not None
        await feed.fail(message, "why")
    assert (len(feed.failed), ("a", "0") in feed.failed) == (10_000, False)
    assert feed.post("a", "work", id="0") is not None
    assert feed.post("a", "work", id="1") is None
