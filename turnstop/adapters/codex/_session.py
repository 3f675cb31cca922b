"""What a room keeps of codex: its thread, and whether that can be anything but idle."""

from __future__ import annotations

from typing import Self, final

from ...transports.jsonrpc import Connection


@final
class CodexSession(str):
    """The id of a thread. A plain str does as well, and costs a look at the thread.

    Attributes:
        idle_on: the connection on which the thread's last turn was seen to complete, or None.
        agents: whether it has ever had sub-agents, whose news may wake it at any time.
        calls: the calls of shell commands that its turns are known to have made.
    """

    idle_on: Connection | None
    agents: bool
    calls: frozenset[str]

    def __new__(
        cls,
        thread: str,
        idle_on: Connection | None,
        *,
        agents: bool,
        calls: frozenset[str] = frozenset(),
    ) -> Self:
        """Keep what is known of the thread beside its id."""
        session = super().__new__(cls, thread)
        session.idle_on = idle_on
        session.agents = agents
        session.calls = calls
        return session


def is_idle(session: object, rpc: Connection) -> bool:
    """Whether the thread is idle for certain, so that codex need not be asked."""
    return isinstance(session, CodexSession) and session.idle_on is rpc and not session.agents


def may_have_agents(session: object) -> bool:
    """Whether the thread may have had sub-agents."""
    return not isinstance(session, CodexSession) or session.agents


def known_calls(session: object) -> frozenset[str]:
    """The calls that the thread's turns are known to have made."""
    return session.calls if isinstance(session, CodexSession) else frozenset()
