"""One room: its task, its state, and what a control does to both."""

from __future__ import annotations

import logging
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Protocol, final

import attrs
import trio

from .._receipt import StopReceipt, ask_all
from .._records import StopRequest, StopVerdict
from .._rooms import Rooms
from ._alarm import Alarm
from ._delivery import Delivery, Fate
from ._feed import Claim, Control, ControlKind, Feed, Message
from ._lane import Lane
from ._telling import Telling

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
    telling: Telling
    lane: Lane
    alarm: Alarm

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
        empty: the feed has said that there is no message, and nothing has come since.
        rings_at: when the inbox's alarm is going to wake it.
    """

    name: str
    keeper: Keeper
    paused: bool = False
    delivery: Delivery | None = None
    synthetic: deque[Message] = attrs.field(factory=deque)
    empty: bool = False
    _nudged: bool = True
    _revision: int = 0
    _plays: int = 0
    _skipped: str | None = None
    _unsure: bool = False
    rings_at: float = math.inf
    _sleeping: trio.lowlevel.Task | None = None
    _interval: float = 0.0
    _due: float = 0.0
    _retire_at: float = math.inf

    def __attrs_post_init__(self) -> None:
        self._reset()
        # Rooms that begin together do not probe together.
        self._due = trio.current_time() + self._interval * random.random()
        self._note_work()

    def __repr__(self) -> str:
        state = "paused" if self.paused else "open"
        return f"<Room {self.name!r}: {state}, {self.delivery}>"

    # What comes from outside, each in one step.

    def nudge(self) -> None:
        """There may be a message."""
        self.empty = False
        self._look()

    def _look(self) -> None:
        self._nudged = True
        self.wake()

    def wake(self) -> None:
        """Have it see what there is to do."""
        if self._sleeping is not None:
            trio.lowlevel.reschedule(self._sleeping)
            self._sleeping = None

    def drop(self) -> None:
        """Have it retired as soon as it has nothing to do."""
        self._retire_at = -math.inf
        self.wake()

    def note_told(self, control: Control) -> None:
        """The feed knows of this control."""
        if control.kind is ControlKind.PLAY:
            # Before it was told, it took the room for paused.
            self._look()
        self.wake()

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
        # Nor do rooms that are stopped together probe together.
        self._due -= self._interval * random.random() / 2
        if control.kind is ControlKind.PLAY:
            self.paused = False
            self._plays += 1
            self._look()
            return ask_all((), StopRequest("stop"), StopVerdict.NOTHING)
        if control.kind is ControlKind.STOP:
            self.paused = True
        # First the turn, whose backend is told before its body is cancelled; then the handler.
        receipt = self.keeper.rooms.stop(self.name, reason=control.reason, source=control.source)
        if delivery is not None:
            delivery.mark(control, receipt.turn_ids)
        return receipt

    @property
    def is_idle(self) -> bool:
        """There is nothing to do, as far as is known; it may be paused."""
        return self.empty and not (self.synthetic or self.delivery or self._is_untold)

    @property
    def _is_untold(self) -> bool:
        return self.keeper.lane.owes(self.name)

    # Its task.

    async def run(self) -> None:
        """Handle what there is and wait for more, until the room is retired.

        **Cancellation:** what is being handled is released.
        """
        while True:
            message = await self._choose()
            if message is not None and await self._deliver(message):
                self._nudged = True
                self._note_work()
                self._hurry()
            elif not await self._rest():
                return

    def _note_work(self) -> None:
        retire_after = self.keeper.rules.retire_after
        self._retire_at = math.inf if retire_after is None else trio.current_time() + retire_after

    def _reset(self) -> None:
        self._interval = self.keeper.rules.probe_every
        self._due = trio.current_time() + self._interval

    def _hurry(self) -> None:
        """Probe as often as at first, and not later than that."""
        due = self._due
        self._reset()
        self._due = min(due, self._due)

    async def _choose(self) -> Message | None:
        if not self.paused and self.synthetic:
            return self.synthetic[0]
        has_news = self._unsure if self.paused else self._nudged
        if not has_news and trio.current_time() < self._due:
            return None
        if self.paused and self._is_untold:
            # The feed, which does not know that the room is paused, would seem to resume it.
            self._reset()
            return None
        found = await self._ask()
        if trio.current_time() >= self._due:
            self._due = trio.current_time() + self._interval
        if found is None and not self.paused:
            self._interval = min(2 * self._interval, 2 * self.keeper.rules.probe_every)
        elif found is not None and self.paused:
            logger.info("room %r goes on: it was resumed, and no PLAY has come here", self.name)
            self.paused = False
        return found

    async def _ask(self) -> Message | None:
        """What the feed has for it; None where a control has come meanwhile."""
        self._nudged = self._unsure = False
        revision, is_resumed = self._revision, self._is_resumed
        found = await self.keeper.telling.tell(
            self.keeper.feed.next, self.name, otherwise=Claim.BUSY
        )
        if found is not None:
            self.empty = False
        elif not self._nudged:
            self.empty = True
        if revision != self._revision:
            self._nudged = self._unsure = True
            return None
        if found is Claim.PAUSED:
            self._note_paused(is_resumed)
        return None if isinstance(found, Claim) else found

    @property
    def _is_resumed(self) -> bool:
        """The feed may take it for paused, and does not know of the PLAY behind that."""
        return self.keeper.lane.owes_play(self.name)

    def _note_paused(self, is_resumed: bool) -> None:
        """The feed has said so; not where, when it was asked, it did not know of a PLAY."""
        if not (is_resumed or self.paused):
            self.paused = True
            self._reset()

    async def _rest(self) -> bool:
        """Wait for something to do; False where the room was retired instead."""
        if not self.paused and (self._nudged or self.synthetic):
            await trio.lowlevel.checkpoint()
            return True
        retire_at = self._retire_at if self.is_idle else math.inf
        self.keeper.alarm.set(self, min(self._due, retire_at))
        self._sleeping = trio.lowlevel.current_task()
        await trio.lowlevel.wait_task_rescheduled(self._abort)
        if not self.is_idle or trio.current_time() < self._retire_at:
            return True
        return not await self.keeper.retire(self)

    def _abort(self, _: object) -> trio.lowlevel.Abort:
        self._sleeping = None
        return trio.lowlevel.Abort.SUCCEEDED

    async def _deliver(self, message: Message) -> bool:
        """Have a message handled; False where that cannot be, for now."""
        keeper, reason = self.keeper, ""
        delivery = self.delivery = Delivery(message, keeper.rooms)
        try:
            try:
                if not await self._claim(delivery):
                    return False
                fate, reason = await delivery.run(self._handle, keeper.limiter, keeper.rules.within)
            except BaseException:
                fate = Fate.CONSUMED if delivery.is_interrupted else Fate.LEFT
                await self._tell_at_last(message, fate, reason)
                raise
            await self._tell(message, fate, reason)
            # Paused or not: whether there are others, which it would not ask for.
            self._unsure = fate is not Fate.LEFT
            return True
        finally:
            self.delivery = None

    async def _claim(self, delivery: Delivery) -> bool:
        message, plays = delivery.message, self._plays
        if message.synthetic:
            return True
        is_resumed = self._is_resumed
        claim = await self.keeper.telling.tell(
            self.keeper.feed.claim, message, otherwise=Claim.BUSY
        )
        if claim is Claim.FINISHED:
            # There may be a next one; but a feed that gives this one again is not asked at once.
            self._nudged = self._nudged or message.id != self._skipped
            self._skipped = message.id
        elif claim is Claim.PAUSED:
            self._note_paused(is_resumed or plays != self._plays)
        # An INTERRUPT consumes it, whatever the feed has learnt meanwhile.
        return claim is Claim.MINE or (claim is Claim.PAUSED and delivery.is_interrupted)

    async def _handle(self, delivery: Delivery) -> None:
        for step in (self.keeper.rules.hydrate, self.keeper.rules.handle):
            if step is not None:
                # A control that came in the very step before lets it not begin at all.
                await trio.lowlevel.checkpoint_if_cancelled()
                await step(delivery)

    async def _tell(self, message: Message, fate: Fate, reason: str) -> None:
        if message.synthetic:
            if fate is not Fate.LEFT:
                self.synthetic.popleft()
            return
        fn, *more = self._word_for(fate, reason)
        try:
            await self.keeper.telling.tell(fn, message, *more)
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
