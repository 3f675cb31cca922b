"""What `serve_rooms` relies on in a feed, promise by promise: for whoever writes one.

from turnstop.testing.feeds import check_feed

async def test_my_feed():
    await check_feed(open_my_feed)
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, NoReturn, TypeAlias

import attrs
import trio

from .._inbox import Control, ControlKind, Delivery, Message, serve_rooms
from .._rooms import open_rooms
from ..adapters.local import Work, open_local
from ..feeds import Claim, IdTaken, Standing
from ._factory import describe
from ._stage import Broken

__all__ = ["PROMISES", "FeedPromise", "MakeFeed", "check_feed"]

MakeFeed: TypeAlias = Callable[..., AbstractAsyncContextManager[Any]]
"""Opens a fresh feed. It is called with `attempts=2`: how often a message is handled."""
WITHIN = 20.0

_WAITING, _PAUSED, _LEFT = Standing(False, True), Standing(True, False), Standing(True, True)


@attrs.frozen
class FeedPromise:
    """One promise.

    Attributes:
        name: the function's name.
        says: the promise in words.
    """

    name: str
    says: str
    _play: Callable[[Any], Awaitable[None]] = attrs.field(repr=False)

    async def check(self, make_feed: MakeFeed) -> None:
        """Check it on a fresh feed.

        Raises:
            Broken: it is not kept.

        **Cancellation:** closes the feed.
        """
        try:
            async with make_feed(attempts=2) as feed:
                with trio.fail_after(WITHIN):
                    await self._play(feed)
        except Exception as error:
            text = str(error) if isinstance(error, Broken) else describe(error)
            raise Broken(f"{self.name}: {self.says}: {text}") from error


PROMISES: dict[str, FeedPromise] = {}
"""Every promise by its name, in the order in which they are checked."""


async def check_feed(make_feed: MakeFeed, *, only: Iterable[str] = ()) -> None:
    """Check every promise that `serve_rooms` relies on, each on a fresh feed.

    Args:
        make_feed: is called with `attempts=2`, how often a message is handled before its failing is
            final, and gives an async context manager. What that yields has, besides what
            `turnstop.feeds.Feed` has, `post(room, content, *, id)` and `control(control)`, which
            may be coroutines; each as `turnstop.feeds.MemoryFeed` has it.
        only: names of promises; all of them by default.

    Raises:
        Broken: a promise is not kept; the text says which, and what was seen instead.
        KeyError: there is no such promise.

    **Cancellation:** closes the feed.
    """
    for name in only or PROMISES:
        await PROMISES[name].check(make_feed)


def _promise(play: Callable[[Any], Awaitable[None]]) -> Callable[[Any], Awaitable[None]]:
    name = play.__name__.removeprefix("_")
    says = (inspect.getdoc(play) or name).rstrip(".")
    PROMISES[name] = FeedPromise(name, says, play)
    return play


def _same(found: object, meant: object) -> None:
    # No assert: it has to hold where Python leaves those out.
    if found != meant:
        raise Broken(f"{found!r} where {meant!r} was meant")


async def _done(found: Any) -> Any:
    return await found if inspect.isawaitable(found) else found


async def _post(feed: Any, room: str, *ids: str) -> list[Any]:
    return [await _done(feed.post(room, {"work": name}, id=name)) for name in ids]


async def _press(feed: Any, kind: ControlKind, room: str | None, **more: Any) -> Control:
    control = Control(kind, room, **more)
    await _done(feed.control(control))
    return control


async def _received(feed: Any, count: int) -> list[Any]:
    return [await feed.receive() for _ in range(count)]


async def _hears_nothing(feed: Any) -> None:
    with trio.move_on_after(0.05):
        _same(await feed.receive(), "nothing")


@_promise
async def _what_is_posted_is_received_in_order(feed: Any) -> None:
    """Messages and controls are received in the order in which they were posted."""
    one, two = await _post(feed, "a", "1", "2")
    more: dict[str, Any] = {"turn_id": "t", "id": "i", "reason": "r", "source": "s"}
    stop = await _press(feed, ControlKind.STOP, "a", **more)
    (three,) = await _post(feed, "b", "3")
    play = await _press(feed, ControlKind.PLAY, None)
    _same(await _received(feed, 5), [one, two, stop, three, play])
    await _hears_nothing(feed)


@_promise
async def _a_cancelled_receive_loses_nothing(feed: Any) -> None:
    """A receive that is cancelled loses nothing, and can be cancelled though there is something."""
    found: list[Any] = []

    async def listen() -> NoReturn:
        while True:
            found.append(await feed.receive())

    for number in range(12):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(listen)
            await _post(feed, "a", str(number))
            for _ in range(number):
                await trio.lowlevel.cancel_shielded_checkpoint()
            nursery.cancel_scope.cancel()
    while len(found) < 12:
        found.append(await feed.receive())
    _same([message.id for message in found], [str(number) for number in range(12)])
    one, two = await _post(feed, "a", "one", "two")
    _same(await feed.receive(), one)
    with trio.CancelScope() as scope:
        scope.cancel()
        await feed.receive()
    _same(scope.cancelled_caught, True)
    _same(await feed.receive(), two)


@_promise
async def _next_is_the_oldest_that_is_not_finished(feed: Any) -> None:
    """What a room is given next is its oldest message that is not finished."""
    one, two = await _post(feed, "a", "1", "2")
    await _post(feed, "b", "3")
    _same((await feed.next("a"), await feed.next("empty")), (one, None))
    _same(await feed.claim(one), Claim.MINE)
    _same(await feed.next("a"), one)
    await feed.acknowledge(one)
    await feed.acknowledge(one)
    _same(await feed.next("a"), two)
    _same(await feed.claim(one), Claim.FINISHED)


@_promise
async def _a_message_is_claimed_once_until_it_is_released(feed: Any) -> None:
    """A message is given to one who claims it, until it is released or the feed is served anew."""
    (one,) = await _post(feed, "a", "1")
    _same([await feed.claim(one) for _ in range(2)], [Claim.MINE, Claim.BUSY])
    await feed.release(one)
    _same(await feed.claim(one), Claim.MINE)
    _same(await feed.rooms(), {"a": _WAITING})
    _same(await feed.claim(one), Claim.MINE)


@_promise
async def _a_failed_message_is_tried_again_and_then_not(feed: Any) -> None:
    """What has failed is tried again as often as it may be, which `fail` says; told twice, once."""
    (one,) = await _post(feed, "a", "1")
    await feed.claim(one)
    _same([await feed.fail(one, "first") for _ in range(2)], [True, True])
    again = await feed.next("a")
    _same((again.id, again.attempt), ("1", 1))
    _same(await feed.claim(again), Claim.MINE)
    _same([await feed.fail(again, "second") for _ in range(2)], [False, False])
    _same(await feed.next("a"), None)
    _same(await feed.claim(again), Claim.FINISHED)


@_promise
async def _a_reason_may_be_any_text(feed: Any) -> None:
    """A message may fail, or be refused, for a reason that no file takes as it is."""
    one, two, three = await _post(feed, "a", "1", "2", "3")
    await feed.claim(one)
    for _ in range(2):
        await feed.fail(await feed.next("a"), "no file \udcff" + "\0" + "x" * 100_000)
    await feed.refuse(two, "\ud800")
    _same(await feed.next("a"), three)


@_promise
async def _what_is_refused_is_finished_unless_it_is_being_handled(feed: Any) -> None:
    """A message that is refused is finished, unless it is being handled."""
    one, two = await _post(feed, "a", "1", "2")
    await feed.claim(one)
    await feed.refuse(one, "no")
    await feed.refuse(two, "no")
    _same(await feed.claim(two), Claim.FINISHED)
    await feed.release(one)
    _same(await feed.next("a"), one)


@_promise
async def _a_stop_pauses_its_rooms_until_play(feed: Any) -> None:
    """A STOP that was applied pauses the rooms that it is told with, until a PLAY is applied."""
    (one,) = await _post(feed, "a", "1")
    (two,) = await _post(feed, "b", "2")
    stop = Control(ControlKind.STOP)
    for _ in range(2):
        await feed.applied(stop, ["a", "empty"])
    found = [await feed.next(room) for room in ("a", "b", "empty")]
    _same(found, [Claim.PAUSED, two, None])
    _same([await feed.claim(message) for message in (one, two)], [Claim.PAUSED, Claim.MINE])
    _same(await feed.rooms(), {"a": _LEFT, "empty": _PAUSED, "b": _WAITING})
    await feed.applied(Control(ControlKind.INTERRUPT), ["a"])
    _same(await feed.next("a"), Claim.PAUSED)
    await feed.applied(Control(ControlKind.PLAY), ["a"])
    _same(await feed.next("a"), one)
    _same(await feed.rooms(), {"a": _WAITING, "empty": _PAUSED, "b": _WAITING})


@_promise
async def _a_play_that_is_posted_resumes_at_once(feed: Any) -> None:
    """A PLAY that is posted resumes its rooms, though nobody has heard it."""
    for room in (None, "a"):
        await feed.applied(Control(ControlKind.STOP), ["a", "b"])
        await _press(feed, ControlKind.PLAY, room)
        _same(await feed.rooms(), {} if room is None else {"b": _PAUSED})
        await feed.receive()


@_promise
async def _a_stop_that_is_posted_is_known_before_it_is_heard(feed: Any) -> None:
    """A STOP that is posted while nobody serves has its rooms paused at the next start."""
    await _post(feed, "a", "1")
    await _post(feed, "b", "2")
    await _press(feed, ControlKind.STOP, "b")
    await _press(feed, ControlKind.STOP, "unknown")
    await _press(feed, ControlKind.STOP, "a", turn_id="one that has ended")
    _same(await feed.rooms(), {"a": _WAITING, "b": _LEFT})
    await _press(feed, ControlKind.STOP, None)
    await _press(feed, ControlKind.INTERRUPT, None)
    await _press(feed, ControlKind.PLAY, "b")
    _same(await feed.rooms(), {"a": _LEFT, "b": _WAITING})
    # What was heard is for the inbox to apply.
    await _received(feed, 8)
    _same(await feed.rooms(), {"a": _WAITING, "b": _WAITING})


@_promise
async def _an_id_that_comes_again_is_not_posted_again(feed: Any) -> None:
    """Of two messages with one id in one room the second is not posted, finished or not."""
    one, *_ = await _post(feed, "a", "1", "failed")
    _same([message.id for message in await _received(feed, 2)], ["1", "failed"])
    _same(await _post(feed, "a", "1"), [one])
    await feed.claim(one)
    _same(await _post(feed, "a", "1"), [one])
    await feed.acknowledge(one)
    _same(await _post(feed, "a", "1"), [None])
    await feed.fail(await feed.next("a"), "first")
    (again,) = await _post(feed, "a", "failed")
    _same((again, again.attempt), (await feed.next("a"), 1))
    await feed.fail(again, "second")
    _same(await _post(feed, "a", "failed"), [None])
    await _hears_nothing(feed)
    _same((await feed.next("a"), await feed.rooms()), (None, {}))


@_promise
async def _an_id_is_not_taken_for_another_message(feed: Any) -> None:
    """A message whose id is that of another which is unfinished is refused, with `IdTaken`."""
    (one,) = await _post(feed, "a", "1")
    try:
        found = await _done(feed.post("a", {"work": "another"}, id="1"))
    except IdTaken as error:
        _same((error.room, error.id), ("a", "1"))
    else:
        _same(found, IdTaken)
    _same(await feed.next("a"), one)


@_promise
async def _a_message_without_an_id_is_a_new_one(feed: Any) -> None:
    """A message that is posted without an id is a new one, whatever ids others have chosen."""
    names = [f"{letter}{number}" for letter in ("", "m") for number in range(4)]
    await _post(feed, "a", *names, "")
    _same(len(await _post(feed, "a", "")), 1)
    made = [await _done(feed.post("a", "work")) for _ in range(2)]
    ids = {*names, "", *(message.id for message in made)}
    _same(len(ids), len(names) + 3)
    _same([message.id for message in await _received(feed, 9)], [*names, ""])
    _same(await _received(feed, 2), made)
    await _hears_nothing(feed)


@_promise
async def _an_id_is_its_rooms_own(feed: Any) -> None:
    """Two rooms may have messages with one id: each is finished for itself."""
    (mine,), (other,) = await _post(feed, "a", "1"), await _post(feed, "b", "1")
    _same([await feed.claim(message) for message in (mine, other)], [Claim.MINE, Claim.MINE])
    await feed.release(other)
    _same(await feed.claim(mine), Claim.BUSY)
    await feed.acknowledge(mine)
    _same([await feed.next(room) for room in ("a", "b")], [None, other])
    _same(await feed.claim(other), Claim.MINE)
    await feed.fail(other, "why")
    (third,) = await _post(feed, "c", "1")
    await feed.refuse(third, "no")
    again = await feed.next("b")
    _same((again.room, again.attempt), ("b", 1))


@attrs.define(eq=False)
class _Noting:
    """A feed, and when the last of what is left was acknowledged."""

    feed: Any
    left: set[str]
    finished: trio.Event = attrs.field(factory=trio.Event)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.feed, name)

    async def acknowledge(self, message: Message) -> None:
        await self.feed.acknowledge(message)
        self.left.discard(message.id)
        if not self.left:
            self.finished.set()


@_promise
async def _rooms_are_served_from_it(feed: Any) -> None:
    """Rooms are served from it, stopped and played, in order, and nothing is handled twice."""
    seen: list[str] = []

    async def agent(work: Work) -> None:
        content: Any = work.content
        seen.append(content["work"])
        await trio.sleep(0.005)

    async def handle(delivery: Delivery) -> None:
        async with delivery.turn() as turn:
            async for _ in turn:
                pass

    names = [f"{room}{number}" for number in range(8) for room in "abc"]
    async with open_local(agent) as local, open_rooms(local) as rooms, trio.open_nursery() as group:
        noting = _Noting(feed, {*names})
        inbox = await group.start(partial(serve_rooms, rooms, handle, noting))
        for name in names:
            await _post(feed, name[0], name)
        await _press(feed, ControlKind.STOP, None)
        while inbox.statistics().paused < 3 or inbox.statistics().handling:  # noqa: ASYNC110
            await trio.sleep(0.01)
        before = len(seen)
        await trio.sleep(0.05)
        _same(len(seen), before)
        await _press(feed, ControlKind.PLAY, None)
        await noting.finished.wait()
        group.cancel_scope.cancel()
    _same(await feed.rooms(), {})
    for room in "abc":
        mine = [name for name in seen if name[0] == room]
        _same(list(dict.fromkeys(mine)), [name for name in names if name[0] == room])
        # Only what the stop has cut short was handled twice.
        _same(len(mine) <= 9, True)
