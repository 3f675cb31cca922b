"""What `turnstop serve` says, to whom, and that nobody has to be there to hear it."""

from __future__ import annotations

import json
import logging
import os
import queue
import sys
import threading
import time
from contextlib import suppress
from typing import IO, TYPE_CHECKING, Final, final

import attrs
import click

if TYPE_CHECKING:
    from ...server import Server

__all__ = ["DEFAULT_URL", "TOKEN", "Lines", "Speaker", "log_to"]

TOKEN = "TURNSTOP_TOKEN"
DEFAULT_URL = "http://127.0.0.1:8000"
"""Where the commands look for a server that nobody has told them of."""
_MOST_LINES: Final = 1000
_PATIENCE: Final = 0.5
"""Seconds that whoever is slow to read has for the last lines."""
_WORDS: Final = "%(asctime)s %(levelname)s %(name)s: %(message)s"


@final
@attrs.define(eq=False)
class Lines:
    """Writes lines to a stream, from a thread of its own: a pipe that is full, or a terminal that
    is held, keeps nobody waiting. Lines for which there is no room are dropped, and counted.

    It writes to the file below the stream, so that at its exit Python has nothing to write.
    """

    stream: IO[str] | None
    _waiting: queue.Queue[bytes | threading.Event] = attrs.field(
        factory=lambda: queue.Queue(_MOST_LINES), init=False
    )
    _dropped: int = attrs.field(default=0, init=False)
    _thread: threading.Thread | None = attrs.field(default=None, init=False)

    def say(self, text: str) -> None:
        """Write a line, some time; raise nothing."""
        if (number := self._file()) is None:
            if self.stream is not None:
                click.echo(text, file=self.stream)
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._write, args=(number,), daemon=True)
            self._thread.start()
        if self._dropped:
            text = f"... {self._dropped} lines dropped\n{text}"
        try:
            self._waiting.put_nowait(f"{text}\n".encode(errors="backslashreplace"))
            self._dropped = 0
        except queue.Full:
            self._dropped += 1

    def close(self) -> None:
        """Wait, not for long, until all is written."""
        if self._thread is not None:
            written = threading.Event()
            with suppress(queue.Full):
                self._waiting.put_nowait(written)
                written.wait(_PATIENCE)

    def _file(self) -> int | None:
        # Of a stream in memory there is none.
        with suppress(AttributeError, OSError, ValueError):
            return None if self.stream is None else self.stream.fileno()
        return None

    def _write(self, number: int) -> None:
        is_there = True
        while True:
            line = self._waiting.get()
            if isinstance(line, threading.Event):
                line.set()
            elif is_there:
                is_there = _write_whole(number, line)


def _write_whole(number: int, line: bytes) -> bool:
    """Whether there is still somebody who could read it."""
    while line:
        try:
            line = line[os.write(number, line) :]
        except BlockingIOError:
            time.sleep(0.05)
        except OSError:
            return False
    return True


@final
class _Handler(logging.Handler):
    def __init__(self, lines: Lines) -> None:
        super().__init__()
        self._lines = lines

    def emit(self, record: logging.LogRecord) -> None:
        try:
            self._lines.say(self.format(record))
        except Exception:
            self.handleError(record)


def log_to(lines: Lines, level: int) -> None:
    """Log what is of this level there, whatever is logged in this process."""
    logging.basicConfig(format=_WORDS, level=level, handlers=[_Handler(lines)])


@final
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
    out: Lines = attrs.field(factory=lambda: Lines(sys.stdout))
    err: Lines = attrs.field(factory=lambda: Lines(sys.stderr))

    def serves(self, server: Server) -> None:
        """It answers now."""
        if self.as_json:
            told = {"url": server.url, "agent": self.agent}
            self.out.say(json.dumps({**told, "token": self.token} if self.token else told))
            return
        self.out.say(f"turnstop serves {self.agent} at {server.url}")
        if self.token:
            self.out.say(f"open {server.url}/#token={self.token}")
        given = {"TURNSTOP_URL": server.url} if server.url != DEFAULT_URL else {}
        given |= {TOKEN: self.token} if self.token else {}
        if given:
            words = " ".join(f"{name}={value}" for name, value in given.items())
            self.out.say(f"commands: export {words}")

    def ends(self, live: int) -> None:
        """It was told to end, with so many turns to be stopped."""
        turns = "1 turn is" if live == 1 else f"{live} turns are"
        self.err.say(f"ending: {turns} stopped; once more kills")

    def waits(self) -> None:
        """All had its time, and something of the agent has not ended."""
        self.err.say("ending: the agent does not end, and is waited for; once more kills")

    def kills(self, processes: int) -> None:
        """It was told again, and has killed so many processes."""
        self.err.say(f"killed {'1 process' if processes == 1 else f'{processes} processes'}")

    def close(self) -> None:
        """Wait, not for long, until all is written."""
        self.out.close()
        self.err.close()
