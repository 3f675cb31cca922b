"""What the server knows of its rooms: the one place that messages, turns and stops pass by.

It stands between the HTTP side and the inbox. It takes messages to the feed, hears what becomes of
them (`_hearing`), reads the turns, and writes all that down in rings. Nothing here waits for
whoever listens to them. Whether a room is paused, and what its turn waits for, it asks the inbox.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, NoReturn, final

import attrs
import trio

from .._inbox import Applied, Control, Delivery, Inbox, Message, Standing
from .._records import Settlement
from ..events import Ask, Event
from ..feeds import IdTaken
from ._log import log_event
from ._ring import Record, Ring
from ._seat import Seat
from ._settings import Settings
from ._wire import RoomState, describe, fit, question_of, recovered_of, to_line

__all__ = ["Desk", "NotKept", "TooManyRooms"]

logger = logging.getLogger("turnstop.server")

_FINISHED = 10_000
_LOOK_EVERY = 0.25


class TooManyRooms(Exception):
    """There are as many rooms as there may be, and each has something to do."""


class NotKept(Exception):
    """The feed has not taken a message, for now."""


@final
@attrs.define(eq=False)
class Desk:
    """All rooms of a server.

    Attributes:
        post: puts a message into the feed; gives None where one with its id has finished.
        epoch: tells this server's event numbers from those of one before it.
        everything: the events of all rooms.
        closing: nothing more is taken.
        seats: the rooms that are known, those that were used last at the end.
    """

    settings: Settings
    post: Callable[..., Awaitable[Message | None]]
    epoch: str = attrs.field(factory=lambda: secrets.token_hex(4))
    closing: bool = False
    everything: Ring = attrs.field(init=False)
    seats: OrderedDict[str, Seat] = attrs.field(factory=OrderedDict, init=False)
    _inbox: Inbox | None = attrs.field(default=None, init=False)
    _number: int = attrs.field(default=0, init=False)
    _finished: OrderedDict[tuple[str, str], None] = attrs.field(factory=OrderedDict, init=False)
    _asked: trio.Event = attrs.field(factory=trio.Event, init=False)

    def __attrs_post_init__(self) -> None:
        self.everything = Ring(self.settings.all_events, self.settings.all_bytes)

    # What people do.

    def open(self, inbox: Inbox) -> None:
        """Take over: from now on there is somebody who handles messages."""
        self._inbox = inbox
        for seat in self.seats.values():
            self._show_paused(seat)

    async def send(self, room: str, content: str, id: str | None) -> str:
        """Take a message; return its id when it is kept.

        Raises:
            TooManyRooms: it would make one more room than there may be.
            IdTaken: a message with this id and another content is not finished.
            NotKept: the feed is in trouble.

        **Cancellation:** it is taken, or not.
        """
        assert self._inbox is not None
        if room not in self.seats:
            seat = self.seat(room, made_by_us=True)
            # A stop that comes while it is being written finds the room.
            self._inbox.nudge(room)
        else:
            seat = self.seat(room)
        message = await self._post(seat, content, id)
        if message is None:
            return str(id)
        self.note_message(message)
        # Not before it is there; and the feed may announce it much later.
        self._inbox.nudge(room)
        return message.id

    async def _post(self, seat: Seat, content: str, id: str | None) -> Message | None:
        seat.posting += 1
        try:
            return await self.post(seat.room, content, id=id)
        except IdTaken:
            raise
        except Exception as error:
            name = type(error).__name__
            logger.error("a message was not kept: %s", name)
            logger.debug("it was", exc_info=error)
            raise NotKept(name) from None
        finally:
            seat.posting -= 1

    def press(self, control: Control) -> Applied:
        """Apply a control, in this step; `note_control` tells of it."""
        assert self._inbox is not None
        return self._inbox.control(control)

    def answer(self, room: str, ask_id: str, reply: object, turn_id: str | None = None) -> bool:
        """Give a person's reply; False where nobody waits for it.

        Args:
            turn_id: only where this turn asks.
        """
        seat = self.seats[room]
        assert self._inbox is not None
        self._note_withdrawn(seat)
        found = next((id for id, one in seat.asks.items() if one.told.id == ask_id), None)
        if found is None or turn_id not in (None, seat.turn_id):
            return False
        if not self._inbox.answer(room, found, seat.asks[found].reply_of(reply)):
            return False
        del seat.asks[found]
        self.tell(seat, "answered", {"turn_id": seat.turn_id, "ask": ask_id})
        return True

    def state(self, seat: Seat) -> RoomState:
        """How a room stands."""
        assert self._inbox is not None
        waiting = self._inbox.asks(seat.room)
        asks = [one.told for id, one in seat.asks.items() if id in waiting]
        paused = self._inbox.is_paused(seat.room)
        recovered = [] if seat.turn_id else recovered_of(seat.settlements)
        return RoomState(seat.room, paused, seat.turn_id, asks, len(seat.waiting), recovered)

    @property
    def last_event_id(self) -> str:
        """The id of the event that was told last."""
        return f"{self.epoch}-{self._number}"

    # What happens.

    async def handle(self, delivery: Delivery) -> None:
        """Have a message worked on, and tell what is said.

        **Cancellation:** stops the turn, and waits for its settlement.
        """
        # Not when it was claimed: it may have waited for a place since.
        self.note_fate(delivery.message, "working")
        seat, turn = self.seat(delivery.room), delivery.turn()
        try:
            async with turn:
                seat.turn_id = turn.turn_id
                told = {"turn_id": turn.turn_id, "message": delivery.message.id}
                self.tell(seat, "turn", {**told, "attempt": delivery.message.attempt})
                async for event in turn:
                    await self._tell_event(seat, turn.turn_id, event)
        finally:
            seat.turn_id = None
            seat.asks.clear()
            # Not from an observer: that would be told before what is unread has been read.
            if turn.settlement is not None:
                self._tell_settlement(seat, turn.settlement)

    def note_recovered(self, settlement: Settlement) -> None:
        """An observer of the rooms: tells of turns that nobody reads, since a process that is gone
        has begun them.
        """
        if settlement.request is None or settlement.request.kind != "recovery":
            return
        self._tell_settlement(self.seat(settlement.room), settlement)
        if not settlement.clean:
            text = "room %r: turn %r of a process that is gone: %s, its work may be alive"
            logger.warning(text, settlement.room, settlement.turn_id, settlement.ending.value)

    def _tell_settlement(self, seat: Seat, settlement: Settlement) -> None:
        seat.settlements.append(self.tell(seat, "settlement", settlement.to_json()))

    async def _tell_event(self, seat: Seat, turn_id: str, event: Event) -> None:
        if isinstance(event, Ask):
            seat.asks[event.id] = question_of(event)
            self._asked.set()
        kind, *pieces = describe(event)
        for number, fields in enumerate(pieces):
            if number:
                # Of a long answer, each piece takes its time.
                await trio.lowlevel.checkpoint()
            self.tell(seat, kind, {"turn_id": turn_id, **fields})
        self._note_withdrawn(seat)

    async def watch(self) -> NoReturn:
        """Tell of questions that are withdrawn without a word, which nobody else notices.

        **Cancellation:** nobody does any more.
        """
        while True:
            await self._asked.wait()
            while asking := [seat for seat in self.seats.values() if seat.asks]:
                for seat in asking:
                    self._note_withdrawn(seat)
                await trio.sleep(_LOOK_EVERY)
            self._asked = trio.Event()

    def _note_withdrawn(self, seat: Seat) -> None:
        """Tell of questions to which the agent waits for no answer any more."""
        if not seat.asks or self._inbox is None:
            return
        waiting = self._inbox.asks(seat.room)
        for id in [id for id in seat.asks if id not in waiting]:
            told = {"turn_id": seat.turn_id, "ask": seat.asks.pop(id).told.id}
            self.tell(seat, "withdrawn", told)

    def note_control(self, control: Control, applied: Applied) -> None:
        """A control was applied in this step, whoever has pressed it."""
        turn_ids = {*applied.turn_ids}
        told = {"reason": control.reason, "source": control.source, "id": control.id}
        for room in [*self.seats] if control.room is None else applied.rooms:
            # One that nobody has posted to is no room of this server.
            if (seat := self.seats.get(room)) is None:
                continue
            if seat.turn_id in turn_ids:
                told_of = {"turn_id": seat.turn_id, "control": control.kind.value, **told}
                self.tell(seat, "stopping", told_of)
            self._show_paused(seat, told)

    def look_again(self, room: str) -> None:
        """Whether the room is paused may change in this step: see when it is over."""
        trio.lowlevel.current_trio_token().run_sync_soon(self._look, room)

    def _look(self, room: str) -> None:
        if (seat := self.seats.get(room)) is not None:
            self._show_paused(seat)

    def _show_paused(self, seat: Seat, told: Mapping[str, Any] | None = None) -> None:
        paused = self._inbox is not None and self._inbox.is_paused(seat.room)
        if paused is not seat.shown_paused:
            seat.shown_paused = paused
            self.tell(seat, "paused" if paused else "resumed", told or {})

    def note_rooms(self, rooms: Mapping[str, Standing]) -> None:
        """These are in the feed, before anything is handled."""
        waiting = [room for room, standing in rooms.items() if standing.waiting]
        # Of the others, as many as there is place for: the first to be forgotten.
        others = [room for room, standing in rooms.items() if not standing.waiting]
        for room in [*others[: max(0, self.settings.rooms - len(waiting))], *waiting]:
            self.seat(room)

    def note_message(self, message: Message) -> None:
        """It is in the feed, and not finished as far as is known."""
        seat = self.seat(message.room)
        if message.id in seat.waiting or (message.room, message.id) in self._finished:
            return
        seat.waiting[message.id] = None
        content = message.content if isinstance(message.content, str) else repr(message.content)
        self.tell(seat, "message", {"id": message.id, "state": "waiting", "content": content})

    def note_fate(self, message: Message, state: str, reason: str = "") -> None:
        """It is `working`, `waiting` again, `handled`, or `failed`."""
        seat = self.seat(message.room)
        if state in ("handled", "failed"):
            seat.waiting.pop(message.id, None)
            self._finished[message.room, message.id] = None
            if len(self._finished) > _FINISHED:
                self._finished.popitem(last=False)
        else:
            seat.waiting[message.id] = None
            self._finished.pop((message.room, message.id), None)
        told = {"id": message.id, "state": state, "attempt": message.attempt, "reason": reason}
        self.tell(seat, "message", told)

    def waiting_in(self, room: str) -> tuple[str, ...]:
        """The ids of messages that seem to be unfinished."""
        seat = self.seats.get(room)
        return () if seat is None else tuple(seat.waiting)

    def note_none(self, room: str, waiting: Iterable[str]) -> None:
        """The feed has said that none of these is unfinished: it has announced them too late."""
        if (seat := self.seats.get(room)) is not None:
            for id in waiting:
                seat.waiting.pop(id, None)

    # The rooms and their rings.

    def seat(self, room: str, *, made_by_us: bool = False) -> Seat:
        """The room's seat, made where there is none.

        Args:
            made_by_us: there may be too many. What is in the feed is never too many.
        """
        found = self.seats.get(room)
        if found is None:
            if len(self.seats) >= self.settings.rooms and not self._forget_one() and made_by_us:
                raise TooManyRooms
            ring = Ring(self.settings.room_events, self.settings.room_bytes, lost=self._number)
            found = Seat(room, ring, deque(maxlen=self.settings.settlements))
            self.seats[room] = found
            self._show_paused(found)
        self.seats.move_to_end(room)
        return found

    def _forget_one(self) -> bool:
        """Forget the room that has been idle longest, here and in the inbox."""
        inbox = self._inbox
        if inbox is None:
            return False
        for room, seat in self.seats.items():
            if seat.is_idle and inbox.is_idle(room):
                self.tell(seat, "forgotten", {})
                del self.seats[room]
                seat.ring.close()
                inbox.drop(room)
                return True
        return False

    def tell(self, seat: Seat, kind: str, data: Mapping[str, Any]) -> dict[str, Any]:
        """Write down an event of a room; return its data as they are told."""
        self._number += 1
        told = fit({"room": seat.room, **data})
        log_event(kind, told)
        record = Record(self._number, kind, to_line(told))
        seat.ring.add(record)
        self.everything.add(record)
        return told

    def close(self) -> None:
        """There will be no more events: whoever listens has heard all."""
        self.everything.close()
        for seat in self.seats.values():
            seat.ring.close()
