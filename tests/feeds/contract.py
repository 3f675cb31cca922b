"""What `serve_rooms` relies on in any feed. Each promise is a function of a fresh feed."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import trio

from turnstop import Control, ControlKind, Delivery, Message, open_rooms, serve_rooms
from turnstop.adapters.local import open_local
from turnstop.feeds import Claim

STOP, INTERRUPT, PLAY = ControlKind.STOP, ControlKind.INTERRUPT, ControlKind.PLAY
Make = Callable[..., AbstractAsyncContextManager[Any]]
PROMISES: dict[str, Callable[[Make], Awaitable[None]]] = {}


def promise(check: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    """Of a feed in which a message is handled twice before its failing is final."""

    async def play(make: Make) -> None:
        async with make(attempts=2) as feed:
            with trio.fail_after(20):
                await check(feed)

    PROMISES[check.__name__] = play
    return check


async def check_feed(make: Make) -> None:
    """Check every promise, each on a feed of its own."""
    for play in PROMISES.values():
        await play(make)


async def post(feed: Any, room: str, *ids: str) -> list[Message]:
    made = []
    for name in ids:
        message = feed.post(room, {"work": name}, id=name)
        made.append(await message if inspect.isawaitable(message) else message)
    return made


async def press(feed: Any, kind: ControlKind, room: str | None, **more: Any) -> Control:
    control = Control(kind, room, **more)
    done = feed.control(control)
    if inspect.isawaitable(done):
        await done
    return control


async def received(feed: Any, count: int) -> list[Any]:
    return [await feed.receive() for _ in range(count)]


@promise
async def what_is_posted_is_received_in_order(feed: Any) -> None:
    one, two = await post(feed, "a", "1", "2")
    stop = await press(feed, STOP, "a", turn_id="t", id="i", reason="r", source="s")
    (three,) = await post(feed, "b", "3")
    play = await press(feed, PLAY, None)
    assert await received(feed, 5) == [one, two, stop, three, play]
    with trio.move_on_after(0.05) as scope:
        await feed.receive()
    assert scope.cancelled_caught


@promise
async def a_cancelled_receive_loses_nothing(feed: Any) -> None:
    found: list[Any] = []

    async def listen() -> None:
        while True:
            found.append(await feed.receive())

    for number in range(12):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await post(feed, "a", str(number))
            for _ in range(number):
                await trio.lowlevel.cancel_shielded_checkpoint()
            nursery.cancel_scope.cancel()
    while len(found) < 12:
        found.append(await feed.receive())
    assert [message.id for message in found] == [str(number) for number in range(12)]
    # It can be cancelled although there is something.
    one, two = await post(feed, "a", "one", "two")
    assert await feed.receive() == one
    with trio.CancelScope() as scope:
        scope.cancel()
        await feed.receive()
    assert scope.cancelled_caught
    assert await feed.receive() == two


@promise
async def next_is_the_oldest_that_is_not_finished(feed: Any) -> None:
    one, two = await post(feed, "a", "1", "2")
    await post(feed, "b", "3")
    assert (await feed.next("a"), await feed.next("empty")) == (one, None)
    assert await feed.claim(one) is Claim.MINE
    assert await feed.next("a") == one
    await feed.acknowledge(one)
    await feed.acknowledge(one)
    assert await feed.next("a") == two
    assert await feed.claim(one) is Claim.FINISHED


@promise
async def a_message_is_claimed_once_until_it_is_released(feed: Any) -> None:
    (one,) = await post(feed, "a", "1")
    assert [await feed.claim(one) for _ in range(2)] == [Claim.MINE, Claim.BUSY]
    await feed.release(one)
    assert await feed.claim(one) is Claim.MINE
    # Whoever serves it next finds it, as after a crash.
    assert await feed.rooms() == {"a": False}
    assert await feed.claim(one) is Claim.MINE


@promise
async def a_failed_message_is_tried_again_and_then_not(feed: Any) -> None:
    (one,) = await post(feed, "a", "1")
    await feed.claim(one)
    await feed.fail(one, "first")
    # Told twice of one failure: one attempt.
    await feed.fail(one, "first")
    again = await feed.next("a")
    assert (again.id, again.attempt) == ("1", 1)
    assert await feed.claim(again) is Claim.MINE
    await feed.fail(again, "second")
    assert await feed.next("a") is None
    assert await feed.claim(again) is Claim.FINISHED


@promise
async def what_is_refused_is_finished_unless_it_is_being_handled(feed: Any) -> None:
    one, two = await post(feed, "a", "1", "2")
    await feed.claim(one)
    await feed.refuse(one, "no")
    await feed.refuse(two, "no")
    assert await feed.claim(two) is Claim.FINISHED
    await feed.release(one)
    assert await feed.next("a") == one


@promise
async def a_stop_pauses_its_rooms_until_play(feed: Any) -> None:
    (one,) = await post(feed, "a", "1")
    (two,) = await post(feed, "b", "2")
    stop = Control(STOP)
    for _ in range(2):
        await feed.applied(stop, ["a", "empty"])
    assert [await feed.next(room) for room in ("a", "b")] == [None, two]
    assert [await feed.claim(message) for message in (one, two)] == [Claim.PAUSED, Claim.MINE]
    assert await feed.rooms() == {"a": True, "empty": True, "b": False}
    await feed.applied(Control(INTERRUPT), ["a"])
    assert await feed.next("a") is None
    await feed.applied(Control(PLAY), ["a"])
    assert await feed.next("a") == one
    assert await feed.rooms() == {"a": False, "empty": True, "b": False}


@promise
async def a_play_that_is_posted_resumes_at_once(feed: Any) -> None:
    for room in (None, "a"):
        await feed.applied(Control(STOP), ["a", "b"])
        await press(feed, PLAY, room)
        assert await feed.rooms() == ({} if room is None else {"b": True})


@promise
async def a_message_that_waits_is_not_posted_again(feed: Any) -> None:
    (one,) = await post(feed, "a", "1")
    await post(feed, "a", "1")
    await feed.claim(one)
    await feed.acknowledge(one)
    assert await feed.next("a") is None


@promise
async def rooms_are_served_from_it(feed: Any) -> None:
    seen: list[str] = []

    async def agent(work: Any) -> None:
        seen.append(work.content["work"])
        await trio.sleep(0.005)

    async def handle(delivery: Delivery) -> None:
        async with delivery.turn() as turn:
            async for _ in turn:
                pass

    names = [f"{room}{number}" for number in range(8) for room in "abc"]
    async with open_local(agent) as local, open_rooms(local) as rooms, trio.open_nursery() as group:
        inbox = await group.start(partial(serve_rooms, rooms, handle, feed))
        for name in names:
            await post(feed, name[0], name)
        await press(feed, STOP, None)
        await trio.sleep(0.1)
        assert inbox.statistics().paused == 3
        before = len(seen)
        await trio.sleep(0.05)
        assert len(seen) == before < 24
        await press(feed, PLAY, None)
        while await feed.rooms():  # noqa: ASYNC110
            await trio.sleep(0.02)
        group.cancel_scope.cancel()
    for room in "abc":
        mine = [name for name in names if name[0] == room]
        assert list(dict.fromkeys(name for name in seen if name[0] == room)) == mine
    # Only what the stop has cut short was handled twice.
    assert len(seen) <= len(names) + 3


@asynccontextmanager
async def opened(feed: Any) -> AsyncGenerator[Any, None]:
    yield feed
