"""What stands in the file of `turnstop.feeds.sqlite`, as messages and controls."""

from __future__ import annotations

import json
import logging
import math
import sqlite3
from collections.abc import Callable
from typing import Any, Final, TypeVar

import attrs

from .._inbox import Control, ControlKind, Message

__all__ = ["can_be_kept", "look", "to_message", "to_text", "unheard"]

logger = logging.getLogger("turnstop.feeds")

Result = TypeVar("Result")

_BATCH: Final = 100


def to_message(room: str, id: str, content: str, attempt: int) -> Message:
    """A row of messages."""
    return Message(room, id, json.loads(content), attempt)


def to_text(control: Control) -> str:
    """What stands in a row of controls."""
    return json.dumps({**attrs.asdict(control), "kind": control.kind.value})


def _to_control(text: str) -> Control:
    found = json.loads(text)
    return Control(**{**found, "kind": ControlKind(found["kind"])})


def _read(fn: Callable[..., Result], number: int, *row: Any) -> Result | None:
    try:
        return fn(*row)
    except (LookupError, TypeError, ValueError) as error:
        # A newer turnstop has written it, say. Those behind it are to be heard.
        told = (fn.__name__.rpartition("_")[2], number, type(error).__name__)
        logger.warning("%s %d in the file is not understood: %s", *told)
        return None


def can_be_kept(room: str) -> bool:
    """Whether a file can have a room of this name."""
    try:
        room.encode()
    except UnicodeEncodeError:
        return False
    return True


def unheard(database: sqlite3.Connection, heard: int) -> list[Control]:
    """The controls that were posted since, in the order in which they were."""
    query = "SELECT number, control FROM controls WHERE number > ? ORDER BY number"
    found = [_read(_to_control, *row) for row in database.execute(query, (heard,))]
    return [control for control in found if control is not None]


def look(
    database: sqlite3.Connection, announced: int, heard: int
) -> list[tuple[int, int, Message | Control | None]]:
    """What was posted since, in the order in which it was: not always all of it.

    Args:
        announced: the number of the last message.
        heard: the number of the last control.

    Returns:
        For a message its number, 0, and itself. For a control the number of the message that was
        posted before it, its own, and itself. None where one cannot be understood.
    """
    # Controls first: of the messages before them, none is posted later.
    controls = database.execute(
        f"SELECT after, number, control FROM controls WHERE number > ?"
        f" ORDER BY number LIMIT {_BATCH}",
        (heard,),
    ).fetchall()
    messages = database.execute(
        f"SELECT number, room, id, content, attempt FROM messages"
        f" WHERE ended IS NULL AND number > ? ORDER BY number LIMIT {_BATCH}",
        (announced,),
    ).fetchall()
    # Behind the last of a batch that is full there may be more of its kind.
    until = min(
        (rows[-1][0] for rows in (controls, messages) if len(rows) == _BATCH), default=math.inf
    )
    found: list[tuple[int, int, Any]] = [
        (number, 0, _read(to_message, number, *rest))
        for number, *rest in messages
        if number <= until
    ]
    found += [
        (after, number, _read(_to_control, number, text))
        for after, number, text in controls
        if after <= until
    ]
    return sorted(found, key=lambda one: one[:2])
