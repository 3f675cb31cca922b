"""What the commands that talk to a server have in common: which server, and which room."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from .remote import Remote

__all__ = ["NotInstalled", "for_server", "named", "remote_of"]

Command = TypeVar("Command", bound=Callable[..., Any])


class NotInstalled(click.ClickException):
    """What a client needs is not there."""

    exit_code = 2


def for_server(command: Command) -> Command:
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


def remote_of(url: str, token: str | None) -> Remote:
    """The server at an address.

    Raises:
        NotInstalled: a client needs what is not there.
        click.ClickException: there is no token, or the address is none.
    """
    try:
        from .remote import remote_at
    except ImportError as error:
        if (error.name or "").startswith("turnstop"):
            raise
        text = f"this needs {error.name}: python -m pip install 'turnstop[server]'"
        raise NotInstalled(text) from None
    return remote_at(url, token)


def named(ctx: click.Context, param: click.Parameter, room: str | None) -> str | None:
    """A room's name, as an argument's callback."""
    if room in ("", ".", ".."):
        raise click.BadParameter(f"no room can be called {room!r}: it means something in a URL")
    return room
