"""What a room keeps of opencode: its session, and what is known of it."""

from __future__ import annotations

from typing import Self, final


@final
class OpenCodeSession(str):
    """The id of a session. A plain str does as well, and costs a look at the session.

    Attributes:
        idle_on: the connection to the server on which its last turn was seen to end, or None.
        calls: the tool calls that its turns are known to have made.
        children: the sub-agents' sessions that its turns are known to have begun.
    """

    idle_on: object | None
    calls: frozenset[str]
    children: frozenset[str]

    def __new__(
        cls,
        session: str,
        idle_on: object | None = None,
        *,
        calls: frozenset[str] = frozenset(),
        children: frozenset[str] = frozenset(),
    ) -> Self:
        """Keep what is known of the session beside its id."""
        made = super().__new__(cls, session)
        made.idle_on = idle_on
        made.calls = calls
        made.children = children
        return made


def recall(session: object) -> OpenCodeSession:
    """What is known of a session, whoever has kept it; nobody vouches that it is idle."""
    if isinstance(session, OpenCodeSession):
        return session
    return OpenCodeSession(str(session))
