"""What a room says, for a terminal: one line for each thing, and an answer as it comes."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, final

import attrs
import click

__all__ = ["Shower", "timeline", "visible"]

_CONTROL = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)
_INDENT = " " * 4
_STEPS = ("asked_at", "sent_at", "acked_at", "ended_at", "settled_at")


def visible(text: str) -> str:
    """The text in one line, without what would have a terminal do something, or read another way.

    So what begins a line is ours, and nobody's who is in a room.
    """
    return _CONTROL.sub("\ufffd", text.replace("\n", "\N{DOWNWARDS ARROW WITH CORNER LEFTWARDS}"))


def _paragraph(text: str) -> str:
    """The same, in as many lines as it has: only the first begins where lines begin."""
    return f"\n{_INDENT}".join(map(visible, text.split("\n")))


def timeline(settlement: dict[str, Any]) -> str:
    """How a stop went: each step in its time's order, in milliseconds after it was asked for."""
    asked = settlement.get("asked_at")
    if asked is None:
        return ""
    told = ((name.removesuffix("_at"), settlement.get(name)) for name in _STEPS[1:])
    # The end may come before the answer to the cancel.
    steps = sorted(((at, name) for name, at in told if at is not None), key=lambda step: step[0])
    return ", ".join(f"{name} {1000 * (at - asked):.1f} ms" for at, name in steps)


def _settlement(data: dict[str, Any]) -> str:
    how = f"{str(data.get('ending', '?')).upper()} {timeline(data)}".rstrip()
    if (data.get("request") or {}).get("kind") == "recovery":
        how = f"{data.get('turn_id')} of a process that is gone: {how}"
    survivors = data.get("survivors") or ()
    return f"{how}; alive: {', '.join(survivors)}" if survivors else how


def _message(data: dict[str, Any]) -> str:
    words = [data.get("state"), data.get("id"), data.get("content") or data.get("reason")]
    return " ".join(str(word) for word in words if word)


def _ask(data: dict[str, Any]) -> str:
    choices = data.get("choices") or ()
    return f"{data.get('text')} [{' / '.join(choices)}] ({data.get('id')})"


_LINES: dict[str, Callable[[dict[str, Any]], str]] = {
    "message": _message,
    "turn": lambda data: str(data.get("turn_id")),
    "tool_call": lambda data: f"{data.get('name')} {data.get('state')} {data.get('detail', '')}",
    "ask": _ask,
    "answered": lambda data: str(data.get("ask")),
    "withdrawn": lambda data: str(data.get("ask")),
    "usage": lambda data: f"{data.get('input_tokens')} in, {data.get('output_tokens')} out",
    "other": lambda data: str(data.get("kind")),
    "stopping": lambda data: f"{data.get('control')} {data.get('turn_id')} {data.get('reason')}",
    "settlement": _settlement,
    "gap": lambda data: str(data.get("reason")),
}


@final
@attrs.define(eq=False)
class Shower:
    """Shows events on stdout."""

    _open: tuple[str, str] | None = None

    def show(self, kind: str, data: dict[str, Any]) -> None:
        """Show an event. Neighbouring pieces of an answer are put together."""
        room = visible(str(data.get("room", "all rooms")))
        if kind in ("text", "thought"):
            self._show_piece(kind, room, _paragraph(str(data.get("delta", ""))))
            return
        self.end()
        line = visible(str(_LINES[kind](data)) if kind in _LINES else "")
        click.echo(f"{room}: {kind} {line.strip()}".rstrip())

    def _show_piece(self, kind: str, room: str, piece: str) -> None:
        if self._open != (kind, room):
            self.end()
            self._open = (kind, room)
            click.echo(f"{room}: {'' if kind == 'text' else kind + ' '}", nl=False)
        click.echo(piece, nl=False)

    def end(self) -> None:
        """End the line that is open."""
        if self._open is not None:
            click.echo()
            self._open = None
