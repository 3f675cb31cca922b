"""`serve_rooms`: the nursery that rooms are served in, and what controls find there."""

from __future__ import annotations

import itertools
import logging
import math
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Literal, NoReturn, final

import trio
from trio.lowlevel import enable_ki_protection

from .._errors import RoomsClosed
from .._receipt import StopReceipt, join
from .._records import OnlyMadeByUs
from .._rooms import Rooms
from .._unwrap import open_private_nursery, reraise
from ._alarm import Alarm
from ._applied import Applied, InboxStatistics
from ._delivery import Delivery
from ._feed import Control, ControlKind, Feed, Message, Standing
from ._lane import Lane
from ._room import Room, Rules
from ._telling import Telling

__all__ = ["Inbox", "serve_rooms"]

logger = logging.getLogger("turnstop.serve_rooms")

_REMEMBERED = 256
_RETIRED = 10_000


@final
class Inbox(metaclass=OnlyMadeByUs):
    """Rooms that are being served. Made by `serve_rooms`, which hands it to `nursery.start`."""

    def __init__(
        self,
        rooms: Rooms[Any],
        feed: Feed,
        rules: Rules,
        at_once: int,
        observe: Callable[[Control, Applied], object] | None,
    ) -> None:
        self.rooms = rooms
        self.feed = feed
        self.rules = rules
        self.limiter = trio.CapacityLimiter(at_once)
        self.nursery: trio.Nursery
        self._served: dict[str, Room] = {}
        self._observe = observe
        self._retired: OrderedDict[str, bool] = OrderedDict()
        self._applied: OrderedDict[Hashable, None] = OrderedDict()
        self._numbers = itertools.count(1)
        self._received: Control | None = None
        self._is_over = False
        self.alarm = Alarm()
        self.telling = Telling()
        self.lane = Lane(feed, self.telling, rules.finish_within, self._note_told)

    # What people do.

    @enable_ki_protection
    def control(self, control: Control) -> Applied:
        """Apply a control, in this step. Never waits.

        Raises:
            RuntimeError: called from another thread.
        """
        trio.lowlevel.current_trio_token()
        if control.key in self._applied:
            self._owe(control, ())
            return Applied((), repeated=True)
        receipts = self._receipts_of(control)
        if not receipts:
            logger.info("a %s has found no room: %r", control.kind.value, control.room)
        elif control.key is not None:
            # Behind it: what failed on the way is to be applied when it comes again.
            self._applied[control.key] = None
            if len(self._applied) > _REMEMBERED:
                self._applied.popitem(last=False)
        found = join(receipt for receipt in receipts.values() if receipt is not None)
        applied = Applied(tuple(receipts), False, found)
        self._owe(control, applied.rooms)
        self._show(control, applied)
        return applied

    def _receipts_of(self, control: Control) -> dict[str, StopReceipt | None]:
        """Apply it; return what it found in each room that it was applied to."""
        served, receipts = self._served, dict[str, StopReceipt | None]()
        if control.turn_id is None:
            receipts.update(dict.fromkeys(self._mark_retired(control)))
        for name in (
            [*served] if control.room is None else [control.room] * (control.room in served)
        ):
            receipt = served[name].control(control)
            if receipt is not None:
                receipts[name] = receipt
        return receipts

    def _mark_retired(self, control: Control) -> list[str]:
        """Rooms that nobody serves just now: a control is for them too.

        Whoever presses a button does not know that the room was retired. One for all opens none of
        them, for there is nothing in them to do.
        """
        retired, kind = self._retired, control.kind
        if control.room is not None:
            names = [control.room] * (control.room in retired)
        else:
            names = [] if kind is ControlKind.INTERRUPT else [*retired]
        if kind is not ControlKind.INTERRUPT:
            retired.update(dict.fromkeys(names, kind is ControlKind.STOP))
        if kind is ControlKind.PLAY and control.room is not None:
            for name in names:
                self._open(name)
            names.clear()
        return names

    def _show(self, control: Control, applied: Applied) -> None:
        if self._observe is None:
            return
        try:
            self._observe(control, applied)
        except Exception as error:
            logger.error("the observer of controls raised %s", type(error).__name__)
            logger.debug("it was", exc_info=error)

    def _owe(self, control: Control, rooms: tuple[str, ...]) -> None:
        self.lane.add(control, rooms, theirs=control is self._received)

    def _note_told(self, control: Control, rooms: Sequence[str]) -> None:
        for name in rooms:
            if name in self._served:
                self._served[name].note_told(control)

    def answer(self, room: str, ask_id: str, reply: object) -> bool:
        """Give a person's reply to a question of the room's turn; False where none waits."""
        served = self._served.get(room)
        delivery = None if served is None else served.delivery
        return delivery is not None and delivery.answer(ask_id, reply)

    def is_asking(self, room: str) -> bool:
        """Whether the room's turn waits for a person's decision."""
        return bool(self.asks(room))

    def is_paused(self, room: str) -> bool:
        """Whether a STOP has paused the room, as far as is known here."""
        served = self._served.get(room)
        return self._retired.get(room, False) if served is None else served.paused

    def asks(self, room: str) -> tuple[str, ...]:
        """The ids of the questions of the room's turn that wait for a person, the oldest first."""
        served = self._served.get(room)
        return () if served is None or served.delivery is None else served.delivery.asks

    def is_idle(self, room: str) -> bool:
        """Whether the room has nothing to do, nor waits for anything; it may be paused."""
        served = self._served.get(room)
        return served is None or served.is_idle

    def drop(self, room: str) -> None:
        """Retire the room now, if it is idle. A message that comes later opens it anew."""
        served = self._served.get(room)
        if served is not None and served.is_idle:
            served.drop()

    def nudge(self, room: str) -> None:
        """There may be a message for this room, which its feed has."""
        served = self._served.get(room)
        if served is not None:
            served.nudge()
            return
        self._open(room)

    def _open(self, name: str, *, paused: bool = False) -> None:
        """Serve a room, unless the end has come: the feed has what is for it."""
        if self._is_over:
            return
        room = self._served[name] = Room(name, self, paused or self._retired.pop(name, False))
        self.nursery.start_soon(room.run, name=f"turnstop room {name}")

    def synthesize(self, room: str, content: Any, *, id: str | None = None) -> None:
        """Have the room's agent work on something that nobody has posted.

        It goes before what the feed has, once, in the order of these calls, and is lost with the
        program. A STOP keeps it for PLAY.

        Args:
            id: of two that wait with one id, the second is dropped.
        """
        name = f"synthetic-{next(self._numbers)}" if id is None else id
        self.nudge(room)
        if self._is_over:
            return
        waiting = self._served[room].synthetic
        if all(message.id != name for message in waiting):
            waiting.append(Message(room, name, content, synthetic=True))

    def statistics(self) -> InboxStatistics:
        """A snapshot."""
        served = self._served.values()
        return InboxStatistics(
            rooms=len(served),
            paused=sum(room.paused for room in served),
            handling=sum(room.delivery is not None for room in served),
            troubles=self.telling.troubles,
        )

    # What its rooms, and `serve_rooms`, call.

    def begin(self, room: str, standing: Standing) -> None:
        """Take over a room as the feed has it."""
        if standing.waiting or not standing.paused:
            self._open(room, paused=standing.paused)
        else:
            # There is nothing to do in it, and it was stopped: as if it had been retired since.
            self._remember(room, True)

    async def listen(self, while_asking: Literal["queue", "refuse"]) -> NoReturn:
        """Take what the feed receives.

        **Cancellation:** what was received has been applied.
        """
        while True:
            item = await self.telling.insist(self.feed.receive)
            if isinstance(item, Control):
                self._received = item
                self.control(item)
            elif while_asking == "refuse" and self.is_asking(item.room):
                self.nursery.start_soon(self._refuse, item)
            else:
                self.nudge(item.room)

    async def _refuse(self, message: Message) -> None:
        await self.telling.tell(self.feed.refuse, message, "the room waits for a decision")
        # Where it was about to be handled after all, its room now waits for nothing.
        self.nudge(message.room)

    def end(self) -> None:
        """No room is opened any more."""
        self._is_over = True

    async def retire(self, room: Room) -> bool:
        """Retire a room that has nothing to do; False where a message has come meanwhile.

        **Cancellation:** see `Rooms.retire`.
        """
        try:
            await self.rooms.retire(room.name)
        except RoomsClosed:
            raise
        except Exception as error:
            name = type(error).__name__
            logger.error("room %r was not forgotten by its backend: %s", room.name, name)
            logger.debug("it was", exc_info=error)
        if not room.is_idle:
            return False
        del self._served[room.name]
        self._remember(room.name, room.paused)
        return True

    def _remember(self, name: str, paused: bool) -> None:
        self._retired[name] = paused
        if len(self._retired) > _RETIRED:
            # That one is paused, the feed knows.
            self._retired.popitem(last=False)


async def serve_rooms(
    rooms: Rooms[Any],
    handle: Callable[[Delivery], Awaitable[object]],
    feed: Feed,
    *,
    hydrate: Callable[[Delivery], Awaitable[object]] | None = None,
    at_once: int = 32,
    handle_within: float = math.inf,
    probe_every: float = 60.0,
    retire_after: float | None = None,
    finish_within: float = 2.0,
    while_asking: Literal["queue", "refuse"] = "queue",
    observe: Callable[[Control, Applied], object] | None = None,
    task_status: trio.TaskStatus[Inbox] = trio.TASK_STATUS_IGNORED,
) -> NoReturn:
    """Handle a feed's messages, one of a room at a time, and apply its controls. Never returns.

    Args:
        rooms: what `open_rooms` yields. While they are served, nobody else enters them.
        handle: is given each message. It makes `delivery.turn()` and reads it. When it returns,
            the message is acknowledged; when it raises, it has failed. A control cancels it, and
            decides instead, unless the turn that it was to stop has finished all the same.
        feed: keeps the messages.
        hydrate: is called before `handle`, for what that has to know. A control cancels it.
        at_once: how many messages are handled at the same time, over all rooms. A turn that waits
            for a person's decision is one of them.
        handle_within: seconds that a message may take, hydration included; then it has failed.
        probe_every: seconds until a room asks the feed of itself, for what it was not told: a
            paused room every time, an idle one less and less often, down to half as often. The
            first time comes sooner, so that rooms which begin or stop together do not ask together.
        retire_after: seconds without work until a room without messages is retired, paused or not:
            its session is forgotten, and its task ends; None: never. A message opens it anew. Of
            the 10,000 that were retired last it is known which are paused, and of all by the feed.
        finish_within: seconds that the feed may take, at the end, to be told of a message that was
            being handled. One that it is not told of is found again, as after a crash.
        while_asking: whether a message for a room whose turn waits for a person's decision waits
            its turn, or is refused.
        observe: is called with each control and what it has found, in the step in which it was
            applied; not with one that was applied before. What it raises is logged and dropped.
        task_status: `nursery.start` returns the `Inbox`.

    Raises:
        RoomsClosed: the rooms are closing.
        trio.ClosedResourceError, trio.EndOfChannel: the feed said so: it is at its end.
        ImportError: tenacity is not installed.

    Logs ids, counts and errors' types at `turnstop.serve_rooms`; what errors say, which may be what
    was said to the agent, at DEBUG only.

    **Cancellation:** stops what is being handled and waits for its settlement; the messages are
    released.
    """
    rules = Rules(handle, hydrate, handle_within, probe_every, retire_after, finish_within)
    inbox: Inbox = Inbox._create(rooms, feed, rules, at_once, observe)
    try:
        async with open_private_nursery() as inbox.nursery:
            for room, standing in (await inbox.telling.insist(feed.rooms)).items():
                inbox.begin(room, standing)
            inbox.nursery.start_soon(inbox.lane.run)
            inbox.nursery.start_soon(inbox.alarm.run)
            task_status.started(inbox)
            await inbox.listen(while_asking)
    except (RoomsClosed, BaseExceptionGroup) as error:
        closed = _closed_in(error)
        if closed is None:
            raise
        # At the end of everything a room may find the rooms closed before it is cancelled.
        await trio.lowlevel.checkpoint_if_cancelled()
        reraise(closed)
    finally:
        # What was pressed while the rooms unwound.
        inbox.end()
        await inbox.lane.close()


def _closed_in(error: BaseException) -> RoomsClosed | None:
    """What each room has found out for itself; None where there is something else."""
    if isinstance(error, RoomsClosed):
        return error
    if not isinstance(error, BaseExceptionGroup):
        return None
    found, rest = error.split((RoomsClosed, trio.Cancelled))
    closed = None if found is None else found.subgroup(RoomsClosed)
    return None if closed is None or rest is not None else _closed_in(closed.exceptions[0])
