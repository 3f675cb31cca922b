"""What the server knows of its rooms: the one place that messages, turns and stops pass by.

It stands between the HTTP side and the inbox. It takes messages to the feed, hears what becomes of
them (`_hearing`), reads the turns, and writes all that down in rings. Nothing here waits for
whoever listens to them.
"""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, final

import attrs

from .._inbox import Applied, Control, ControlKind, Delivery, Inbox, Message
from .._records import Settlement
from ..events import Ask
from ._ring import Record, Ring
from ._settings import Settings
from ._wire import AskedFor, RoomState, describe, to_line

__all__ = ["Desk", "Seat", "TooManyRooms"]

logger = logging.getLogger("turnstop.server")

_FINISHED = 1000


class TooManyRooms(Exception):
    """There are as many rooms as there may be, and each has something to do."""


@attrs.define(eq=False)
class Seat:
    """A room, as the server sees it.

    Attributes:
        waiting: ids of messages that are not finished.
        asks: questions of its turn, by id; answered ones are taken out.
    """

    room: str
    ring: Ring
    settlements: deque[dict[str, object]]
    paused: bool = False
    turn_id: str | None = None
    waiting: dict[str, None] = attrs.field(factory=dict)
    asks: dict[str, Ask] = attrs.field(factory=dict)

    @property
    def is_idle(self) -> bool:
        """Nothing is lost where it is forgotten, except what has been."""
        return not (self.paused or self.turn_id or self.waiting)

    def state(self) -> RoomState:
        """How it stands."""
        asks = [
            AskedFor(one.id, one.kind, one.text, list(one.choices)) for one in self.asks.values()
        ]
        return RoomState(self.room, self.paused, self.turn_id, asks, len(self.waiting))


@final
@attrs.define(eq=False)
class Desk:
    """All rooms of a server.

    Attributes:
        post: puts a message into the feed.
        epoch: tells this server's event numbers from those of one before it.
        everything: the events of all rooms.
        closing: nothing more is taken.
    """

    settings: Settings
    post: Callable[..., Awaitable[Message]]
    epoch: str = attrs.field(factory=lambda: secrets.token_hex(4))
    closing: bool = False
    everything: Ring = attrs.field(init=False)
    seats: OrderedDict[str, Seat] = attrs.field(factory=OrderedDict, init=False)
    _inbox: Inbox | None = attrs.field(default=None, init=False)
    _number: int = attrs.field(default=0, init=False)
    _finished: OrderedDict[str, None] = attrs.field(factory=OrderedDict, init=False)
    _pressed: deque[Control] = attrs.field(factory=deque, init=False)

    def __attrs_post_init__(self) -> None:
        self.everything = Ring(self.settings.all_events, self.settings.all_bytes)

    # What people do.

    def open(self, inbox: Inbox) -> None:
        """Take over: from now on there is somebody who handles messages."""
        self._inbox = inbox

    async def send(self, room: str, content: str, id: str | None) -> str:
        """Take a message; return its id when it is kept.

        Raises:
            TooManyRooms: it would make one more room than there may be.

        **Cancellation:** it is taken, or not.
        """
        self.seat(room, made_by_us=True)
        message = await self.post(room, content, id=id)
        self.note_message(message)
        # A stop that comes next finds the room, though the inbox has not heard of the message.
        assert self._inbox is not None
        self._inbox.nudge(room)
        return message.id

    def press(self, control: Control) -> Applied:
        """Apply a control, in this step."""
        assert self._inbox is not None
        applied = self._inbox.control(control)
        self._pressed.append(control)
        for turn_id in applied.turn_ids:
            logger.info("%s: turn %s is asked to stop", control.kind.value, turn_id)
        for room in applied.rooms:
            self._note_control(control, self.seat(room), applied.turn_ids)
        return applied

    def note_applied(self, control: Control, rooms: Sequence[str]) -> None:
        """The feed was told of a control, in order: one that was pressed here, or its own."""
        if self._pressed and self._pressed[0] is control:
            self._pressed.popleft()
            return
        for room in rooms:
            seat = self.seat(room)
            turn_ids = () if seat.turn_id is None else (seat.turn_id,)
            self._note_control(control, seat, turn_ids)

    def _note_control(self, control: Control, seat: Seat, turn_ids: Sequence[str]) -> None:
        told = {"reason": control.reason, "source": control.source, "id": control.id}
        if control.kind is not ControlKind.PLAY and seat.turn_id in turn_ids:
            told_of = {"turn_id": seat.turn_id, "control": control.kind.value, **told}
            self.tell(seat, "stopping", told_of)
        if control.kind is ControlKind.STOP and not seat.paused:
            seat.paused = True
            self.tell(seat, "paused", told)
        elif control.kind is ControlKind.PLAY and seat.paused:
            seat.paused = False
            self.tell(seat, "resumed", told)

    def answer(self, room: str, ask_id: str, reply: object) -> bool:
        """Give a person's reply; False where nobody waits for it."""
        seat = self.seats[room]
        assert self._inbox is not None
        if not self._inbox.answer(room, ask_id, reply):
            return False
        seat.asks.pop(ask_id, None)
        self.tell(seat, "answered", {"turn_id": seat.turn_id, "ask": ask_id})
        return True

    # What happens.

    async def handle(self, delivery: Delivery) -> None:
        """Have a message worked on, and tell what is said.

        **Cancellation:** stops the turn, and waits for its settlement.
        """
        seat, turn = self.seat(delivery.room), delivery.turn()
        try:
            async with turn:
                seat.turn_id = turn.turn_id
                told = {"turn_id": turn.turn_id, "message": delivery.message.id}
                self.tell(seat, "turn", {**told, "attempt": delivery.message.attempt})
                async for event in turn:
                    kind, fields = describe(event)
                    if isinstance(event, Ask):
                        seat.asks[event.id] = event
                    self.tell(seat, kind, {"turn_id": turn.turn_id, **fields})
        finally:
            seat.turn_id = None
            seat.asks.clear()
            # Not from an observer: that would be told before what is unread has been read.
            if turn.settlement is not None:
                self._note_settlement(seat, turn.settlement)

    def _note_settlement(self, seat: Seat, settlement: Settlement) -> None:
        found = settlement.to_json()
        seat.settlements.append(found)
        self.tell(seat, "settlement", found)

    def note_message(self, message: Message) -> None:
        """It is in the feed, and not finished as far as is known."""
        seat = self.seat(message.room)
        if message.id in seat.waiting or message.id in self._finished:
            return
        seat.waiting[message.id] = None
        content = message.content if isinstance(message.content, str) else repr(message.content)
        self.tell(seat, "message", {"id": message.id, "state": "waiting", "content": content})

    def note_fate(self, message: Message, state: str, reason: str = "") -> None:
        """It is `working`, `waiting` again, `handled`, or `failed`."""
        seat = self.seat(message.room)
        if state in ("handled", "failed"):
            seat.waiting.pop(message.id, None)
            self._finished[message.id] = None
            if len(self._finished) > _FINISHED:
                self._finished.popitem(last=False)
        else:
            seat.waiting[message.id] = None
            self._finished.pop(message.id, None)
        told = {"id": message.id, "state": state, "attempt": message.attempt, "reason": reason}
        self.tell(seat, "message", told)

    def note_paused(self, room: str, paused: bool) -> None:
        """It was found to be, or not to be."""
        seat = self.seat(room)
        if seat.paused != paused:
            seat.paused = paused
            self.tell(seat, "paused" if paused else "resumed", {})

    # The rooms and their rings.

    def seat(self, room: str, *, made_by_us: bool = False) -> Seat:
        """The room's seat, made where there is none.

        Args:
            made_by_us: there may be too many. What is in the feed is never too many.
        """
        found = self.seats.get(room)
        if found is None:
            if made_by_us and len(self.seats) >= self.settings.rooms:
                self._forget_one()
            ring = Ring(self.settings.room_events, self.settings.room_bytes, lost=self._number)
            found = Seat(room, ring, deque(maxlen=self.settings.settlements))
            self.seats[room] = found
        self.seats.move_to_end(room)
        return found

    def _forget_one(self) -> None:
        """Forget the room that has been idle longest."""
        idle = next((seat for seat in self.seats.values() if seat.is_idle), None)
        if idle is None:
            raise TooManyRooms
        del self.seats[idle.room]
        idle.ring.close()

    def tell(self, seat: Seat, kind: str, data: dict[str, Any]) -> None:
        """Write down an event of a room."""
        self._number += 1
        record = Record(self._number, kind, to_line({"room": seat.room, **data}))
        seat.ring.add(record)
        self.everything.add(record)

    def close(self) -> None:
        """There will be no more events: whoever listens has heard all."""
        self.everything.close()
        for seat in self.seats.values():
            seat.ring.close()
