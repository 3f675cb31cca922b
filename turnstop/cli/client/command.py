"""The command lines of `turnstop send`, `stop`, `interrupt`, `play` and `watch`."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import click

from ..output import writing
from .showing import Shower, timeline, visible

if TYPE_CHECKING:
    from .remote import Remote

__all__ = ["interrupt", "play", "send", "stop", "watch"]

Command = TypeVar("Command", bound=Callable[..., Any])


class NotInstalled(click.ClickException):
    """What a client needs is not there."""

    exit_code = 2


def _for_server(command: Command) -> Command:
    """The options that say which server is meant."""
    for option in (
        click.option("--json", "as_json", is_flag=True, help="Print JSON."),
        click.option(
            "--token", envvar="TURNSTOP_TOKEN", help="By default what TURNSTOP_TOKEN says."
        ),
        click.option(
            "--url",
            envvar="TURNSTOP_URL",
            default="http://127.0.0.1:8000",
            show_default=True,
            help="Where the server is; or what it printed, with the token behind it.",
        ),
    ):
        command = option(command)
    return command


def _remote(url: str, token: str | None) -> Remote:
    try:
        from .remote import remote_at
    except ImportError as error:
        if (error.name or "").startswith("turnstop"):
            raise
        text = f"this needs {error.name}: python -m pip install 'turnstop[server]'"
        raise NotInstalled(text) from None
    return remote_at(url, token)


def _named(ctx: click.Context, param: click.Parameter, room: str | None) -> str | None:
    if room in ("", ".", ".."):
        raise click.BadParameter(f"no room can be called {room!r}: it means something in a URL")
    return room


@click.command()
@click.argument("room", callback=_named)
@click.argument("text")
@click.option("--id", "message_id", help="One that was sent before is not sent again.")
@_for_server
def send(
    room: str, text: str, message_id: str | None, url: str, token: str | None, as_json: bool
) -> None:
    """Send TEXT to ROOM of a server; `-` reads it from stdin.

    Exit status: 0; 1 when the server refuses it; 2 when there is no server; 130 when interrupted.
    """
    from .remote import path_of

    content = sys.stdin.read() if text == "-" else text
    body = {"content": content} | ({"id": message_id} if message_id else {})
    found = _remote(url, token).post(path_of(room, "messages"), body)
    with writing("the answer"):
        click.echo(json.dumps(found) if as_json else f"sent as {visible(str(found['id']))}")


def _control(kind: str, text: str) -> click.Command:
    @click.command(kind, help=f"{text}\n\n{_STATUS}")
    @click.argument("room", required=False, callback=_named)
    @click.option("--all", "every", is_flag=True, help="All rooms.")
    @click.option("--turn", "turn_id", help="Only where this turn is the one worked on.")
    @click.option("--id", "control_id", help="Two with one id are one.")
    @click.option("--reason", default="", help="Kept in the settlement.")
    @click.option("--wait", is_flag=True, help="Wait until the turns are settled.")
    @_for_server
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
        if room is None and not every:
            raise click.UsageError("name a room, or say --all")
        if room is not None and every:
            raise click.UsageError(f"--all is all rooms: leave it out, or {visible(room)!r}")
        given = {"turn_id": turn_id, "id": control_id, "reason": reason}
        body = {name: value for name, value in given.items() if value}
        remote = _remote(url, token)
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
@click.argument("room", required=False, callback=_named)
@_for_server
def watch(room: str | None, url: str, token: str | None, as_json: bool) -> None:
    """Show what happens in ROOM, or in all rooms, until Ctrl-C or the server's end.

    It begins with what the server still knows, and goes on where it was when a connection breaks.
    For a ROOM that is not there yet it waits.

    Exit status: 0 when the server has ended; 1 when it refuses; 2 when there is none; 130 when
    interrupted.
    """
    remote = _remote(url, token)
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
