"""What an error of a probe, or of its far end, is told as: what it is, and where it was raised."""

from __future__ import annotations

import os
import traceback
from collections.abc import Iterator

import trio

__all__ = ["told", "where"]

TRIO = os.path.dirname(trio.__file__)


def told(error: BaseException) -> str:
    """In one line; a group is told as what is in it."""
    return "; ".join(dict.fromkeys(_told_alone(one) for one in _leaves(error)))


def where(error: BaseException) -> str:
    """The way that it took, without the scheduler's own part of it."""
    return "\n".join(
        line.rstrip() for one in _leaves(error) for line in traceback.format_list(_frames(one))
    )


def _told_alone(error: BaseException) -> str:
    frames = _frames(error)
    place = ""
    if frames:
        last = frames[-1]
        place = f" (in {last.name}, {os.path.basename(last.filename)}:{last.lineno})"
    return f"{error!r}{place}"


def _leaves(error: BaseException) -> Iterator[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        for one in error.exceptions:
            yield from _leaves(one)
    else:
        yield error


def _frames(error: BaseException) -> list[traceback.FrameSummary]:
    frames = traceback.extract_tb(error.__traceback__)
    return [one for one in frames if not one.filename.startswith(TRIO)]
