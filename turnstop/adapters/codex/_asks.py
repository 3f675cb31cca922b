"""codex's own requests: what a person is asked, and what codex is answered."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from ...events import Ask
from ...transports.jsonrpc import Incoming
from ...transports.serving import decliner

_DECISIONS = ("accept", "acceptForSession", "decline", "cancel")
_YES_NO = ("accept", "decline")


def to_ask(request: Incoming) -> Ask | None:
    """What a person is asked; None where codex asks the client itself."""
    number, params = str(request.number), request.params
    match request.method:
        case "item/commandExecution/requestApproval":
            text = str(params.get("command") or params.get("reason") or "")
            return Ask(number, "approval", text, tuple(_decisions(params)), raw=request.raw)
        case "item/fileChange/requestApproval":
            text = str(params.get("reason") or "change files")
            return Ask(number, "approval", text, tuple(_decisions(params)), raw=request.raw)
        case "item/permissions/requestApproval":
            text = str(params.get("reason") or json.dumps(params.get("permissions")))
            return Ask(number, "approval", text, _YES_NO, raw=request.raw)
        case "item/tool/requestUserInput":
            text = "\n".join(str(one.get("question", "")) for one in _questions(params))
            return Ask(number, "question", text, _options(params), raw=request.raw)
        case "mcpServer/elicitation/request":
            text = str(params.get("message") or params.get("title") or "")
            return Ask(number, "question", text, (*_YES_NO, "cancel"), raw=request.raw)
        case "item/tool/call":
            text = f"{params.get('tool')}({json.dumps(params.get('arguments'))})"
            return Ask(number, "question", text, raw=request.raw)
    return None


def to_answer(request: Incoming, reply: object) -> Mapping[str, Any]:
    """What codex is answered after a person's reply; a mapping is codex's answer itself."""
    params = request.params
    if isinstance(reply, Mapping):
        return reply
    match request.method:
        case "item/permissions/requestApproval":
            return {"permissions": params.get("permissions") if reply == "accept" else {}}
        case "item/tool/requestUserInput":
            numbers = [str(one.get("id")) for one in _questions(params)]
            return {"answers": {number: {"answers": [str(reply)]} for number in numbers}}
        case "mcpServer/elicitation/request":
            action = reply if reply in (*_YES_NO, "cancel") else "decline"
            return {"action": action, "content": {} if action == "accept" else None}
        case "item/tool/call":
            return _tool_output(str(reply), True)
    decisions = _decisions(params)
    return {
        "decision": decisions[reply] if isinstance(reply, str) and reply in decisions else "decline"
    }


def cancelled(request: Incoming) -> Mapping[str, Any]:
    """What codex is answered when nobody will reply."""
    match request.method:
        case "item/permissions/requestApproval":
            return {"permissions": {}}
        case "item/tool/requestUserInput":
            return {"answers": {}}
        case "mcpServer/elicitation/request":
            return {"action": "cancel"}
        case "item/tool/call":
            return _tool_output("cancelled", False)
    return {"decision": "cancel"}


decline = decliner(to_ask, cancelled)
"""Answers what no turn takes."""


def _decisions(params: Mapping[str, Any]) -> dict[str, Any]:
    """The decisions that codex offers, by name; some carry a proposal along."""
    offered = params.get("availableDecisions")
    found: dict[str, Any] = {}
    for decision in offered if isinstance(offered, list) else _DECISIONS:
        if isinstance(decision, str):
            found[decision] = decision
        elif isinstance(decision, dict) and decision:
            found[str(next(iter(decision)))] = decision
    return found


def _questions(params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = params.get("questions")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _options(params: Mapping[str, Any]) -> tuple[str, ...]:
    """The choices of a single question; several questions are answered by a mapping, or a text."""
    questions = _questions(params)
    options = questions[0].get("options") if len(questions) == 1 else None
    listed = options if isinstance(options, list) else ()
    return tuple(str(one.get("label")) for one in listed if isinstance(one, dict))


def _tool_output(text: str, success: bool) -> Mapping[str, Any]:
    return {"contentItems": [{"type": "inputText", "text": text}], "success": success}
