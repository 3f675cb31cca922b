"""What happens on a server, over more than one connection, and until turns are settled."""

from __future__ import annotations

import json
import time
from collections.abc import Generator, Iterator
from contextlib import closing
from typing import Any

import click

from ...transports.sse import ServerEvent
from .remote import Refused, Remote, Unreachable, path_of

__all__ = ["follow", "wait_settled"]

_TRIES = 6
_PATIENCE = 60.0
"""Seconds that a server which has too much to do is asked again."""


def follow(remote: Remote, path: str, after: str = "") -> Generator[ServerEvent, None, None]:
    """The events of a path, behind one where that is named, until the server ends.

    Raises:
        Refused: the server has said no.
        Unreachable: there is none, or none that comes back.
    """
    tries = 0
    while True:
        try:
            for event in remote.events(path, after):
                after, tries = event.id or after, 0
                yield event
            return
        except Unreachable:
            tries += 1
            if not after or tries > _TRIES:
                raise
            time.sleep(0.1 * 2**tries)


def wait_settled(remote: Remote, found: dict[str, Any]) -> list[dict[str, Any]]:
    """The settlements of the turns that a control has found, when each is there.

    A stop is bounded, so this ends.

    Raises:
        Refused: the server has said no.
        Unreachable: it has ended first.
        click.ClickException: what became of a turn is not known any more.
    """
    wanted, settled = set(found["turn_ids"]), list[dict[str, Any]]()
    if not wanted:
        return settled
    for kind, data in _patiently(remote, found["last_event_id"]):
        records = _records(remote, found["rooms"], wanted) if kind == "gap" else [data]
        for one in records:
            if kind in ("settlement", "gap") and one["turn_id"] in wanted:
                wanted.discard(one["turn_id"])
                settled.append(one)
        if not wanted:
            return settled
    raise Unreachable(f"the server has ended before {', '.join(sorted(wanted))} was settled")


def _patiently(remote: Remote, after: str) -> Iterator[tuple[str, dict[str, Any]]]:
    end = time.monotonic() + _PATIENCE
    while True:
        try:
            # Of all rooms: one whose turn has ended may be forgotten.
            with closing(follow(remote, "/events", after)) as events:
                for event in events:
                    after = event.id or after
                    yield event.kind, json.loads(event.data)
            return
        except Refused as error:
            _wait_for_another_try(error, end)


def _records(remote: Remote, rooms: list[str], wanted: set[str]) -> list[dict[str, Any]]:
    """What a stream had told that was missed."""
    end = time.monotonic() + _PATIENCE
    # First: a turn that ends meanwhile is told of in the stream.
    live = {one["turn_id"] for one in _ask(remote, "/rooms", end)}
    found = [
        record
        for room in rooms
        for record in _ask(remote, path_of(room, "settlements"), end)
        if record["turn_id"] in wanted
    ]
    if lost := wanted - live - {one["turn_id"] for one in found}:
        raise click.ClickException(f"what became of {', '.join(sorted(lost))} is not known here")
    return found


def _ask(remote: Remote, path: str, end: float) -> list[dict[str, Any]]:
    while True:
        try:
            answer: list[dict[str, Any]] = remote.get(path)
            return answer
        except Refused as error:
            if error.status == 404:
                return []
            _wait_for_another_try(error, end)


def _wait_for_another_try(error: Refused, end: float) -> None:
    if error.retry_after is None or time.monotonic() + error.retry_after > end:
        raise error
    time.sleep(error.retry_after)
