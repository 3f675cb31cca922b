"""Recordings of a wire: the file, and how what is of one machine or one run is taken out."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs

Direction: TypeAlias = Literal["->", "<-"]
DIRECTIONS: tuple[Direction, ...] = ("->", "<-")
_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|(?<![0-9a-zA-Z])[0-9a-f]{12,}")
_LOOPBACK = re.compile(r"(?:127\.0\.0\.1|localhost|\[::1\]):\d+")
_DAY = r"\d{4}([-/])\d\d\1\d\d"
_TIME = re.compile(_DAY + r"(?:[T ]\d\d([-:])\d\d\2\d\d[\d.]*(?:Z|[+-]\d\d:?\d\d)?)?")
_CLOCK = re.compile(r"(?:At|Ms|_at|_ms)$")


@attrs.frozen
class WireFrame:
    """One frame.

    Attributes:
        direction: `->` what the program is told, `<-` what it says.
        body: any JSON value; a str where the line was no JSON.
    """

    direction: Direction
    body: Any


@attrs.frozen
class Wire:
    """A recording of one scene."""

    program: str
    version: str
    scene: str
    frames: tuple[WireFrame, ...]


def read_frames(path: str | os.PathLike[str]) -> tuple[WireFrame, ...]:
    """The frames of a file of JSON lines; its header, where it has one, is passed over."""
    with open(path, encoding="utf-8") as file:
        return tuple(frame for line in file if (frame := _to_frame(json.loads(line))))


def _to_frame(line: Mapping[str, Any]) -> WireFrame | None:
    return next((WireFrame(one, line[one]) for one in DIRECTIONS if one in line), None)


def read_wire(path: str | os.PathLike[str]) -> Wire:
    """A recording from its file.

    Raises:
        ValueError: its first line is no header.
    """
    with open(path, encoding="utf-8") as file:
        head = json.loads(file.readline())
    try:
        return Wire(head["program"], head["version"], head["scene"], read_frames(path))
    except KeyError as error:
        raise ValueError(f"{os.fspath(path)} has no header: {error} is missing") from None


def write_wire(path: str | os.PathLike[str], wire: Wire) -> None:
    """A recording to its file; make it `tidy` first."""
    head = {"program": wire.program, "version": wire.version, "scene": wire.scene}
    lines = [head, *({frame.direction: frame.body} for frame in wire.frames)]
    text = "".join(json.dumps(line, ensure_ascii=False) + "\n" for line in lines)
    Path(path).write_text(text, encoding="utf-8")


def tidy(frames: Iterable[WireFrame], names: Mapping[str, str]) -> tuple[WireFrame, ...]:
    """The frames without what is of one machine, or of one run.

    Args:
        frames: as they were recorded.
        names: texts that are replaced wherever they stand, such as the path of a folder, and
            what stands there instead.

    Ids become `<1>`, `<2>`, in the order in which they appear; a time of day becomes `<time>`; a
    number whose key ends in `At` or `Ms` becomes 0; ports of loopback go.
    """
    tidier = _Tidier(sorted(names.items(), key=lambda item: -len(item[0])))
    return tuple(WireFrame(frame.direction, tidier.value(frame.body)) for frame in frames)


class _Tidier:
    def __init__(self, names: Sequence[tuple[str, str]]) -> None:
        self._names = names
        self._ids: dict[str, str] = {}

    def value(self, value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {self._text(name): self.value(one, name) for name, one in value.items()}
        if isinstance(value, list):
            return [self.value(one) for one in value]
        if isinstance(value, str):
            return self._text(value)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        return 0 if is_number and _CLOCK.search(key) else value

    def _text(self, text: str) -> str:
        for name, instead in self._names:
            text = text.replace(name, instead)
        text = _LOOPBACK.sub("<loopback>", text)
        text = _TIME.sub("<time>", text)
        return _ID.sub(self._number, text)

    def _number(self, found: re.Match[str]) -> str:
        return self._ids.setdefault(found[0], f"<{len(self._ids) + 1}>")
