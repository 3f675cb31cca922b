"""What the bare protocols over pipes share: JSON lines, calls, and a process for each room."""

from __future__ import annotations

import itertools
import json
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, TypeAlias, TypeVar

import attrs
import trio

from ..._service import Service, open_service
from ...transports.process import ChildProcess, Grace, open_process
from .programs import whole
from .raw import Refused

GRACE = Grace(close=0.0, terminate=0.5, kill=1.0)

Message: TypeAlias = Mapping[str, Any]
T = TypeVar("T")


class Lines:
    """A program that reads and writes JSON, a line each. Writes keep their order."""

    def __init__(self, child: ChildProcess) -> None:
        self._child = child
        self._writing = trio.StrictFIFOLock()
        self._changed = trio.lowlevel.ParkingLot()
        self._over = False

    async def send(self, message: Message, sent: Callable[[], None] = lambda: None) -> None:
        """Write a line, and say when it is written."""
        async with self._writing:
            try:
                await self._child.stdin.send_all(json.dumps(message).encode() + b"\n")
            except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
                raise Refused("the program has ended") from error
            sent()

    async def read(self, hear: Callable[[Message], None]) -> None:
        """Hear each line, to the end."""
        rest = b""
        async for chunk in self._child.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                if line.startswith(b"{"):
                    hear(json.loads(line))
            self._changed.unpark_all()
        self._over = True
        self._changed.unpark_all()

    async def until(self, condition: Callable[[], object]) -> None:
        """Return when it holds, looking after whatever was heard.

        Raises:
            Refused: the program has ended.
        """
        while not condition():
            if self._over:
                raise Refused("the program has ended")
            await self._changed.park()


class Calls:
    """JSON-RPC over lines, with or without its `jsonrpc` member.

    Args:
        lines: the program.
        hear: is told its notifications and its own requests.
        header: goes into every message.
    """

    def __init__(self, lines: Lines, hear: Callable[[Message], None], header: Message) -> None:
        self.lines = lines
        self._hear = hear
        self._header = header
        self._ids = itertools.count(1)
        self._answers: dict[int, Message] = {}

    def heard(self, message: Message) -> None:
        """Take a line."""
        if "method" in message:
            self._hear(message)
        else:
            self._answers[message["id"]] = message

    async def call(
        self, method: str, params: Message, sent: Callable[[], None] = lambda: None
    ) -> Any:
        """Send a request and wait for its answer.

        Raises:
            Refused: it is an error, or the program has ended.
        """
        number = next(self._ids)
        request = {**self._header, "id": number, "method": method, "params": params}
        await self.lines.send(request, sent)
        await self.lines.until(lambda: number in self._answers)
        answer = self._answers.pop(number)
        if "error" in answer:
            raise Refused(answer["error"]["message"])
        return answer["result"]

    async def notify(
        self, method: str, params: Message | None = None, sent: Callable[[], None] = lambda: None
    ) -> None:
        """Send a notification."""
        message = {**self._header, "method": method}
        await self.lines.send(message if params is None else {**message, "params": params}, sent)

    async def answer(self, request: Message, result: Message) -> None:
        """Answer a request of the program."""
        await self.lines.send({**self._header, "id": request["id"], "result": result})

    async def refuse(self, request: Message) -> None:
        """Tell the program that there is no such method here."""
        error = {"code": -32601, "message": f"no {request['method']} here"}
        await self.lines.send({**self._header, "id": request["id"], "error": error})


@asynccontextmanager
async def open_lines(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AsyncGenerator[Lines, None]:
    """Start a program, with no more in its environment than is given."""
    async with open_process(command, cwd=cwd, env=whole(env), grace=GRACE) as child:
        yield Lines(child)


@attrs.define(eq=False)
class _Place(Generic[T]):
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    opened: trio.Event = attrs.field(factory=trio.Event)
    there: list[T] = attrs.field(factory=list)


class Places(Generic[T]):
    """One of something for each room, opened when it is asked for first."""

    def __init__(
        self, open_one: Callable[[], AbstractAsyncContextManager[T]], service: Service
    ) -> None:
        self._open_one = open_one
        self._service = service
        self._places: dict[str, _Place[T]] = {}

    async def get(self, room: str) -> T:
        """The room's own."""
        if room not in self._places:
            self._places[room] = _Place()
            self._service.start_soon(self._keep, self._places[room])
        place = self._places[room]
        await place.opened.wait()
        return place.there[0]

    def leave(self, room: str) -> None:
        """End what is there for the room."""
        if place := self._places.pop(room, None):
            place.scope.cancel()

    async def _keep(self, place: _Place[T]) -> None:
        with place.scope:
            async with self._open_one() as one:
                place.there.append(one)
                place.opened.set()
                await trio.sleep_forever()


@asynccontextmanager
async def open_places(
    open_one: Callable[[], AbstractAsyncContextManager[T]],
) -> AsyncGenerator[Places[T], None]:
    """Keep one for each room until the body has left."""
    async with open_service() as service:
        yield Places(open_one, service)
