"""Copilot's permission requests: what a person is asked, and what Copilot is answered."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

import attrs

from ...events import Ask
from ._events import SessionEvent, field

REQUESTED = "permission.requested"
COMPLETED = "permission.completed"

_YES_NO = ("allow", "deny")
_DENIED = "It was denied."
_NOBODY = "Nobody is there to answer: the turn was stopped, or is over."
# What a request is about, whatever its kind calls it.
_TEXTS = ("fullCommandText", "fileName", "path", "url", "toolName", "intention", "fact")


@final
@attrs.frozen
class Permission:
    """A request for a permission.

    Attributes:
        number: Copilot's id of it.
        event: which told it.
    """

    number: str
    event: SessionEvent = attrs.field(repr=False)

    @property
    def tool_call(self) -> str:
        """The id of the tool call that it is for."""
        asked = field(self.event, "permissionRequest")
        return str(asked.get("toolCallId") if isinstance(asked, Mapping) else None)

    def to_ask(self) -> Ask:
        """What a person is asked."""
        asked = field(self.event, "permissionRequest")
        asked = asked if isinstance(asked, Mapping) else {}
        kind = str(asked.get("kind", "permission"))
        told = (asked.get(name) for name in _TEXTS)
        text = next((str(one) for one in told if one), "")
        return Ask(
            self.number,
            "approval",
            text if kind == "shell" else f"{kind}: {text}",
            _YES_NO,
            raw=self.event,
        )


def read_permission(event: SessionEvent) -> Permission | None:
    """The request in an event; None where it was answered already, by a hook."""
    number = field(event, "requestId")
    if not isinstance(number, str) or not number or field(event, "resolvedByHook"):
        return None
    return Permission(number, event)


def to_decision(reply: object) -> Any:
    """What Copilot is answered after a person's reply; a decision of the SDK is taken as it is."""
    from copilot.rpc import PermissionDecisionApproveOnce, PermissionDecisionReject

    if hasattr(reply, "to_dict"):
        return reply
    if reply == "allow":
        return PermissionDecisionApproveOnce()
    # Without a word of why, Copilot takes it for an abort, and the turn is over.
    return PermissionDecisionReject(feedback=_DENIED if reply == "deny" else str(reply))


def refusal() -> Any:
    """What Copilot is answered when nobody will reply."""
    return to_decision(_NOBODY)
