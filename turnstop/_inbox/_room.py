"""One room: its task, its state, and what a control does to both."""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, final

import attrs
import trio

from .._receipt import StopReceipt, ask_all
from .._records import StopRequest, StopVerdict
from .._rooms import Rooms
from ._delivery import Delivery, Fate
from ._feed import Claim, Control, ControlKind, Feed, Message

__all__ = ["Keeper", "Room", "Rules"]

logger = logging.getLogger("turnstop.serve_rooms")


@attrs.frozen
class Rules:
    """How rooms are served. Seconds on Trio's clock.

    Attributes:
        handle: what a message is given to.
        hydrate: called before it, for what a handler has to know.
        within: what a handler may take.
        probe_every: until a room asks the feed of itself; up to twice that while nothing is found,
            and never more while it is paused.
        retire_after: until a room without work is retired; None: never.
        finish_within: what the feed may take to be told the fate of a message that the end of the
            inbox has cut short.
    """

    handle: Callable[[Delivery], Awaitable[object]]
    hydrate: Callable[[Delivery], Awaitable[object]] | None
    within: float
    probe_every: float
    retire_after: float | None
    finish_within: float


class Keeper(Protocol):
    """What a room needs of the inbox that it is in."""

    rooms: Rooms[Any]
    feed: Feed
    rules: Rules
    limiter: trio.CapacityLimiter

    async def tell(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Call a method of the feed until it does not raise."""

    async def retire(self, room: Room) -> bool:
        """Retire it; False where a message has come meanwhile."""
        ...


@final
@attrs.define(eq=False, repr=False)
class Room:
    """A room that messages come to.

    Attributes:
        paused: a STOP came, and no PLAY since.
        delivery: what is being handled.
        synthetic: what was made here, and waits.
    """

    name: str
    keeper: Keeper
    paused: bool = False
    delivery: Delivery | None = None
    synthetic: deque[Message] = attrs.field(factory=deque)
    _nudged: bool = True
    _revision: int = 0
    _wake: trio.Event = attrs.field(factory=trio.Event)
    _interval: float = 0.0
    _due: float = 0.0
    _worked_at: float = attrs.field(factory=trio.current_time)

    def __attrs_post_init__(self) -> None:
        self._reset()

    def __repr__(self) -> str:
        state = "paused" if self.paused else "open"
        return f"<Room {self.name!r}: {state}, {self.delivery}>"

    # What comes from outside, each in one step.

    def nudge(self) -> None:
        """There may be a message."""
        self._nudged = True
        self._wake.set()

    def control(self, control: Control) -> StopReceipt | None:
        """Apply a control; None where it names a turn that is not the one."""
        delivery = self.delivery
        if control.turn_id is not None and (
            delivery is None or control.turn_id not in delivery.turn_ids
        ):
            return None
        # What the feed is being asked just now, it is asked for a room in another state.
        self._revision += 1
        self._reset()
        if control.kind is ControlKind.PLAY:
            self.paused = False
            self.nudge()
            return ask_all((), StopRequest("stop"), StopVerdict.NOTHING)
        if control.kind is ControlKind.STOP:
            self.paused = True
        if delivery is not None:
            delivery.mark(control.kind)
        return self.keeper.rooms.stop(self.name, reason=control.reason, source=control.source)

    @property
    def is_idle(self) -> bool:
        """There is nothing to do, as far as is known."""
        return not (self._nudged or self.synthetic or self.delivery)

    # Its task.

    async def run(self) -> None:
        """Handle what there is and wait for more, until the room is retired.

        **Cancellation:** what is being handled is released.
        """
        while True:
            message = await self._choose()
            if message is not None and await self._deliver(message):
                self._nudged = True
                self._worked_at = trio.current_time()
                self._reset()
            elif not await self._rest():
                return

    def _reset(self) -> None:
        self._interval = self.keeper.rules.probe_every
        self._due = trio.current_time() + self._interval

    async def _choose(self) -> Message | None:
        if not self.paused and self.synthetic:
            return self.synthetic[0]
        if (self.paused or not self._nudged) and trio.current_time() < self._due:
            return None
        self._nudged, revision = False, self._revision
        message: Message | None = await self.keeper.tell(self.keeper.feed.next, self.name)
        if revision != self._revision:
            self._nudged = True
            return None
        self._due = trio.current_time() + self._interval
        if message is None and not self.paused:
            self._interval = min(2 * self._interval, 2 * self.keeper.rules.probe_every)
        elif message is not None and self.paused:
            logger.info("room %r goes on: it was resumed, and no PLAY has come here", self.name)
            self.paused = False
        return message

    async def _rest(self) -> bool:
        """Wait for something to do; False where the room was retired instead."""
        if not self.paused and (self._nudged or self.synthetic):
            await trio.lowlevel.checkpoint()
            return True
        self._wake = trio.Event()
        retire_at = self._worked_at + (self.keeper.rules.retire_after or math.inf)
        with trio.CancelScope(deadline=min(self._due, math.inf if self.paused else retire_at)):
            await self._wake.wait()
        if self.paused or not self.is_idle or trio.current_time() < retire_at:
            return True
        return not await self.keeper.retire(self)

    async def _deliver(self, message: Message) -> bool:
        """Have a message handled; False where that cannot be, for now."""
        delivery = self.delivery = Delivery(message, self.keeper.rooms)
        fate, reason = Fate.LEFT, ""
        try:
            try:
                claim = await self._claim(message)
                if claim is not Claim.MINE:
                    self.paused = self.paused or claim is Claim.PAUSED
                    return False
                fate, reason = await delivery.run(self._handle, self.keeper.rules.within)
            except BaseException:
                await self._tell_at_last(message, fate, reason)
                raise
            await self._tell(message, fate, reason)
            return True
        finally:
            self.delivery = None

    async def _claim(self, message: Message) -> Claim:
        if message.synthetic:
            return Claim.MINE
        claim: Claim = await self.keeper.tell(self.keeper.feed.claim, message)
        return claim

    async def _handle(self, delivery: Delivery) -> None:
        async with self.keeper.limiter:
            if self.keeper.rules.hydrate is not None:
                await self.keeper.rules.hydrate(delivery)
            await self.keeper.rules.handle(delivery)

    async def _tell(self, message: Message, fate: Fate, reason: str) -> None:
        if message.synthetic:
            if fate is not Fate.LEFT:
                self.synthetic.popleft()
            return
        fn, *more = self._word_for(fate, reason)
        try:
            await self.keeper.tell(fn, message, *more)
        except trio.Cancelled:
            await self._tell_at_last(message, fate, reason)
            raise

    async def _tell_at_last(self, message: Message, fate: Fate, reason: str) -> None:
        """Once, bounded, on the way out: what the feed is not told, it finds as after a crash."""
        if message.synthetic:
            return
        fn, *more = self._word_for(fate, reason)
        with trio.move_on_after(self.keeper.rules.finish_within, shield=True):
            try:
                await fn(message, *more)
            except Exception:
                logger.warning("the feed was not told that %s is %s", message.id, fate.value)

    def _word_for(self, fate: Fate, reason: str) -> tuple[Any, ...]:
        feed = self.keeper.feed
        if fate is Fate.LEFT:
            return (feed.release,)
        return (feed.fail, reason) if fate is Fate.FAILED else (feed.acknowledge,)
