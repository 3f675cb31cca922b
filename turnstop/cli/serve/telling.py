"""What `turnstop serve` says, to whom, and that nobody has to be there to hear it."""

from __future__ import annotations

import json
import sys
from contextlib import suppress
from typing import TYPE_CHECKING

import attrs
import click

from ..output import CannotWrite, writing

if TYPE_CHECKING:
    from ...server import Server

__all__ = ["TOKEN", "Speaker"]

TOKEN = "TURNSTOP_TOKEN"


@attrs.frozen
class Speaker:
    """Tells on stdout where the server is, and the rest on stderr. A `turnstop.cli.serve` Teller.

    Attributes:
        agent: what is served.
        token: a new one, which is told once; None: the one that was given, which never is.
        as_json: in one line, for a program.
    """

    agent: str
    token: str | None = attrs.field(repr=False)
    as_json: bool

    def serves(self, server: Server) -> None:
        """It answers now."""
        if self.as_json:
            told = {"url": server.url, "agent": self.agent}
            _say(json.dumps({**told, "token": self.token} if self.token else told))
            return
        _say(f"turnstop serves {self.agent} at {server.url}")
        if self.token:
            _say(f"open {server.url}/#token={self.token}")
            _say(f"commands: export {TOKEN}={self.token}")

    def ends(self, live: int) -> None:
        """It was told to end, with so many turns to be stopped."""
        _say(f"ending: {live} turns are stopped; once more kills", err=True)

    def kills(self, processes: int) -> None:
        """It was told again, and has killed so many processes."""
        _say(f"killed {processes} processes", err=True)

    def close(self) -> None:
        """Leave nothing that Python would try to write once more, and fail, at its exit."""
        for err in (False, True):
            _say("", err=err)


def _say(text: str, *, err: bool = False) -> None:
    """A closed pipe or a full disk keeps no turn from being stopped."""
    stream = sys.stderr if err else sys.stdout
    if stream is not None:
        with suppress(CannotWrite), writing("what is told", stream):
            click.echo(text, file=stream, nl=bool(text))
