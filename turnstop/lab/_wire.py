"""What a wire format is to the lab. Each is a file beside this one, and listed in `_endpoint`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Protocol

import attrs


@attrs.frozen
class Asked:
    """A request, understood.

    Attributes:
        prompt: the last message with a token that the user sent; empty where there is none.
        results: how many tool results came after it.
        faults: what is wrong with the history, a sentence each.
    """

    prompt: str = ""
    results: int = 0
    faults: tuple[str, ...] = ()


class Reply(Protocol):
    """One streamed response in the making: each method returns the bytes to send next."""

    def begin(self) -> bytes:
        """The frames before the first piece of text."""
        ...

    def piece(self, text: str) -> bytes:
        """A piece of the answer."""
        ...

    def tool(self, command: str) -> bytes:
        """A call of the program's shell tool, in place of an answer."""
        ...

    def call(self, name: str, arguments: Mapping[str, Any]) -> bytes:
        """A call of any of its tools."""
        ...

    def end(self) -> bytes:
        """The frames that complete the response."""
        ...

    def fail(self) -> bytes:
        """The frames that fail it."""
        ...


class Wire(Protocol):
    """A wire format."""

    name: str

    def serves(self, method: str, path: str) -> bool:
        """Whether a request with this method and path (no query) is one of this format."""
        ...

    def read(self, body: Mapping[str, Any]) -> Asked:
        """Understand a request."""
        ...

    def reply(self, body: Mapping[str, Any]) -> Reply:
        """A new response to it."""
        ...


def server_event(kind: str, data: Mapping[str, Any]) -> bytes:
    """A server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()
