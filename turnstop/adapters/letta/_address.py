"""Where a turn of a Letta agent is, for a process that has not begun it.

Letta names a run when it has taken the message, so the address that is announced has no name for
it: it says whose history the message goes to, after which run, and which mark it carries. The
server writes that mark on each step of the run (0.16.8: the header `x-api-request-log-id` is the
step's `request_id`).
"""

from __future__ import annotations

import json
from typing import Final, Literal, Self, TypeAlias, get_args

import attrs

from ..._errors import BackendLost

__all__ = ["MARK", "Address", "Place"]

MARK: Final = "x-api-request-log-id"
"""The header that carries a message's mark."""

Place: TypeAlias = Literal["made", "room", "answer", "shared"]
"""Whose history a message goes to: a conversation that was made for it; the room's; where it is an
answer that is waited for; or an agent's own, in which anybody may speak."""


@attrs.frozen
class Address:
    """What finds a run again.

    Attributes:
        agent_id: whose it is.
        conversation_id: where; empty in the agent's own history.
        place: what is known of that.
        mark: what its message carries.
        since: the newest run that was there before; empty where none was known.
        run_id: the run; empty where it was not known yet.
    """

    agent_id: str
    conversation_id: str
    place: Place
    mark: str
    since: str
    run_id: str = ""

    def __str__(self) -> str:
        return json.dumps(attrs.astuple(self))

    @classmethod
    def parse(cls, address: str) -> Self:
        """Read what `str` has made.

        Raises:
            BackendLost: it is another's.
        """
        try:
            found = cls(*map(str, json.loads(address)))  # type: ignore[arg-type]
        except (TypeError, ValueError):
            found = None
        if found is None or found.place not in get_args(Place):
            raise BackendLost(f"this is no address of a turn of Letta: {address}")
        return found
