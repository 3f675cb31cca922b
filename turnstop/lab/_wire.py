"""What a wire format is to the lab. Each is a file beside this one, and listed in `_endpoint`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import attrs

from ._tools import Tool
from .behaviours import read_prompt


@attrs.frozen
class Asked:
    """A request, understood.

    Attributes:
        prompt: the user's last text with a token; empty where there is none.
        results: how many tool results came after it.
        faults: what is wrong with the history, a sentence each.
        tools: those that the model may call.
        limit: how many tokens it may answer, where the request says so.
        streamed: whether the answer is a stream, or one JSON object.
    """

    prompt: str = ""
    results: int = 0
    faults: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    limit: int | None = None
    streamed: bool = True

    @property
    def side(self) -> bool:
        """Whether it is beside the turn: a title, a summary, a check of the account.

        An agent goes on by calling tools. What is asked without any, or for one token, is not its
        turn, whatever it quotes.
        """
        return not self.tools or self.limit == 1


class Reply(Protocol):
    """One response in the making: each method returns the bytes to stream next."""

    def begin(self) -> bytes:
        """The frames before the first piece of text."""
        ...

    def piece(self, text: str) -> bytes:
        """A piece of the answer."""
        ...

    def call(self, name: str, arguments: Mapping[str, Any]) -> bytes:
        """A call of one of its tools."""
        ...

    def end(self) -> bytes:
        """The frames that complete the response."""
        ...

    def fail(self) -> bytes:
        """The frames that fail it."""
        ...

    def whole(self) -> Mapping[str, Any]:
        """The completed response as one object, for who asked for no stream."""
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


class Reader:
    """Goes over a history, oldest first, for the newest prompt and what came after it."""

    def __init__(self) -> None:
        self.prompt = ""
        self.results = 0

    def text(self, text: object) -> None:
        """A text of the user's. What programs add to it of their own carries no token."""
        if isinstance(text, str) and read_prompt(text):
            self.prompt, self.results = text, 0

    def result(self) -> None:
        """A tool's result."""
        self.results += 1


def dicts(given: object) -> list[Mapping[str, Any]]:
    """The objects in what should be a list of them."""
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def texts(content: object) -> Iterable[object]:
    """The texts of a content that is a text or a list of parts."""
    return [content] if isinstance(content, str) else [part.get("text") for part in dicts(content)]


def server_event(kind: str, data: Mapping[str, Any]) -> bytes:
    """A server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def data_event(data: Mapping[str, Any]) -> bytes:
    """A server-sent event without a name."""
    return f"data: {json.dumps(data)}\n\n".encode()
