"""Copilot's permission requests: what a person is asked, and what Copilot is answered."""

from __future__ import annotations

from typing import Any, final

import attrs

from ...events import Ask
from ._events import SdkEvent, field

REQUESTED = "permission.requested"
COMPLETED = "permission.completed"

_YES_NO = ("allow", "deny")
_DENIED = "It was denied."
_NOBODY = "Nobody is there to answer: the turn was stopped, or is over."
# What a request is about, whatever its kind calls it.
_TEXTS = ("full_command_text", "file_name", "path", "url", "tool_name", "intention", "fact")


@final
@attrs.frozen
class Permission:
    """A request for a permission.

    Attributes:
        number: Copilot's id of it.
        event: which told it.
    """

    number: str
    event: SdkEvent = attrs.field(repr=False)

    def to_ask(self) -> Ask:
        """What a person is asked."""
        asked = field(self.event, "permission_request")
        kind = str(getattr(asked, "kind", "permission"))
        told = (getattr(asked, name, None) for name in _TEXTS)
        text = next((str(one) for one in told if one), "")
        return Ask(
            self.number,
            "approval",
            text if kind == "shell" else f"{kind}: {text}",
            _YES_NO,
            raw=self.event,
        )


def read_permission(event: SdkEvent) -> Permission | None:
    """The request in an event; None where it was answered already, by a hook."""
    number = field(event, "request_id")
    if not isinstance(number, str) or not number or field(event, "resolved_by_hook"):
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
