"""The command line of `turnstop rooms`."""

from __future__ import annotations

import json
import shlex
from typing import Any

import click

from ..output import writing
from .options import for_server, remote_of
from .showing import visible

__all__ = ["rooms"]


@click.command()
@for_server
def rooms(url: str, token: str | None, as_json: bool) -> None:
    """List a server's rooms, and what each waits for.

    Exit status: 0; 1 when the server refuses it; 2 when there is no server; 130 when interrupted.
    """
    found = remote_of(url, token).get("/rooms")
    with writing("the rooms"):
        if as_json:
            click.echo(json.dumps(found))
            return
        for state in found:
            click.echo(visible(f"{state['room']}: {_standing(state)}"))
            for ask in state["asks"]:
                click.echo(visible(f"    {_question(ask)}"))
        if not found:
            click.echo("no rooms yet: turnstop send ROOM TEXT makes one")


def _standing(state: dict[str, Any]) -> str:
    work = f"works on {state['turn_id']}" if state["turn_id"] else "idle"
    words = [f"paused (turnstop play {shlex.quote(state['room'])})" if state["paused"] else work]
    if state["paused"] and state["turn_id"]:
        words.append(f"stopping {state['turn_id']}")
    if state["waiting"]:
        words.append(f"{state['waiting']} not finished")
    words += [
        f"{one['turn_id']} of a process that is gone: {one['ending'].upper()}"
        for one in state.get("recovered", ())
    ]
    return ", ".join(words)


def _question(ask: dict[str, Any]) -> str:
    choices = " / ".join(ask["choices"]) or "any text"
    return f"asks {ask['id']}: {ask['text']} [{choices}]"
