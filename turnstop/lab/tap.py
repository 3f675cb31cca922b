"""A tap on a program that speaks JSON on its stdin and stdout: what goes by is kept in a file.

    python -m turnstop.lab.tap FILE -- codex app-server
    python -m turnstop.lab.tap --framed FILE -- copilot --headless --stdio

In place of the program's own command, it records a scene of it: every byte goes on as it is, and
each line is written to FILE, a JSON object with its direction: `{"->": …}` what the program is
told, `{"<-": …}` what it says. With `--framed` it is not lines that go by, but bodies behind a
`Content-Length` header, as the Language Server Protocol's base protocol has them. The end is the
program's own: its stdin is closed when the tap's is, signals are handed on, and the tap ends with
the program's status, or by its signal.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Protocol, TextIO

import trio

from .._unwrap import open_private_nursery
from ..transports._lines import LineSplitter

__all__ = ["main", "run_tapped"]

_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_USAGE = "usage: python -m turnstop.lab.tap [--framed] FILE -- COMMAND [ARGUMENT ...]"
_HEADER = re.compile(rb"(?i)(?:^|\r\n)content-length: *(\d+)")
_HEADERS_END = b"\r\n\r\n"


class _Splitter(Protocol):
    def feed(self, chunk: bytes | bytearray) -> list[bytes]: ...


class _FrameSplitter:
    """Cuts a stream of chunks into the bodies of frames; what has no length is one by itself."""

    def __init__(self) -> None:
        self._buffer = bytearray()

    def feed(self, chunk: bytes | bytearray) -> list[bytes]:
        """Take a chunk; return the bodies that it completed."""
        self._buffer += chunk
        bodies = []
        while (end := self._buffer.find(_HEADERS_END)) >= 0:
            header = bytes(self._buffer[:end])
            begin = end + len(_HEADERS_END)
            found = _HEADER.search(header)
            length = int(found[1]) if found else 0
            if len(self._buffer) < begin + length:
                break
            bodies.append(bytes(self._buffer[begin : begin + length]) if found else header)
            del self._buffer[: begin + length]
        return bodies


async def run_tapped(command: Sequence[str], file: TextIO, *, framed: bool = False) -> int:
    """Run a program between our own stdin and stdout; return its status, negative for a signal.

    Args:
        command: the program and its arguments.
        file: what goes by is written there.
        framed: it speaks bodies behind a `Content-Length` header, and not lines.

    **Cancellation:** closes the program's stdin and does not wait for its end.
    """
    pipe = subprocess.PIPE
    process = await trio.lowlevel.open_process(list(command), stdin=pipe, stdout=pipe)
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    splitter: type[_Splitter] = _FrameSplitter if framed else LineSplitter
    ours_in, ours_out = (trio.lowlevel.FdStream(os.dup(number)) for number in (0, 1))
    with trio.open_signal_receiver(*_HANDED_ON) as signals:
        async with stdin, stdout, ours_in, ours_out, open_private_nursery() as nursery:
            nursery.start_soon(_hand_on, signals, process)
            nursery.start_soon(_copy, ours_in, stdin, "->", file, splitter())
            # What it has said is all kept, and said on, before its end is told.
            await _copy(stdout, ours_out, "<-", file, splitter())
            await process.wait()
            nursery.cancel_scope.cancel()
    assert process.returncode is not None
    return process.returncode


async def _copy(
    source: trio.abc.ReceiveStream,
    sink: trio.abc.SendStream,
    direction: str,
    file: TextIO,
    splitter: _Splitter,
) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        async for chunk in source:
            for line in splitter.feed(chunk):
                if line and not line.isspace():
                    file.write(json.dumps({direction: _decode(line)}, ensure_ascii=False) + "\n")
            file.flush()
            await sink.send_all(chunk)
    await sink.aclose()


def _decode(line: bytes) -> object:
    try:
        return json.loads(line)
    except ValueError:
        return line.decode(errors="replace")


async def _hand_on(signals: AsyncIterator[int], process: trio.Process) -> None:
    async for number in signals:
        process.send_signal(signal.Signals(number))


def main(arguments: Sequence[str]) -> int:
    """Run it; the exit status."""
    framed = arguments[:1] == ["--framed"]
    arguments = arguments[framed:]
    if len(arguments) < 3 or arguments[1] != "--":
        print(_USAGE, file=sys.stderr)
        return 2
    with open(arguments[0], "a", encoding="utf-8") as file:
        try:
            status = trio.run(partial(run_tapped, framed=framed), arguments[2:], file)
        except OSError as error:
            print(f"cannot run {arguments[2]}: {error.strerror}", file=sys.stderr)
            return 127
    if status < 0:
        # Trio has put the handlers back: the signal does to the tap what it did to the program.
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
