"""What a room keeps of an agent: its session, and the process that holds it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, final

import attrs

from ..._errors import BackendMisbehaved, BackendRefused
from ...transports.jsonrpc import RpcError
from ...transports.restart import Restarting
from ._agent import Agent
from ._signs import mode_in

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
        mode: its mode; None where it is not known.
        counts: whether the agent has told, since it has the session in memory, what it has used.
        replaces: the session that could not be gone on with; it stands in for that.
        is_left: whether the room is to go on with another.
    """

    process: Restarting[Agent] | None
    agent: Agent | None
    named: frozenset[str]
    mode: str | None
    counts: bool
    replaces: str | None
    is_left: bool

    def __new__(
        cls,
        number: str,
        process: Restarting[Agent] | None = None,
        agent: Agent | None = None,
        *,
        named: frozenset[str] = frozenset(),
        mode: str | None = None,
        counts: bool = False,
        replaces: str | None = None,
        is_left: bool = False,
    ) -> Self:
        """Keep what is known of the session beside its id."""
        session = super().__new__(cls, number)
        session.process = process
        session.agent = agent
        session.named = named
        session.mode = mode
        session.counts = counts
        session.replaces = replaces
        session.is_left = is_left
        return session

    def note_taken_up(self, session: AcpSession) -> None:
        """Another has stood in for it, or the same was taken up by the agent that has it now."""
        if session == self and not self.is_left:
            self.agent, self.mode, self.counts = session.agent, session.mode, session.counts


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
    if isinstance(session, AcpSession) and session.agent is agent and not session.is_left:
        return session
    if session is not None and not (isinstance(session, AcpSession) and session.is_left):
        for way in agent.ways_to_take_up():
            with suppress(RpcError):  # some offer a way that they do not have
                return await _load(agent, process, session, settings, way)
    replaced = None if session is None else str(session)
    return await _begin(agent, process, settings, replaced)


async def _load(
    agent: Agent, process: Restarting[Agent], session: object, settings: Settings, way: str
) -> AcpSession:
    number = str(session)
    params = {"sessionId": number, **settings.to_params()}
    answer = await agent.rpc.call_within(_PATIENCE, way, params)
    mode = await _set_mode(agent, number, settings, answer)
    return AcpSession(number, process, agent, mode=mode)


async def _begin(
    agent: Agent, process: Restarting[Agent], settings: Settings, replaced: str | None
) -> AcpSession:
    try:
        answer = await agent.rpc.call_within(_PATIENCE, "session/new", settings.to_params())
    except RpcError as error:
        if error.code == _AUTH_REQUIRED:
            raise BackendRefused(agent.how_to_log_in(error.message)) from error
        raise BackendRefused(f"{agent.name} begins no session: {error}") from error
    number = answer.get("sessionId") if isinstance(answer, dict) else None
    if not isinstance(number, str) or not number:
        raise BackendMisbehaved(f"{agent.name} began a session and did not tell its id")
    mode = await _set_mode(agent, number, settings, answer)
    return AcpSession(number, process, agent, replaces=replaced, mode=mode)


async def _set_mode(agent: Agent, number: str, settings: Settings, answer: object) -> str | None:
    """Set the mode that is wanted; the mode that the session has then."""
    if settings.mode is None:
        return mode_in(answer)
    names = _modes(answer)
    has = f"; it has {', '.join(names)}" if names else ""
    wrong = f"{agent.name} does not take the mode {settings.mode!r}"
    if names and settings.mode not in names:
        # Some say nothing of it, and stay in the mode that they are in.
        raise BackendRefused(wrong + has)
    params = {"sessionId": number, "modeId": settings.mode}
    try:
        await agent.rpc.call_within(_PATIENCE, "session/set_mode", params)
    except RpcError as error:
        raise BackendRefused(f"{wrong}: {error}{has}") from error
    return settings.mode


def _modes(answer: object) -> list[str]:
    modes = answer.get("modes") if isinstance(answer, dict) else None
    listed = modes.get("availableModes") if isinstance(modes, dict) else None
    found = listed if isinstance(listed, list) else []
    return [str(one.get("id")) for one in found if isinstance(one, dict)]
