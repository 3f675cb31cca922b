"""Opening a Letta server, and the backend that starts its turns."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import ClassVar, Final, TypeAlias, final

import httpx
import trio
from letta_client import AsyncLetta

from ...abc import Backend, RemoteTurn, Request
from ...transports.reading import Reader, Reading, open_reading
from ._address import Address
from ._orphan import LettaOrphan
from ._sdk import check_sdk
from ._session import LettaSession
from ._turn import Begin, LettaContent, LettaTurn
from ._wire import Wire

AgentOf: TypeAlias = Callable[[str], Awaitable[str]]
"""Names a room's agent by its id; it may make one."""

_AGENT_ID: Final = "agent_id is an agent's id, or an async function that is given a room"


@final
class _Letta:
    announces: ClassVar[bool] = True

    def __init__(
        self, wire: Wire, reading: Reading, agent_id: str | AgentOf, conversations: bool
    ) -> None:
        self.name = f"letta {wire.url}"
        self._wire = wire
        self._reading = reading
        self._agent_id = agent_id
        self._conversations = conversations

    async def start(self, request: Request[LettaContent]) -> RemoteTurn:
        session = request.session
        # What a stopped turn may still do is done in the history that it began in.
        begin: Begin = "forked" if request.previous is not None else "here"
        if not isinstance(session, LettaSession):
            session = LettaSession(await self._agent_of(request.room))
            begin = "fresh" if self._conversations else begin
        turn = LettaTurn(self._wire, session, request.content, begin, request.announce)
        self._reading.start(turn.reader, turn.read, name=f"letta turn {request.turn_id}")
        try:
            await turn.reveal()
        except trio.Cancelled:
            # It may begin all the same, and nobody else will ever know of it.
            self._reading.start(Reader(), turn.undo, name=f"letta undo {request.turn_id}")
            raise
        return turn

    async def attach(self, address: str) -> RemoteTurn:
        turn = LettaOrphan(self._wire, Address.parse(address))
        await turn.find()
        return turn

    async def _agent_of(self, room: str) -> str:
        agent = self._agent_id
        if isinstance(agent, str):
            return agent
        making = agent(room)
        found = await making if isinstance(making, Awaitable) else None
        if not isinstance(found, str):
            raise TypeError(f"{_AGENT_ID}, and returns one: for {room!r} it does not")
        return found


@asynccontextmanager
async def open_letta(
    url: str = "http://localhost:8283",
    *,
    agent_id: str | AgentOf,
    conversations: bool = True,
    api_key: str | None = None,
    headers: Mapping[str, str] | None = None,
    connect_timeout: float = 10.0,
    read_gap: float = 300.0,
    transport: httpx.AsyncBaseTransport | None = None,
) -> AsyncGenerator[Backend[LettaContent], None]:
    """Open a Letta server as a backend: many rooms, one agent or one each.

    Args:
        url: the server's address.
        agent_id: the agent of all rooms; or an async function that is given a room, when that
            needs one, and returns the id of its agent.
        conversations: whether each room has a conversation of its own, made by its first turn.
            Else a room speaks in its agent's own history, which two rooms had better not share.
        api_key: the server's key; None takes LETTA_API_KEY from the environment, if it is there.
        headers: sent with every request.
        connect_timeout: seconds to connect.
        read_gap: seconds that an answer, or a stream's next byte, may take. The server says that
            it is alive every 20 s.
        transport: how requests are made, for a client certificate or a proxy of your own.

    Yields:
        A backend whose sessions are `LettaSession`.

    Raises:
        ImportError: letta-client is not in the range that is needed.
        TypeError: `agent_id` is neither.
        BackendRefused: nothing listens at `url`, it is no address, or it wants another key.
        BackendLost: the server did not answer.
        BackendMisbehaved: what answers there is no Letta server.

    **Cancellation:** the connections are closed when the body has left.
    """
    check_sdk()
    if not isinstance(agent_id, str) and not callable(agent_id):
        raise TypeError(f"{_AGENT_ID}: got {agent_id!r}")
    # A server that has answered 500 resets the connection under the next request on it, and a
    # message that is lost in this way may have begun a run.
    limits = httpx.Limits(max_connections=None, max_keepalive_connections=0)
    timeout = httpx.Timeout(connect=connect_timeout, read=read_gap, write=read_gap, pool=None)
    async with httpx.AsyncClient(timeout=timeout, limits=limits, transport=transport) as http:
        # A start that is sent again may begin a second run, and a cancel may hit another one.
        client = AsyncLetta(
            base_url=url,
            api_key=api_key,
            default_headers=headers,
            http_client=http,
            timeout=timeout,
            max_retries=0,
        )
        # Else the first call asks a thread for it, only to tell the server.
        client._platform = "Unknown"
        wire = Wire(url, client, http)
        await wire.check()
        async with open_reading() as reading:
            yield _Letta(wire, reading, agent_id, conversations)
