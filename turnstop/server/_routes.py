"""What is answered at which path: one table, which the OpenAPI document is made of too."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote, unquote_to_bytes

import attrs
import msgspec
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from .._inbox import Control, ControlKind
from ..feeds import IdTaken
from ._desk import Desk, NotKept, TooManyRooms
from ._guard import read_body
from ._ring import Ring
from ._seat import Seat
from ._stream import EventResponse, Streams, place_of
from ._wire import Accepted, Answer, Health, Post, Press, Pressed, RoomState, to_json

__all__ = ["OPERATIONS", "Front", "Operation"]

Body = TypeVar("Body")

_MOST_NAME: Final = 200


def _json(data: object, status: int = 200) -> Response:
    return Response(to_json(data), status, media_type="application/json")


@attrs.define(eq=False)
class Front:
    """Answers requests, from the desk. Each method answers one operation."""

    desk: Desk
    statistics: Callable[[], Any]
    _streams: Streams = attrs.field(factory=Streams, init=False)

    async def health(self, request: Request) -> Response:
        found = self.statistics()
        return _json(
            Health(
                status="closing" if self.desk.closing else "ok",
                agent=self.desk.settings.agent,
                rooms=len(self.desk.seats),
                live=found.live,
                stopping=found.stopping,
                stragglers=found.stragglers,
            )
        )

    async def rooms(self, request: Request) -> Response:
        return _json([*map(self.desk.state, self.desk.seats.values())])

    async def room(self, request: Request) -> Response:
        return _json(self.desk.state(self._seat(request)))

    async def settlements(self, request: Request) -> Response:
        return _json([*self._seat(request).settlements])

    async def send(self, request: Request) -> Response:
        room, post = _room_of(request), await self._body(request, Post)
        self._check_open()
        if room in (".", ".."):
            raise HTTPException(400, f"no room can be called {room}: it means something in a URL")
        try:
            found = await self.desk.send(room, post.content, post.id)
        except TooManyRooms:
            text = f"there are {self.desk.settings.rooms} rooms, and each has something to do"
            raise HTTPException(429, f"{text}: try again later", {"Retry-After": "10"}) from None
        except IdTaken:
            text = f"another message with the id {post.id!r} waits in this room"
            raise HTTPException(409, f"{text}: give each its own") from None
        except NotKept as error:
            text = f"the message was not kept ({error}): try again later"
            raise HTTPException(503, text, {"Retry-After": "10"}) from None
        return _json(Accepted(found), 202)

    async def press(self, request: Request, kind: ControlKind) -> Response:
        room = self._seat(request).room
        return self._pressed(kind, room, await self._body(request, Press))

    async def press_all(self, request: Request, kind: ControlKind) -> Response:
        return self._pressed(kind, None, await self._body(request, Press))

    def _pressed(self, kind: ControlKind, room: str | None, press: Press) -> Response:
        self._check_open()
        control = Control(kind, room, press.turn_id, press.id, press.reason, "http")
        before = self.desk.last_event_id
        found = self.desk.press(control)
        told = Pressed(list(found.rooms), list(found.turn_ids), found.repeated, before)
        return _json(told, 202)

    async def answer(self, request: Request) -> Response:
        room, answer = self._seat(request).room, await self._body(request, Answer)
        self._check_open()
        if not self.desk.answer(room, answer.ask, answer.reply, answer.turn_id):
            raise HTTPException(409, "nobody waits for an answer to this any more")
        return _json(Accepted(answer.ask), 202)

    async def events(self, request: Request) -> Response:
        return self._stream(request, self._seat(request).ring)

    async def all_events(self, request: Request) -> Response:
        return self._stream(request, self.desk.everything)

    def _stream(self, request: Request, ring: Ring) -> Response:
        desk, settings = self.desk, self.desk.settings
        if self._streams.count >= settings.streams:
            text = f"{settings.streams} streams of events are read already"
            raise HTTPException(429, text, {"Retry-After": "10"})
        heard = request.headers.get("last-event-id", "")
        place = place_of(heard, desk.epoch, desk.everything.latest)
        return EventResponse(ring, desk.epoch, place, settings.heartbeat, self._streams)

    def _check_open(self) -> None:
        if self.desk.closing:
            raise HTTPException(503, "the server is ending")

    def _seat(self, request: Request) -> Seat:
        room = _room_of(request)
        found = self.desk.seats.get(room)
        if found is None:
            raise HTTPException(404, f"there is no room {room!r}: a message makes one")
        return found

    async def _body(self, request: Request, kind: type[Body]) -> Body:
        settings = self.desk.settings
        given = await read_body(request, settings.body, settings.silence)
        if not given and kind is Press:
            given = b"{}"
        try:
            return msgspec.json.decode(given, type=kind)
        except (msgspec.MsgspecError, UnicodeError) as error:
            raise HTTPException(400, f"the body is not what it has to be: {error}") from None
        except RecursionError:
            raise HTTPException(400, "the body is nested too deeply") from None


def _room_of(request: Request) -> str:
    name = request.path_params["room"]
    try:
        room = unquote_to_bytes(name).decode()
    except UnicodeDecodeError:
        raise HTTPException(400, "the room's name is not UTF-8") from None
    if len(room) > _MOST_NAME:
        raise HTTPException(400, f"the room's name is longer than {_MOST_NAME} characters")
    return room


def path_of(scope: Any) -> str:
    """The path as it was sent: a room's name may have a slash, which is then `%2F` and no other."""
    raw: bytes | None = scope.get("raw_path")
    return quote(scope["path"]) if raw is None else raw.partition(b"?")[0].decode("latin-1")


Answerer = Callable[[Front, Request], Awaitable[Response]]


@attrs.frozen
class Operation:
    """What can be asked for.

    Attributes:
        name: unique; the operation's id in the document.
        answer: what answers it.
        status: where it is done.
        gives: the type of the answer's JSON; None: it is a stream of events.
        takes: the type of the body's JSON; None: there is none.
        refuses: the statuses of its own refusals.
        is_open: no token is asked for.
    """

    method: str
    path: str
    name: str
    summary: str
    answer: Answerer
    status: int = 200
    gives: Any = None
    takes: Any = None
    refuses: tuple[int, ...] = ()
    is_open: bool = False


def _controls() -> list[Operation]:
    texts = {
        ControlKind.STOP: "End the turn, keep its message for PLAY, and pause the room.",
        ControlKind.INTERRUPT: "End the turn; its message counts as handled.",
        ControlKind.PLAY: "Go on: what a stop has left is handled anew.",
    }
    found = []
    for kind, text in texts.items():

        async def one(front: Front, request: Request, kind: ControlKind = kind) -> Response:
            return await front.press(request, kind)

        async def every(front: Front, request: Request, kind: ControlKind = kind) -> Response:
            return await front.press_all(request, kind)

        make = partial(Operation, "POST", status=202, gives=Pressed, takes=Press)
        found += [
            make(f"/rooms/{{room}}/{kind.value}", kind.value, text, one, refuses=(400, 404, 413)),
            make(
                f"/{kind.value}",
                f"{kind.value}All",
                f"{text} In all rooms.",
                every,
                refuses=(400, 413),
            ),
        ]
    return found


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation(
        "GET",
        "/health",
        "health",
        "Whether the server is there, and its load.",
        Front.health,
        gives=Health,
        is_open=True,
    ),
    Operation(
        "GET",
        "/rooms",
        "rooms",
        "All rooms, and how they stand.",
        Front.rooms,
        gives=list[RoomState],
    ),
    Operation(
        "GET",
        "/rooms/{room}",
        "room",
        "How a room stands.",
        Front.room,
        gives=RoomState,
        refuses=(400, 404),
    ),
    Operation(
        "POST",
        "/rooms/{room}/messages",
        "send",
        "Post a message; makes the room. It is kept when this is answered.",
        Front.send,
        202,
        Accepted,
        Post,
        (400, 409, 413),
    ),
    *_controls(),
    Operation(
        "POST",
        "/rooms/{room}/answers",
        "answer",
        "Answer a question of the room's turn.",
        Front.answer,
        202,
        Accepted,
        Answer,
        (400, 404, 409, 413),
    ),
    Operation(
        "GET",
        "/rooms/{room}/settlements",
        "settlements",
        "What became of the room's last turns, the oldest first.",
        Front.settlements,
        gives=list[dict[str, Any]],
        refuses=(400, 404),
    ),
    Operation(
        "GET",
        "/rooms/{room}/events",
        "events",
        "What happens in a room, as it happens.",
        Front.events,
        refuses=(400, 404),
    ),
    Operation(
        "GET", "/events", "allEvents", "What happens in all rooms, as it happens.", Front.all_events
    ),
)
"""All that the server answers, besides its page and the document itself."""
