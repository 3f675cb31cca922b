"""What a wire format is to the lab. Each is a file beside this one, and listed in `_endpoint`."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any, Protocol

import attrs

from ._tools import Tool
from .behaviours import read_prompt


@attrs.define
class History:
    """What a history comes to, told oldest first: the newest prompt, and what came after it.

    Attributes:
        prompt: the user's last text with a token; empty where there is none.
        results: how many tool results came after it.
        moved_on: whether the user's part went on to something without a token, after an answer.
    """

    prompt: str = ""
    results: int = 0
    moved_on: bool = False
    _is_answered: bool = False

    def user(self, text: object) -> None:
        """A text of the user's. What programs add to it of their own carries no token."""
        if not isinstance(text, str):
            return
        if read_prompt(text):
            self.prompt, self.results = text, 0
            self.moved_on = self._is_answered = False
        elif self.prompt and self._is_answered and text.strip():
            self.moved_on = True

    def model(self, text: object) -> None:
        """A text of the model's: an answer, unless it calls a tool as well."""
        if isinstance(text, str) and text.strip():
            self._is_answered = True

    def call(self) -> None:
        """The model's call of a tool."""
        self._is_answered = False

    def result(self) -> None:
        """A tool's result."""
        self.results += 1


@attrs.frozen
class Asked:
    """A request, understood.

    Attributes:
        history: what its history comes to.
        faults: what is wrong with the history, a sentence each.
        tools: those that the model may call.
        limit: how many tokens it may answer, where the request says so.
        streamed: whether the answer is a stream, or one JSON object.
        schema: of the JSON that the text of the answer is to be, where it is.
    """

    history: History
    faults: tuple[str, ...] = ()
    tools: tuple[Tool, ...] = ()
    limit: int | None = None
    streamed: bool = True
    schema: Mapping[str, Any] | None = None

    @property
    def side(self) -> bool:
        """Whether it is beside the turn: a title, a summary, a check of the account.

        An agent goes on by calling tools: what is asked without any, for one token, or for JSON of
        a schema, is not its turn, whatever it quotes. Some ask for a summary with all of them: then
        it is the user's part that says something else, after the prompt was answered.
        """
        wants_no_call = not self.tools or self.limit == 1 or self.schema is not None
        return wants_no_call or self.history.moved_on


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


def dicts(given: object) -> list[Mapping[str, Any]]:
    """The objects in what should be a list of them."""
    return [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []


def texts(content: object) -> Iterable[object]:
    """The texts of a content that is a text, or a list of parts."""
    return [content] if isinstance(content, str) else [part.get("text") for part in dicts(content)]


def within(body: Mapping[str, Any], *names: str) -> Any:
    """What is in the body at the end of the names; None where they lead nowhere."""
    found: Any = body
    for name in names:
        found = found.get(name) if isinstance(found, dict) else None
    return found


def server_event(kind: str, data: Mapping[str, Any]) -> bytes:
    """A server-sent event."""
    return f"event: {kind}\ndata: {json.dumps(data)}\n\n".encode()


def data_event(data: Mapping[str, Any]) -> bytes:
    """A server-sent event without a name."""
    return f"data: {json.dumps(data)}\n\n".encode()
