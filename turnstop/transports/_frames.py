"""The frames of JSON-RPC: what came in, what an error answer is, and how a line is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias, final

import attrs

from .._errors import BackendMisbehaved

_METHOD_NOT_FOUND = -32601
_SHOWN = 200
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


@final
@attrs.define(eq=False)
class Incoming:
    """A notification of the peer, or a request, which wants exactly one `reply` or `refuse`.

    Attributes:
        method: what it is.
        params: its parameters; empty where it has none.
        raw: the frame as it came.
        wants_reply: whether it is a request that nobody has answered yet.
    """

    method: str
    params: Frame
    raw: Frame = attrs.field(repr=False)
    _send: Callable[[Frame], None] = attrs.field(repr=False)
    wants_reply: bool = False

    def reply(self, result: object) -> None:
        """Answer, once; never waits. A second answer, or one to a notification, is dropped."""
        self._answer({"result": result})

    def refuse(self, message: str, code: int = _METHOD_NOT_FOUND) -> None:
        """Answer with an error; else as `reply`."""
        self._answer({"error": {"code": code, "message": message}})

    def _answer(self, answer: Frame) -> None:
        if self.wants_reply:
            self._send({"id": self.raw["id"], **answer})
            self.wants_reply = False


def decode(line: bytes) -> Frame:
    try:
        frame = json.loads(line)
    except (ValueError, RecursionError):
        raise BackendMisbehaved(f"it wrote what is no JSON: {shorten(line)}") from None
    if not isinstance(frame, dict):
        raise BackendMisbehaved(f"it wrote what is no JSON-RPC: {shorten(line)}")
    return frame


def to_error(error: object) -> RpcError:
    found = error if isinstance(error, dict) else {"message": str(error)}
    return RpcError(found.get("code"), str(found.get("message", "")), found.get("data"))


def shorten(what: object) -> str:
    text = what.decode(errors="replace") if isinstance(what, bytes) else repr(what)
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}..."
