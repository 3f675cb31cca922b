"""The OpenAPI document, made of the table that the routes are made of."""

from __future__ import annotations

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any, Final

import msgspec

from ._routes import Operation
from ._wire import Failure

__all__ = ["document"]

_REFERENCE: Final = "#/components/schemas/{name}"
_EVENTS: Final = """Server-sent events. Each has an `id`, and one `data` line: JSON with its `room`,
but for `gap`. With the header `Last-Event-ID`, the stream goes on behind that event; without, it
begins with the oldest that is kept. The types are `message` (`state`: waiting, working, handled or
failed), `turn`, `text`, `thought`, `tool_call`, `ask`, `answered`, `withdrawn` (the agent waits for
no answer any more), `usage`, `other`, `stopping`, `settlement`, `paused`, `resumed`, `forgotten`
(the room had nothing to do, and another took its place), and `gap`: events were missed, for they
are not kept any more. Text of more than some 60,000 characters comes in pieces where it is an
answer's, and cut elsewhere."""


def document(operations: Sequence[Operation], version: str) -> dict[str, Any]:
    """The document for these operations."""
    types = {one for each in operations for one in (each.gives, each.takes) if one is not None}
    wanted = [*sorted(types, key=str), Failure]
    schemas, components = msgspec.json.schema_components(wanted, ref_template=_REFERENCE)
    schema_of = dict(zip(map(str, wanted), schemas, strict=True))
    paths: dict[str, Any] = {}
    for one in operations:
        paths.setdefault(one.path, {})[one.method.lower()] = _operation(one, schema_of)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "turnstop serve",
            "version": version,
            "description": "Rooms with an agent, whose turns can be stopped.",
        },
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(one: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = {
        "operationId": one.name,
        "summary": one.summary,
        "responses": _responses(one, schema_of),
    }
    parameters: list[dict[str, Any]] = []
    if "{room}" in one.path:
        schema = {
            "type": "string",
            "minLength": 1,
            "maxLength": 200,
            # In a path they mean something else.
            "not": {"enum": [".", ".."]},
        }
        parameters.append({"name": "room", "in": "path", "required": True, "schema": schema})
    if one.gives is None:
        last = {"name": "Last-Event-ID", "in": "header", "schema": {"type": "string"}}
        parameters.append(last)
        found["description"] = _EVENTS
    if parameters:
        found["parameters"] = parameters
    if one.takes is not None:
        # A control needs no body: all that it could say has a default.
        found["requestBody"] = {
            "required": bool(_schema_required(one)),
            "content": {"application/json": {"schema": schema_of[str(one.takes)]}},
        }
    if one.is_open:
        found["security"] = []
    return found


def _schema_required(one: Operation) -> list[str]:
    return [field.name for field in msgspec.structs.fields(one.takes) if field.required]


def _responses(one: Operation, schema_of: dict[str, Any]) -> dict[str, Any]:
    content = (
        {"text/event-stream": {}}
        if one.gives is None
        else {"application/json": {"schema": schema_of[str(one.gives)]}}
    )
    found = {str(one.status): {"description": HTTPStatus(one.status).phrase, "content": content}}
    statuses = [*one.refuses, 421, 429, 500]
    if not one.is_open:
        statuses.append(401)
    if one.takes is not None:
        statuses += [408, 503]
    failure = {"application/json": {"schema": schema_of[str(Failure)]}}
    for status in sorted(statuses):
        phrase = HTTPStatus(status).phrase
        found[str(status)] = {"description": phrase, "content": failure}
    return found
