"""Frames, and how a protocol writes its calls, notifications and answers as frames.

The shape is JSON-RPC's: both sides call, answer and notify, one JSON object a line. A protocol of
that shape with other words is another dialect.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias, final

import attrs

from .._errors import BackendMisbehaved, BackendRefused

__all__ = [
    "Dialect",
    "Frame",
    "Incoming",
    "JsonRpc",
    "Reply",
    "RpcError",
    "Said",
    "shorten",
    "to_blocks",
]

_METHOD_NOT_FOUND = -32601
_SHOWN = 200
_LONGEST_MESSAGE = 4096
Frame: TypeAlias = Mapping[str, Any]


class RpcError(Exception):
    """The peer answered a call with an error.

    Attributes:
        code: the protocol's number.
        message: the peer's text.
        data: what else it sent along.
    """

    def __init__(self, code: object, message: str, data: object = None) -> None:
        super().__init__(f"{message} ({code})")
        self.code = code
        self.message = message
        self.data = data


@attrs.frozen
class Said:
    """A frame that is a request, or a notification: that one has no number.

    Attributes:
        method: what it is.
        params: its parameters; empty where it has none.
        number: the request's id; None for a notification.
    """

    method: str
    params: Frame
    number: object = None


@attrs.frozen
class Reply:
    """A frame that answers a call.

    Attributes:
        number: the call's.
        result: its result.
        error: the error, in the place of a result.
    """

    number: object
    result: Any = None
    error: RpcError | None = None


class Dialect(Protocol):
    """How a protocol writes and reads. Numbers of calls count from 1."""

    def call(self, number: int, method: str, params: Frame) -> Frame:
        """A call of ours."""
        ...

    def notification(self, method: str, params: Frame | None) -> Frame:
        """A notification of ours."""
        ...

    def result(self, number: object, result: object) -> Frame:
        """Our answer to a request."""
        ...

    def refusal(self, number: object, message: str, code: int) -> Frame:
        """Our answer that it cannot be."""
        ...

    def read(self, frame: Frame) -> Said | Reply:
        """Understand a frame of the peer's. Its number is a key: no list, and no object.

        Raises:
            BackendMisbehaved: it is none of this protocol.
        """
        ...


@final
@attrs.frozen
class JsonRpc:
    """JSON-RPC 2.0, with or without the member that says so."""

    version: bool = True

    def call(self, number: int, method: str, params: Frame) -> Frame:
        """A call of ours."""
        return self._frame(id=number, method=method, params=params)

    def notification(self, method: str, params: Frame | None) -> Frame:
        """A notification of ours."""
        return self._frame(method=method, **({} if params is None else {"params": params}))

    def result(self, number: object, result: object) -> Frame:
        """Our answer to a request."""
        return self._frame(id=number, result=result)

    def refusal(self, number: object, message: str, code: int) -> Frame:
        """Our answer that it cannot be."""
        return self._frame(id=number, error={"code": code, "message": message})

    def read(self, frame: Frame) -> Said | Reply:
        """Understand a frame of the peer's."""
        method, number = frame.get("method"), frame.get("id")
        numbered = isinstance(number, int | float | str)
        if isinstance(method, str) and (numbered or number is None):
            params = frame.get("params")
            return Said(method, params if isinstance(params, dict) else {}, number)
        if not numbered:
            raise BackendMisbehaved(f"it wrote what is no JSON-RPC: {shorten(frame)}")
        if (error := frame.get("error")) is not None:
            return Reply(number, error=to_error(error))
        return Reply(number, frame.get("result"))

    def _frame(self, **members: Any) -> Frame:
        return {"jsonrpc": "2.0", **members} if self.version else members


@final
@attrs.define(eq=False)
class Incoming:
    """A notification of the peer, or a request, which wants exactly one `reply` or `refuse`.

    Attributes:
        method: what it is.
        params: its parameters; empty where it has none.
        raw: the frame as it came.
        number: the request's id; None for a notification.
        wants_reply: whether it is a request that nobody has answered yet.
    """

    method: str
    params: Frame
    raw: Frame = attrs.field(repr=False)
    _send: Callable[[Frame], None] = attrs.field(repr=False)
    _dialect: Dialect = attrs.field(repr=False, factory=JsonRpc)
    number: object = None
    wants_reply: bool = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self.wants_reply = self.number is not None

    def reply(self, result: object) -> None:
        """Answer, once; never waits. A second answer, or one to a notification, is dropped."""
        self._answer(self._dialect.result(self.number, result))

    def refuse(self, message: str, code: int = _METHOD_NOT_FOUND) -> None:
        """Answer with an error; else as `reply`."""
        self._answer(self._dialect.refusal(self.number, message, code))

    def _answer(self, answer: Frame) -> None:
        if self.wants_reply:
            self._send(answer)
            self.wants_reply = False


def decode(line: bytes) -> Frame:
    """The frame on a line.

    Raises:
        BackendMisbehaved: there is none.
    """
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        raise BackendMisbehaved(f"it wrote what is no JSON: {shorten(line)}") from None
    if not isinstance(frame, dict):
        raise BackendMisbehaved(f"it wrote what is no JSON-RPC: {shorten(line)}")
    return frame


def to_error(error: object) -> RpcError:
    """A JSON-RPC error object as an exception."""
    found = error if isinstance(error, dict) else {"message": str(error)}
    message = str(found.get("message", ""))[:_LONGEST_MESSAGE]
    return RpcError(found.get("code"), message, found.get("data"))


def to_blocks(content: object) -> str | list[Any]:
    """What a turn is asked, as it is written: a text, or a list of blocks.

    Raises:
        BackendRefused: it is neither, or has what JSON has no words for.
    """
    if not isinstance(content, str):
        if isinstance(content, bytes) or not isinstance(content, Sequence):
            kind = type(content).__name__
            raise BackendRefused(f"content is a text, or a list of content blocks, and no {kind}")
        content = list(content)
    try:
        json.dumps(content, allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise BackendRefused(f"the content cannot be sent: {error}") from error
    return content


def shorten(what: object) -> str:
    """What was written, for an error text."""
    text = what.decode(errors="replace") if isinstance(what, bytes) else repr(what)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
