"""Claude's own requests: what a person is asked, and what Claude is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...events import Ask
from ...transports.jsonrpc import Incoming
from ...transports.serving import decliner

_QUESTION = "AskUserQuestion"
_YES_NO = ("allow", "deny")
_NOBODY = "Nobody is there to answer: the turn was stopped, or is over."


def to_ask(request: Incoming) -> Ask | None:
    """What a person is asked; None where Claude asks the client itself."""
    if request.method != "can_use_tool":
        return None
    params = request.params
    number, tool, given = str(request.number), str(params.get("tool_name")), _input(params)
    if tool == _QUESTION:
        text = "\n".join(str(one.get("question", "")) for one in _questions(given))
        return Ask(number, "question", text, _options(given), raw=request.raw)
    text = str(given.get("command") or f"{tool}({json.dumps(given)})")
    return Ask(number, "approval", text, _YES_NO, raw=request.raw)


def to_answer(request: Incoming, reply: object) -> Mapping[str, Any]:
    """What Claude is answered after a person's reply; a mapping is Claude's answer itself."""
    params = request.params
    given = _input(params)
    if isinstance(reply, Mapping):
        return reply
    if params.get("tool_name") == _QUESTION:
        answers = {str(one.get("question")): str(reply) for one in _questions(given)}
        return {"behavior": "allow", "updatedInput": {**given, "answers": answers}}
    if reply == "allow":
        return {"behavior": "allow", "updatedInput": given}
    reason = "It was denied." if reply == "deny" else str(reply)
    return {"behavior": "deny", "message": reason}


def cancelled(request: Incoming) -> Mapping[str, Any]:
    """What Claude is answered when nobody will reply: it goes no further."""
    return {"behavior": "deny", "message": _NOBODY, "interrupt": True}


decline = decliner(to_ask, cancelled)
"""Answers what no turn takes."""


def _input(params: Mapping[str, Any]) -> Mapping[str, Any]:
    found = params.get("input")
    return found if isinstance(found, dict) else {}


def _questions(given: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = given.get("questions")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _options(given: Mapping[str, Any]) -> tuple[str, ...]:
    """The choices of a single question; several questions are answered by a mapping, or a text."""
    questions = _questions(given)
    options = questions[0].get("options") if len(questions) == 1 else None
    listed = options if isinstance(options, list) else ()
    return tuple(str(one.get("label")) for one in listed if isinstance(one, dict))
