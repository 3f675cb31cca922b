"""The command line of `turnstop journal`."""

from __future__ import annotations

import json
import os
import sqlite3
import sys
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

import click
import trio

from ..._records import Settlement
from ...journal._reading import ListedTurn
from ..numbers import Positive
from ..output import Output, opened, writing
from .showing import (
    busy_line,
    ended_line,
    listed_to_json,
    open_line,
    told_lines,
    told_to_json,
)

__all__ = ["journal"]

Command = TypeVar("Command", bound=Callable[..., Any])
Result = TypeVar("Result")
Lines: TypeAlias = Sequence[str]


class CannotUse(click.ClickException):
    """The file cannot be used; the text says what to do."""

    exit_code = 2


class NoSuchTurn(click.ClickException):
    """The journal is there, and says nothing of it."""

    exit_code = 1


_SORTS: dict[str, Callable[[ListedTurn], bool]] = {
    "left": lambda turn: turn.alive is not True,
    "being_ended": lambda turn: turn.alive is True and turn.taken_over,
    "at_work": lambda turn: turn.alive is True and not turn.taken_over,
}

_WHAT_TO_DO = (
    ("locked", "another program keeps it: try again, or end that one"),
    ("readonly", "see who may write it and its folder, or take a copy of it and what is beside it"),
    ("unable to open", "copy it, with what is beside it, to a folder that you may write"),
    ("malformed", "it is damaged, and left as it is: move it away, and a new one is begun"),
    ("no such table", "it is damaged, and left as it is: move it away, and a new one is begun"),
    ("not a database", "it is no journal, and left as it is"),
    ("it is empty", "no journal was begun in it, and it is left so"),
    ("full", "free some room on its disk"),
)


@contextmanager
def _using(path: Path) -> Iterator[None]:
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        text = str(error) if str(path) in str(error) else f"{path}: {error}"
        advice = next((f"; {do}" for said, do in _WHAT_TO_DO if said in text), "")
        raise CannotUse(text + advice) from error
    except (ValueError, KeyError, TypeError) as error:
        raise CannotUse(f"{path}: it says what no journal says: {error!r}") from error


def _run(path: Path, fn: Callable[..., Coroutine[Any, Any, Result]], *args: Any) -> Result:
    with _using(path):
        return trio.run(fn, path, *args)


def _on_file(command: Command) -> Command:
    """What they all take."""
    for option in (
        click.option(
            "--json",
            "json_name",
            is_flag=False,
            flag_value="-",
            help="Write it as JSON; without a name to stdout.",
            metavar="[NAME]",
        ),
        click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path)),
    ):
        command = option(command)
    return command


def _output(file: Path, json_name: str | None) -> Output | None:
    """Open what is to be written, which is never the journal nor what belongs beside it."""
    if json_name is None:
        return None
    place, journal = os.path.realpath(json_name), os.path.realpath(file)
    beside = {journal + more for more in ("", "-wal", "-shm", "-journal")}
    if place in beside or place.startswith(f"{journal}-owner-"):
        raise click.BadParameter("--json would overwrite the journal: name another file")
    return opened(json_name)


def _tell(json_name: str | None, output: Output | None, told: object, lines: Lines) -> None:
    if json_name != "-":
        with writing("what was found"):
            click.echo("\n".join(lines))
    if output is not None:
        with writing("--json"), output as file:
            file.write(json.dumps(told, indent=1) + "\n")


@click.group()
def journal() -> None:
    """Look into a journal of turns, and end what dead processes have left."""


@journal.command("list")
@_on_file
def list_turns(file: Path, json_name: str | None) -> None:
    """List the open turns of the journal FILE: those that have begun and are not settled.

    Exit status: 0; 2 when FILE cannot be read; 130 when interrupted.
    """
    from ...journal._reading import list_open

    output = _output(file, json_name)
    found = _run(file, list_open)
    told = {"file": str(file), "open": list(map(listed_to_json, found))}
    _tell(json_name, output, told, list(map(open_line, found)) or ["no turn is open"])


@journal.command()
@_on_file
@click.argument("turn")
def show(file: Path, turn: str, json_name: str | None) -> None:
    """Show what the journal FILE keeps of TURN: when it was what.

    Exit status: 0; 1 when it keeps nothing of it; 2 when FILE cannot be read; 130 when interrupted.
    """
    from ...journal._reading import tell_turns

    output = _output(file, json_name)
    found = _run(file, tell_turns, turn)
    if not found:
        raise NoSuchTurn(
            f"{file} keeps nothing of a turn {turn}: `turnstop journal list` says more"
        )
    told = {"file": str(file), "turns": list(map(told_to_json, found))}
    _tell(json_name, output, told, [line for one in found for line in told_lines(one)])


@journal.command()
@_on_file
@click.option(
    "--cancel-within",
    default=5.0,
    show_default=True,
    type=Positive(),
    help="Seconds for an orderly end.",
)
@click.option(
    "--kill-within",
    default=2.0,
    show_default=True,
    type=Positive(),
    help="Seconds for the forceful one.",
)
def recover(file: Path, cancel_within: float, kill_within: float, json_name: str | None) -> None:
    """End what processes that are gone have left open in the journal FILE, where that is a process.

    What was work of theirs alone has ended with them, and is settled so.
    What works elsewhere, or may, is ended by its program alone: it is listed; and so is what
    another process has taken up, and what a program that is there works on itself.

    Exit status: 0, also where such a program is at work; 1 when something is left, may be alive, or
    was taken up by another process; 2 when FILE cannot be used; 130 when interrupted.
    """
    from ..._budget import StopBudget
    from .recovering import recover as recover_it

    output, ended = _output(file, json_name), list[Settlement]()
    try:
        found = _run(file, recover_it, StopBudget(cancel_within, kill_within), ended)
    except (KeyboardInterrupt, click.ClickException):
        if ended:
            _tell(json_name, output, _recovered(file, ended, None), list(map(ended_line, ended)))
        raise
    left = [one for one in found if one.alive is not True]
    busy = [one for one in found if one.alive is True]
    lines = [*map(ended_line, ended), *map(busy_line, busy), *map(open_line, left)]
    lines += [
        f"it is ended when its program opens rooms of {name} with this journal"
        for name in dict.fromkeys(one.backend for one in left)
    ]
    _tell(json_name, output, _recovered(file, ended, found), lines or ["nothing was left"])
    if left or any(one.taken_over for one in busy) or not all(one.gone for one in ended):
        sys.exit(1)


def _recovered(
    file: Path, ended: Sequence[Settlement], found: Sequence[ListedTurn] | None
) -> dict[str, Any]:
    """What has become of what was left; where it ends early, what is open was not looked at."""
    told: dict[str, Any] = {"file": str(file), "ended": [one.to_json() for one in ended]}
    for name, is_so in _SORTS.items():
        told[name] = None if found is None else [listed_to_json(t) for t in found if is_so(t)]
    return told


@journal.command()
@_on_file
def compact(file: Path, json_name: str | None) -> None:
    """Drop what the journal FILE keeps of settled turns, and give the room back to the disk.

    Programs that have it open go on.

    Exit status: 0; 2 when FILE cannot be used; 130 when interrupted.
    """
    from .recovering import compact as compact_it

    output = _output(file, json_name)
    gone = _run(file, compact_it)
    _tell(json_name, output, {"file": str(file), "dropped": gone}, [f"{gone} records are gone"])
