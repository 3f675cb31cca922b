"""opencode's questions: what a person is asked, and what opencode is answered."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import attrs
import trio

from ...events import Ask
from ._events import Frame

PERMISSION = "permission.asked"
QUESTION = "question.asked"
SETTLED = ("permission.replied", "question.replied", "question.rejected")
_REPLIES = ("once", "always", "reject")


@attrs.define(eq=False)
class Asked:
    """A permission or a question that opencode waits for.

    Attributes:
        number: opencode's id of it.
        kind: the event that it came with.
        properties: what opencode says of it.
        refused: set when its refusal has left, since nobody will reply.
    """

    number: str
    kind: str
    properties: Frame = attrs.field(repr=False)
    refused: trio.Event = attrs.field(factory=trio.Event, repr=False)

    def to_ask(self) -> Ask:
        """What a person is asked."""
        if self.kind == PERMISSION:
            told = self.properties.get("patterns")
            what = ", ".join(map(str, told)) if isinstance(told, list) else ""
            text = f"{self.properties.get('permission')}: {what}"
            return Ask(self.number, "approval", text, _REPLIES, raw=self.properties)
        text = "\n".join(str(one.get("question", "")) for one in self._questions())
        return Ask(self.number, "question", text, self._options(), raw=self.properties)

    def answer(self, reply: object) -> tuple[str, Any]:
        """Where opencode is told a person's reply, and how; a mapping is opencode's own body."""
        path = f"/{self.kind.partition('.')[0]}/{self.number}/reply"
        if isinstance(reply, Mapping):
            return path, dict(reply)
        if self.kind == PERMISSION:
            return path, {"reply": reply if reply in _REPLIES else "reject"}
        if isinstance(reply, Sequence) and not isinstance(reply, str):
            return path, {"answers": [[str(one)] for one in reply]}
        return path, {"answers": [[str(reply)] for _ in self._questions()]}

    def refusal(self) -> tuple[str, Any]:
        """Where opencode is told that nobody will reply, and how."""
        if self.kind == PERMISSION:
            return f"/permission/{self.number}/reply", {"reply": "reject"}
        return f"/question/{self.number}/reject", None

    def _questions(self) -> list[Frame]:
        found = self.properties.get("questions")
        return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []

    def _options(self) -> tuple[str, ...]:
        """The choices of a single question; several are answered by a sequence of texts."""
        questions = self._questions()
        options = questions[0].get("options") if len(questions) == 1 else None
        listed = options if isinstance(options, list) else ()
        return tuple(str(one.get("label")) for one in listed if isinstance(one, dict))


def read_asked(kind: str, properties: Frame) -> Asked | None:
    """The permission or question in an event; None where there is none."""
    number = properties.get("id")
    if kind not in (PERMISSION, QUESTION) or not isinstance(number, str):
        return None
    return Asked(number, kind, properties)


def settled_in(kind: str, properties: Frame) -> str | None:
    """Which permission or question was answered, by whomever."""
    if kind not in SETTLED:
        return None
    return str(properties.get("requestID") or properties.get("permissionID"))
