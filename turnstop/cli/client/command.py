"""The command lines of `turnstop send`, `answer`, `stop`, `interrupt`, `play` and `watch`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from ..output import writing
from .options import for_server, named, remote_of
from .showing import Shower, timeline, visible

if TYPE_CHECKING:
    from .remote import Remote

__all__ = ["answer", "interrupt", "play", "send", "stop", "watch"]


@click.command()
@click.argument("room", callback=named)
@click.argument("text")
@click.option("--id", "message_id", help="One that was sent before is not sent again.")
@for_server
def send(
    room: str, text: str, message_id: str | None, url: str, token: str | None, as_json: bool
) -> None:
    """Send TEXT to ROOM of a server; `-` reads it from stdin.

    Exit status: 0; 1 when the server refuses it; 2 when there is no server; 130 when interrupted.
    """
    from .remote import path_of

    content = sys.stdin.read() if text == "-" else text
    if not content:
        raise click.UsageError("the text is empty")
    body = {"content": content} | ({"id": message_id} if message_id else {})
    remote = remote_of(url, token)
    found = remote.post(path_of(room, "messages"), body)
    with writing("the answer"):
        if as_json:
            click.echo(json.dumps(found))
            return
        click.echo(f"sent as {visible(str(found['id']))}")
        # Of a room that is paused nothing else would be heard.
        if remote.get(path_of(room))["paused"]:
            click.echo(f"the room is paused; to go on: turnstop play {visible(shlex.quote(room))}")


@click.command()
@click.argument("room", callback=named)
@click.argument("reply")
@click.option("--ask", help="The question's id, as watch shows it; by default the only one.")
@for_server
def answer(
    room: str, reply: str, ask: str | None, url: str, token: str | None, as_json: bool
) -> None:
    """Answer the question of ROOM's agent with REPLY, which is one of its choices, if it has some.

    Exit status: 0; 1 when nobody waits for it, or it is none of the choices; 2 when there is no
    server; 130 when interrupted.
    """
    from .remote import path_of

    remote = remote_of(url, token)
    state = remote.get(path_of(room))
    asks = [one for one in state["asks"] if ask in (None, one["id"])]
    if not asks:
        raise click.ClickException("nobody waits for an answer to that")
    if len(asks) > 1:
        ids = ", ".join(visible(one["id"]) for one in asks)
        raise click.ClickException(f"{len(asks)} questions wait: say which with --ask: {ids}")
    (found,) = asks
    if found["choices"] and reply not in found["choices"]:
        choices = ", ".join(map(visible, found["choices"]))
        raise click.ClickException(f"{visible(reply)} is none of the choices: {choices}")
    # The turn that was seen, and not the next one.
    body = {"ask": found["id"], "turn_id": state["turn_id"], "reply": reply}
    told = remote.post(path_of(room, "answers"), body)
    with writing("the answer"):
        click.echo(json.dumps(told) if as_json else f"answered: {visible(found['text'])}")


def _check_which(room: str | None, every: bool) -> None:
    if room is None and not every:
        raise click.UsageError("name a room, or say --all")
    if room is not None and every:
        raise click.UsageError(f"--all is all rooms: leave it out, or {visible(room)!r}")


def _control(kind: str, text: str) -> click.Command:
    @click.command(kind, help=f"{text}\n\n{_STATUS}")
    @click.argument("room", required=False, callback=named)
    @click.option("--all", "every", is_flag=True, help="All rooms.")
    @click.option("--turn", "turn_id", help="Only where this turn is the one worked on.")
    @click.option("--id", "control_id", help="It is applied once, however often it is sent.")
    @click.option("--reason", default="", help="Kept in the settlement.")
    @click.option("--wait", is_flag=True, help="Wait until the turns are settled.")
    @for_server
    def control(
        room: str | None,
        every: bool,
        turn_id: str | None,
        control_id: str | None,
        reason: str,
        wait: bool,
        url: str,
        token: str | None,
        as_json: bool,
    ) -> None:
        _check_which(room, every)
        given = {"turn_id": turn_id, "id": control_id, "reason": reason}
        body = {name: value for name, value in given.items() if value}
        remote = remote_of(url, token)
        from .following import wait_settled
        from .remote import path_of

        found = remote.post(f"/{kind}" if room is None else path_of(room, kind), body)
        settled = wait_settled(remote, found) if wait else []
        with writing("the answer"):
            if as_json:
                click.echo(json.dumps({**found, "settlements": settled}))
            else:
                _tell_control(kind, "--all" if room is None else shlex.quote(room), found)
                _tell_settled(settled)
        if any(not one["clean"] for one in settled):
            sys.exit(1)

    return control


_STATUS = """Exit status: 0; 1 when the server refuses it, or a turn that was waited for is not
gone; 2 when there is no server; 130 when interrupted."""


def _tell_control(kind: str, which: str, found: dict[str, Any]) -> None:
    if found["repeated"]:
        click.echo(f"this {kind} was applied before")
        return
    count = len(found["rooms"])
    rooms = "1 room" if count == 1 else f"{count} rooms"
    turns = f"stopping {', '.join(map(visible, found['turn_ids']))}"
    text = turns if found["turn_ids"] else "no turn to stop"
    if kind == "play":
        text = f"{rooms} may go on"
    elif kind == "stop":
        text = f"{rooms} paused, {text}"
        text += f"; to go on: turnstop play {visible(which)}" if count else ""
    click.echo(f"{kind}: {text}")


def _tell_settled(settled: list[dict[str, Any]]) -> None:
    for one in settled:
        text = f"{one['room']}: {one['ending'].upper()} {timeline(one)}"
        click.echo(visible(text).rstrip())


stop = _control("stop", "End the turn of ROOM, keep its message for play, and pause the room.")
interrupt = _control("interrupt", "End the turn of ROOM; its message counts as handled.")
play = _control("play", "Go on with ROOM: what a stop has left is handled anew.")


@click.command()
@click.argument("room", required=False, callback=named)
@for_server
def watch(room: str | None, url: str, token: str | None, as_json: bool) -> None:
    """Show what happens in ROOM, or in all rooms, until Ctrl-C or the server's end.

    It begins with what the server still knows, and goes on where it was when a connection breaks.
    For a ROOM that is not there yet it waits.

    Exit status: 0 when the server has ended; 1 when it refuses; 2 when there is none; 130 when
    interrupted.
    """
    remote = remote_of(url, token)
    from .remote import path_of

    path = "/events" if room is None else path_of(room, "events")
    shower = Shower()
    with writing("what happens"):
        try:
            _watch(remote, path, room, partial(_show, shower, as_json))
        finally:
            shower.end()


def _watch(remote: Remote, path: str, room: str | None, show: Callable[..., None]) -> None:
    from .following import follow
    from .remote import Refused

    try:
        for event in follow(remote, path):
            show(event.id, event.kind, json.loads(event.data))
        return
    except Refused as error:
        if room is None or error.status != 404:
            raise
    click.echo(f"there is no room {visible(room)!r} yet: a message makes it", err=True)
    for event in follow(remote, "/events"):
        data = json.loads(event.data)
        if data.get("room") == room:
            show(event.id, event.kind, data)


def _show(shower: Shower, as_json: bool, id: str, kind: str, data: dict[str, Any]) -> None:
    if as_json:
        click.echo(json.dumps({"id": id, "type": kind, **data}))
    else:
        shower.show(kind, data)
    sys.stdout.flush()
