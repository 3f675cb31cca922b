"""What a room keeps of an agent: its session, and the process that holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Self, final

import attrs

from ..._errors import BackendMisbehaved, BackendRefused
from ...transports.jsonrpc import RpcError
from ...transports.restart import Restarting
from ._agent import Agent

__all__ = ["AcpSession", "Settings", "take_up"]

_PATIENCE = 60.0
_AUTH_REQUIRED = -32000


@final
class AcpSession(str):
    """The id of a session. A plain str does as well, and begins with a look for the session.

    Attributes:
        process: brings back the process that holds it; None where there is none yet.
        agent: the process that has it in memory, or had.
        named: the messages and tool calls that its last turn has named.
        replaces: the session that could not be gone on with; it stands in for that.
        is_left: whether the room is to go on with another.
    """

    process: Restarting[Agent] | None
    agent: Agent | None
    named: frozenset[str]
    replaces: str | None
    is_left: bool

    def __new__(
        cls,
        number: str,
        process: Restarting[Agent] | None = None,
        agent: Agent | None = None,
        *,
        named: frozenset[str] = frozenset(),
        replaces: str | None = None,
        is_left: bool = False,
    ) -> Self:
        """Keep what is known of the session beside its id."""
        session = super().__new__(cls, number)
        session.process = process
        session.agent = agent
        session.named = named
        session.replaces = replaces
        session.is_left = is_left
        return session


@attrs.frozen
class Settings:
    """What a session is begun and taken up with.

    Attributes:
        cwd: where it works; an absolute path.
        mcp_servers: as the protocol declares them.
        mode: the session mode that is set; None leaves the agent's own.
    """

    cwd: str
    mcp_servers: Sequence[Mapping[str, Any]] = ()
    mode: str | None = None

    def to_params(self) -> dict[str, Any]:
        """As `session/new` takes them, and what takes a session up."""
        return {"cwd": self.cwd, "mcpServers": [dict(one) for one in self.mcp_servers]}


async def take_up(
    agent: Agent, process: Restarting[Agent], session: object, settings: Settings
) -> AcpSession:
    """Go on with a session, or begin one where there is none that the agent can go on with.

    What an agent tells of the session's past while it takes it up is heard by nobody.

    Raises:
        BackendRefused: the agent begins none.

    **Cancellation:** a session that the agent has begun stays with it.
    """
    if session is None:
        return AcpSession(await _begin(agent, settings), process, agent)
    if not isinstance(session, AcpSession):
        session = AcpSession(str(session))
    if session.is_left or not await _is_taken_up(agent, session, settings):
        # The application is told, and the room goes on.
        number = await _begin(agent, settings)
        return AcpSession(number, process, agent, replaces=str(session))
    return AcpSession(session, process, agent, named=session.named)


async def _is_taken_up(agent: Agent, session: AcpSession, settings: Settings) -> bool:
    if session.agent is agent:
        return True
    params = {"sessionId": str(session), **settings.to_params()}
    # Some offer a way that they do not have, or that fails where another one does not.
    for way in agent.ways_to_take_up():
        try:
            answer = await agent.rpc.call_within(_PATIENCE, way, params)
        except RpcError:
            continue
        await _set_mode(agent, str(session), settings, answer)
        return True
    return False


async def _begin(agent: Agent, settings: Settings) -> str:
    try:
        answer = await agent.rpc.call_within(_PATIENCE, "session/new", settings.to_params())
    except RpcError as error:
        if error.code == _AUTH_REQUIRED:
            raise BackendRefused(agent.how_to_log_in(error.message)) from error
        raise BackendRefused(f"{agent.name} begins no session: {error}") from error
    number = answer.get("sessionId") if isinstance(answer, dict) else None
    if not isinstance(number, str) or not number:
        raise BackendMisbehaved(f"{agent.name} began a session and did not tell its id")
    await _set_mode(agent, number, settings, answer)
    return number


async def _set_mode(agent: Agent, number: str, settings: Settings, answer: object) -> None:
    if settings.mode is None:
        return
    params = {"sessionId": number, "modeId": settings.mode}
    try:
        await agent.rpc.call_within(_PATIENCE, "session/set_mode", params)
    except RpcError as error:
        raise BackendRefused(
            f"{agent.name} does not take the mode {settings.mode!r}: {error}{_modes(answer)}"
        ) from error


def _modes(answer: object) -> str:
    modes = answer.get("modes") if isinstance(answer, dict) else None
    listed = modes.get("availableModes") if isinstance(modes, dict) else None
    names = [str(one.get("id")) for one in listed or () if isinstance(one, dict)]
    return f"; it has {', '.join(names)}" if names else ""
