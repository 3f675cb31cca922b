"""Turns of an A2A agent, natively on Trio. Needs the extra `a2a`.

    async with open_a2a("https://agent.example/") as agent, turnstop.open_rooms(agent) as rooms:
        async with rooms.turn("kitchen", "bake a cake") as turn:
            ...

**What shows that the work ended.** An agent that streams keeps a turn's stream open until its
executor has returned; the stream's end is the proof (`Proof.STREAM`), whatever state was said
before. An agent that does not stream can only say a state, and the reference server says CANCELED
while its executor still works. So the stop of such an agent is CLAIMED, which settles UNCONFIRMED
at once, and the room's next turn begins a fresh context.
"""

from __future__ import annotations

import importlib.metadata
import re
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import ClassVar, Final, TypeAlias, final

_FLOOR: Final = (1, 1, 2)
_INSTALL: Final = "python -m pip install 'turnstop[a2a]'"


def _check_sdk() -> None:
    try:
        found = importlib.metadata.version("a2a-sdk")
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"turnstop.adapters.a2a needs a2a-sdk: {_INSTALL}") from None
    version = tuple(int(number) for number in re.findall(r"\d+", found)[:3])
    if not _FLOOR <= version < (2,):
        raise ImportError(f"a2a-sdk {found} is here, and >=1.1.2,<2 is needed: {_INSTALL}")


_check_sdk()

import httpx  # noqa: E402
import trio  # noqa: E402
from a2a.types import a2a_pb2 as pb  # noqa: E402

from ..._errors import BackendMisbehaved  # noqa: E402
from ...abc import Backend, RemoteTurn, Request  # noqa: E402
from ...transports.reading import Reader, Reading, open_reading  # noqa: E402
from ._address import Address  # noqa: E402
from ._turn import A2ASession, A2ATurn  # noqa: E402
from ._wire import NOT_CANCELABLE, NOT_FOUND, AgentError, Wire, open_wire  # noqa: E402

__all__ = ["A2AContent", "A2ASession", "open_a2a"]

A2AContent: TypeAlias = str | Sequence[pb.Part]
"""What a turn of an A2A agent may be asked: a text, or the parts of a message."""


@final
class _A2A:
    announces: ClassVar[bool] = True

    def __init__(self, wire: Wire, reading: Reading, poll_every: float) -> None:
        self.name = f"a2a {wire.url}"
        self._wire = wire
        self._reading = reading
        self._poll_every = poll_every

    async def start(self, request: Request[A2AContent]) -> RemoteTurn:
        turn = A2ATurn(self._wire, _message(request), self._poll_every)
        await request.announce(turn.address)
        self._reading.start(turn.reader, turn.read, name=f"a2a turn {request.turn_id}")
        if not self._wire.streams:
            self._reading.start(Reader(), turn.look_out, name=f"a2a look-out {request.turn_id}")
        try:
            await turn.reveal()
        except trio.Cancelled:
            # It may begin all the same, and nobody else will ever know of it.
            self._reading.start(Reader(), turn.undo, name=f"a2a undo {request.turn_id}")
            raise
        return turn

    async def attach(self, address: str) -> RemoteTurn:
        """Take up the task of a message that another process has sent."""
        known = Address.parse(address, self._wire.url)
        message = pb.Message(
            message_id=known.message_id, context_id=known.context_id, task_id=known.answers
        )
        turn = A2ATurn(self._wire, message, self._poll_every, known.task_id)
        await turn.find()
        self._reading.start(turn.reader, turn.read_on, name=f"a2a task {turn.address}")
        try:
            await turn.listen()
        except trio.Cancelled:
            turn.reader.close()
            raise
        return turn

    async def forget(self, session: object) -> None:
        if not isinstance(session, A2ASession) or session.task_id is None:
            return
        try:
            await self._wire.cancel(session.task_id, lambda: None)
        except AgentError as error:
            if error.code not in (NOT_FOUND, NOT_CANCELABLE):
                raise BackendMisbehaved(f"the waiting task stays: {error}") from error


def _message(request: Request[A2AContent]) -> pb.Message:
    session = request.session if request.previous is None else None
    if not isinstance(session, A2ASession):
        session = A2ASession(str(uuid.uuid4()))
    content = request.content
    return pb.Message(
        role=pb.ROLE_USER,
        message_id=str(uuid.uuid4()),
        context_id=session.context_id,
        task_id=session.task_id,
        parts=[pb.Part(text=content)] if isinstance(content, str) else content,
    )


@asynccontextmanager
async def open_a2a(
    url: str,
    *,
    headers: Mapping[str, str] | None = None,
    connect_timeout: float = 10.0,
    read_gap: float = 300.0,
    poll_every: float = 0.5,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncGenerator[Backend[A2AContent], None]:
    """Open an A2A agent as a backend: many rooms, one agent.

    Each room has a context of its own, chosen here. A task that asks for input ends its turn as
    completed; the room's next turn answers it. A task that was cancelled is never continued.

    Args:
        url: the agent's address; its card is read from below it, once, here.
        headers: sent with every request, such as `Authorization`.
        connect_timeout: seconds to connect.
        read_gap: seconds that an answer, or a stream's next byte, may take. An agent that neither
            streams nor answers before its end is looked up, after this, by its task.
        poll_every: seconds between two looks at a task of an agent that does not stream, and, as
            long as it has not answered, between two looks whether it shows the task already.
        transport: how requests are made, for a client certificate or a proxy of your own.

    Yields:
        A backend whose sessions are `A2ASession`.

    Raises:
        ImportError: a2a-sdk is not in the range that is needed.
        BackendRefused: nothing listens at `url`, or it wants other credentials.
        BackendLost: the agent's card did not come.
        BackendMisbehaved: what answers there is no agent that speaks A2A over JSON-RPC.

    **Cancellation:** the connections are closed when the body has left.
    """
    _check_sdk()
    # Servers drop an idle connection after 5 s or more; no message is sent into one that goes.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=20, keepalive_expiry=4.0)
    timeout = httpx.Timeout(connect=connect_timeout, read=read_gap, write=read_gap, pool=None)
    async with httpx.AsyncClient(
        headers=dict(headers or {}), timeout=timeout, limits=limits, transport=transport
    ) as http:
        wire = await open_wire(url, http)
        async with open_reading() as reading:
            yield _A2A(wire, reading, poll_every)
