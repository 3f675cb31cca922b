"""What a room keeps of opencode: its session, and what is known of it."""

from __future__ import annotations

from typing import Self, final

import attrs
import trio

from ..._errors import BackendError, BackendLost


@final
@attrs.define(eq=False)
class Abort:
    """An abort of a session, from its sending on.

    Attributes:
        left: set when it has left, or never will.
        over: set when it was answered, or never will be.
        error: what came in place of an answer.
        hit: whether it is known to have ended what it was meant for, and so will end nothing else.
    """

    left: trio.Event = attrs.field(factory=trio.Event)
    over: trio.Event = attrs.field(factory=trio.Event)
    error: BackendError | None = None
    hit: bool = False

    def end(self) -> None:
        """There is no more to come."""
        self.left.set()
        self.over.set()

    def may_come(self) -> bool:
        """Whether it may still reach the session, and end what that works on then."""
        lost = isinstance(self.error, BackendLost)
        return not self.hit and (lost or not self.over.is_set())


@final
class OpenCodeSession(str):
    """The id of a session. A plain str does as well, and costs a look at the session.

    Attributes:
        idle_on: the connection to the server on which its last turn was seen to end, or None.
        calls: the tool calls that its turns are known to have made.
        children: the sub-agents' sessions that its turns are known to have begun.
        abort: what its last turn was told to stop by, or None.
    """

    idle_on: object | None
    calls: frozenset[str]
    children: frozenset[str]
    abort: Abort | None

    def __new__(
        cls,
        session: str,
        idle_on: object | None = None,
        *,
        calls: frozenset[str] = frozenset(),
        children: frozenset[str] = frozenset(),
        abort: Abort | None = None,
    ) -> Self:
        """Keep what is known of the session beside its id."""
        made = super().__new__(cls, session)
        made.idle_on = idle_on
        made.calls = calls
        made.children = children
        made.abort = abort
        return made


def recall(session: object) -> OpenCodeSession:
    """What is known of a session, whoever has kept it; nobody vouches that it is idle."""
    if isinstance(session, OpenCodeSession):
        return session
    return OpenCodeSession(str(session))
