"""The OpenAPI document is true: what it lists is there, and answers as it says."""

from __future__ import annotations

import json
from typing import Any

import pytest
import trio
from servers import serving
from starlette.routing import Route, Router

from turnstop.adapters.local import Work
from turnstop.events import Ask
from turnstop.server._app import _PAGE
from turnstop.server._openapi import document
from turnstop.server._routes import OPERATIONS

UNLISTED = {*_PAGE, "/openapi.json"}


async def asks(work: Work) -> None:
    await work.ask(Ask("a1", "question", "Why?"))
    await trio.sleep_forever()


async def test_the_document_lists_every_route_and_no_other(monkeypatch: pytest.MonkeyPatch) -> None:
    routes = list[Route]()
    made = Router.__init__

    def make(self: Router, given: list[Route], **more: Any) -> None:
        routes.extend(given)
        made(self, given, **more)

    monkeypatch.setattr(Router, "__init__", make)
    async with serving(asks) as served:
        told = (await served.http.get("/openapi.json")).json()
    listed = {(path, method.upper()) for path, item in told["paths"].items() for method in item}
    there = {
        (route.path, method)
        for route in routes
        for method in route.methods - {"HEAD"}
        if route.path not in UNLISTED
    }
    assert listed == there
    assert {route.path for route in routes} >= UNLISTED


async def test_what_is_listed_answers_with_a_status_that_is_listed() -> None:
    bodies = [
        b"",
        b"{}",
        b'{"content": "x"}',
        b'{"ask": "a1", "reply": [1]}',
        b'{"ask": "zz", "reply": null}',
        b"[1]",
        b"\xff",
        b'{"content": 1}',
        b'{"id": "i", "reason": "r"}',
        b'{"id": 0}',
    ]
    async with serving(asks) as served:
        for path, item in document(OPERATIONS, "1")["paths"].items():
            for method, one in item.items():
                if "text/event-stream" in json.dumps(one):
                    continue
                for room in ("kitchen", "nowhere", "%FF", "x" * 300):
                    for body in bodies if "requestBody" in one else [b""]:
                        url = path.replace("{room}", room)
                        response = await served.http.request(method, url, content=body)
                        where = f"{method} {url[:40]} {body!r}: {response.text}"
                        found = one["responses"].get(str(response.status_code))
                        assert found is not None, where
                        (schema,) = (each["schema"] for each in found["content"].values())
                        assert fits(response.json(), schema), where


def fits(value: object, schema: dict) -> bool:
    """Whether JSON is what a schema says, as far as this document goes."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return fits(value, document(OPERATIONS, "1")["components"]["schemas"][name])
    if "anyOf" in schema:
        return any(fits(value, one) for one in schema["anyOf"])
    kinds = {"string": str, "integer": int, "boolean": bool, "null": type(None)}
    if (kind := schema.get("type")) in kinds:
        return type(value) is kinds[kind]
    if kind == "array":
        return isinstance(value, list) and all(fits(one, schema["items"]) for one in value)
    assert kind == "object", schema
    if not isinstance(value, dict) or not set(schema.get("required", ())) <= set(value):
        return False
    known = schema.get("properties", {})
    if known and not set(value) <= set(known):
        return False
    return all(fits(value[name], one) for name, one in known.items() if name in value)


async def test_what_needs_no_token_says_so() -> None:
    told = document(OPERATIONS, "1")
    assert told["security"] == [{"token": []}]
    open_paths = [
        p for p, item in told["paths"].items() for one in item.values() if "security" in one
    ]
    assert open_paths == ["/health"]
