"""A tap on a program that speaks lines on its stdin and stdout: what goes by is kept in a file.

    python -m turnstop.lab.tap FILE -- codex app-server

In place of the program's own command, it records a scene of it: every byte goes on as it is, and
each line is written to FILE, a JSON object with its direction: `{"->": …}` what the program is
told, `{"<-": …}` what it says. The end is the program's own: its stdin is closed when the tap's is,
signals are handed on, and the tap ends with the program's status, or by its signal.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TextIO

import trio

from .._unwrap import open_private_nursery
from ..transports._lines import LineSplitter

__all__ = ["main", "run_tapped"]

_HANDED_ON = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
_USAGE = "usage: python -m turnstop.lab.tap FILE -- COMMAND [ARGUMENT ...]"


async def run_tapped(command: Sequence[str], file: TextIO) -> int:
    """Run a program between our own stdin and stdout; return its status, negative for a signal.

    **Cancellation:** closes the program's stdin and does not wait for its end.
    """
    pipe = subprocess.PIPE
    process = await trio.lowlevel.open_process(list(command), stdin=pipe, stdout=pipe)
    stdin, stdout = process.stdin, process.stdout
    assert stdin is not None
    assert stdout is not None
    ours_in, ours_out = (trio.lowlevel.FdStream(os.dup(number)) for number in (0, 1))
    with trio.open_signal_receiver(*_HANDED_ON) as signals:
        async with stdin, stdout, ours_in, ours_out, open_private_nursery() as nursery:
            nursery.start_soon(_hand_on, signals, process)
            nursery.start_soon(_copy, ours_in, stdin, "->", file)
            # What it has said is all kept, and said on, before its end is told.
            await _copy(stdout, ours_out, "<-", file)
            await process.wait()
            nursery.cancel_scope.cancel()
    assert process.returncode is not None
    return process.returncode


async def _copy(
    source: trio.abc.ReceiveStream, sink: trio.abc.SendStream, direction: str, file: TextIO
) -> None:
    splitter = LineSplitter()
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
    if len(arguments) < 3 or arguments[1] != "--":
        print(_USAGE, file=sys.stderr)
        return 2
    with open(arguments[0], "a", encoding="utf-8") as file:
        try:
            status = trio.run(run_tapped, arguments[2:], file)
        except OSError as error:
            print(f"cannot run {arguments[2]}: {error.strerror}", file=sys.stderr)
            return 127
    if status < 0:
        # Trio has put the handlers back: the signal does to the tap what it did to the program.
        os.kill(os.getpid(), -status)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
