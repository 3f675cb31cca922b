"""What an agent asks its client, what a person is asked, and what the agent is answered.

`session/request_permission` and `elicitation/create` of the Agent Client Protocol, version 1. The
file system and the terminals of the client are not offered, and refused.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...events import Ask
from ...transports.jsonrpc import Incoming
from ...transports.serving import decliner

_PERMISSION = "session/request_permission"
_ELICITATION = "elicitation/create"
_YES = ("allow_once", "allow_always")
_NO = ("reject_once", "reject_always")
_ACTIONS = ("accept", "decline", "cancel")


def to_ask(request: Incoming) -> Ask | None:
    """What a person is asked; None where it is nothing that a person answers."""
    number, params = str(request.number), request.params
    if request.method == _PERMISSION:
        choices = tuple(str(one.get("optionId")) for one in _options(params))
        return Ask(number, "approval", _title(params.get("toolCall")), choices, raw=request.raw)
    if request.method == _ELICITATION:
        text = str(params.get("message") or "")
        return Ask(number, "question", text, _form_choices(params), raw=request.raw)
    return None


def to_answer(request: Incoming, reply: object) -> Mapping[str, Any]:
    """What the agent is answered after a person's reply; a mapping is the answer itself."""
    if isinstance(reply, Mapping):
        return reply
    if request.method == _ELICITATION:
        return _form_answer(request.params, reply)
    option = _chosen(_options(request.params), reply)
    if option is None:
        return cancelled(request)
    return {"outcome": {"outcome": "selected", "optionId": option}}


def cancelled(request: Incoming) -> Mapping[str, Any]:
    """What the agent is answered when nobody will reply."""
    if request.method == _ELICITATION:
        return {"action": "cancel"}
    return {"outcome": {"outcome": "cancelled"}}


decline = decliner(to_ask, cancelled)
"""Answers what no turn takes."""


def _options(params: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    found = params.get("options")
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def _chosen(options: Sequence[Mapping[str, Any]], reply: object) -> str | None:
    """The id of the option that a reply means: by its id, its name, its kind, or yes and no.

    A reply that is none of these is a no; where the agent offers none, nothing is chosen.
    """
    for key in ("optionId", "name", "kind"):
        for option in options:
            if isinstance(reply, str) and option.get(key) == reply:
                return str(option.get("optionId"))
    for kind in _YES if reply is True else _NO:
        for option in options:
            if option.get("kind") == kind:
                return str(option.get("optionId"))
    return None


def _title(call: object) -> str:
    found = call if isinstance(call, dict) else {}
    if title := found.get("title"):
        return str(title)
    given = found.get("rawInput")
    return json.dumps(given) if given else str(found.get("toolCallId") or "")


def _form(params: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    schema = params.get("requestedSchema")
    found = schema.get("properties") if isinstance(schema, dict) else None
    fields = found if isinstance(found, dict) else {}
    return {name: one for name, one in fields.items() if isinstance(one, dict)}


def _form_choices(params: Mapping[str, Any]) -> tuple[str, ...]:
    """The choices of a form with one field, or none; a longer one is answered by a mapping."""
    fields = list(_form(params).values())
    if len(fields) > 1:
        return ()
    if not fields:
        return _ACTIONS
    field = fields[0]
    if field.get("type") == "boolean":
        return ("yes", "no")
    listed, titled = field.get("enum"), field.get("oneOf")
    if isinstance(titled, list):
        return tuple(str(one.get("const")) for one in titled if isinstance(one, dict))
    return tuple(map(str, listed)) if isinstance(listed, list) else ()


def _form_answer(params: Mapping[str, Any], reply: object) -> Mapping[str, Any]:
    fields = _form(params)
    if not fields:
        action = "accept" if reply is True else reply
        return {"action": action if action in _ACTIONS else "decline"}
    name, field = next(iter(fields.items()))
    if field.get("type") == "boolean":
        return {"action": "accept", "content": {name: reply in (True, "yes")}}
    choices = _form_choices(params)
    if choices and str(reply) not in choices:
        return {"action": "decline"}
    return {"action": "accept", "content": {name: reply}}
