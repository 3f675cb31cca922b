"""Where a turn of an A2A agent is, for a process that has not begun it."""

from __future__ import annotations

import json
from typing import Self

import attrs

from ..._errors import BackendLost

__all__ = ["Address"]


@attrs.frozen
class Address:
    """What finds a turn again.

    Attributes:
        url: the agent's.
        context_id: the conversation.
        message_id: what was sent.
        task_id: what it began, or continues; empty where that was not known yet.
        answers: the same, where it continues one: that has waited before the message came.
    """

    url: str
    context_id: str
    message_id: str
    task_id: str
    answers: str

    def __str__(self) -> str:
        return json.dumps(attrs.astuple(self))

    @classmethod
    def parse(cls, address: str, url: str) -> Self:
        """Read what `str` has made, of a turn of the agent at `url`.

        Raises:
            BackendLost: it is another's.
        """
        try:
            found = cls(*map(str, json.loads(address)))
        except (TypeError, ValueError):
            raise BackendLost(f"this is no address of a turn of A2A: {address}") from None
        if found.url != url:
            raise BackendLost(f"the turn is at {found.url}, and this agent at {url}: open that one")
        return found
