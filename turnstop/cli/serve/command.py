"""The command line of `turnstop serve`."""

from __future__ import annotations

import errno
import logging
import os
import secrets
import sqlite3
import sys
from typing import TYPE_CHECKING

import click
import trio

from ..._errors import BackendError
from ..numbers import Positive
from .telling import TOKEN, Speaker, log_to

if TYPE_CHECKING:
    from .agents import Opener
    from .running import Job

__all__ = ["serve"]


class CannotServe(click.ClickException):
    """It cannot be served; the text is one line that says what to do."""

    exit_code = 2


@click.command(context_settings={"ignore_unknown_options": True})
@click.argument("adapter", required=False)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@click.option("--host", default="127.0.0.1", show_default=True, help="The address to listen on.")
@click.option(
    "--port",
    default=8000,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="0: any that is free.",
)
@click.option(
    "--allow-host",
    "hosts",
    multiple=True,
    metavar="NAME",
    help="A name that the server is asked by too; this machine's alone by default.",
)
@click.option(
    "--file",
    type=click.Path(dir_okay=False),
    help="Keep messages in this file, where they survive; in memory by default.",
)
@click.option(
    "--journal",
    type=click.Path(dir_okay=False),
    help="Note turns in this file: those that a killed server has left are ended by the next.",
)
@click.option(
    "--cancel-within",
    default=5.0,
    show_default=True,
    type=Positive(),
    help="Of a stop: seconds for the cancel.",
)
@click.option(
    "--kill-within",
    default=2.0,
    show_default=True,
    type=Positive(),
    help="Of a stop: seconds for the forceful rung.",
)
@click.option("--rooms", default=1000, show_default=True, type=click.IntRange(1))
@click.option(
    "--body",
    default=256 * 1024,
    show_default=True,
    type=click.IntRange(1),
    help="Bytes that a request's body may have.",
)
@click.option(
    "--rate",
    default=200.0,
    show_default=True,
    type=Positive(),
    help="Requests a second; twice as many at once.",
)
@click.option(
    "--at-once",
    default=128,
    show_default=True,
    type=click.IntRange(1),
    help="Messages that are handled at the same time.",
)
@click.option(
    "--retire-after",
    default=3600.0,
    show_default=True,
    type=Positive(or_inf=True),
    help="Seconds without work until a room's session is retired; inf: never.",
)
@click.option("--json", "as_json", is_flag=True, help="Say where it is as one line of JSON.")
@click.option("-v", "--verbose", is_flag=True, help="Log what happens, without what is said.")
def serve(
    adapter: str | None,
    args: tuple[str, ...],
    host: str,
    port: int,
    hosts: tuple[str, ...],
    file: str | None,
    journal: str | None,
    cancel_within: float,
    kill_within: float,
    rooms: int,
    body: int,
    rate: float,
    at_once: int,
    retire_after: float,
    as_json: bool,
    verbose: bool,
) -> None:
    """Serve rooms with an agent over HTTP, with a page where a person presses stop.

    ADAPTER is the name of an adapter, or module:factory; without one, an agent that demonstrates.
    ARGS are what its open_* takes by position: `a2a URL`, `acp COMMAND...`. Options of a command
    come behind `--`.

    Requests bear a token: the one in TURNSTOP_TOKEN, which the agent is not given; else a new one,
    which is printed once, on a terminal.

    SIGINT, SIGTERM and SIGHUP stop every turn, wait for the settlements, and keep unfinished
    messages; a second SIGINT or SIGTERM kills.

    Exit status: 0 when it was told to end; 2 when it cannot serve; 128 and the signal's number
    when it had to be killed.
    """
    token, is_new = _token()
    agent = adapter or "the demonstration"
    job = _job(
        _opener(adapter, args),
        (file, journal),
        (cancel_within, kill_within),
        {
            "token": token,
            "host": host,
            "port": port,
            "hosts": hosts,
            "agent": agent,
            "body": body,
            "rooms": rooms,
            "rate": rate,
            "burst": max(1, int(2 * rate)),
            "at_once": at_once,
            "retire_after": retire_after,
        },
    )
    speaker = Speaker(agent, token if is_new else None, as_json)
    log_to(speaker.err, logging.INFO if verbose else logging.WARNING)
    _run(job, speaker)


def _token() -> tuple[str, bool]:
    # Out of the environment, which every program that an agent starts is given.
    if given := os.environ.pop(TOKEN, ""):
        return given, False
    if sys.stdout is None or not sys.stdout.isatty():
        raise CannotServe(
            f"there is no {TOKEN}, and a new token is printed on a terminal only: set it,"
            """ e.g. to $(python3 -c "import secrets; print(secrets.token_urlsafe(24))")"""
        )
    return secrets.token_urlsafe(24), True


def _opener(adapter: str | None, args: tuple[str, ...]) -> Opener:
    from .agents import NoAgent, opener_of

    try:
        return opener_of(adapter, args)
    except NoAgent as error:
        raise CannotServe(str(error)) from None


def _job(
    opener: Opener,
    files: tuple[str | None, str | None],
    budget: tuple[float, float],
    settings: dict[str, object],
) -> Job:
    try:
        from ...server import Settings
        from .running import Job
    except ImportError as error:
        if (error.name or "").startswith("turnstop"):
            raise
        text = f"serve needs {error.name}: python -m pip install 'turnstop[server]'"
        raise CannotServe(text) from None
    from ..._budget import StopBudget

    file, journal = files
    cancel_within, kill_within = budget
    try:
        checked = Settings(**settings)  # type: ignore[arg-type]
    except ValueError as error:
        raise CannotServe(f"{TOKEN} cannot be used: {error}") from None
    return Job(
        opener=opener,
        settings=checked,
        budget=StopBudget(cancel_within=cancel_within, kill_within=kill_within),
        file=file,
        journal=journal,
    )


def _said(error: OSError) -> str:
    text = error.strerror or str(error)
    if error.errno == errno.EADDRINUSE:
        text = f"{text}: --port 0 takes any that is free"
    return text if error.filename is None else f"{error.filename}: {text}"


def _run(job: Job, speaker: Speaker) -> None:
    from ...feeds.sqlite import FeedInUse
    from .agents import NoAgent
    from .running import serve as serve_it

    try:
        trio.run(serve_it, job, speaker)
    except OSError as error:
        raise CannotServe(_said(error)) from error
    except (NoAgent, BackendError, FeedInUse, sqlite3.DatabaseError) as error:
        raise CannotServe(str(error)) from error
    finally:
        speaker.close()
