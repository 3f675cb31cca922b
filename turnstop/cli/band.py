"""The asyncio peer beside us: band-sdk's own `BackendTurns`, driven in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, final

import attrs
import trio

from .._service import open_service
from .._unwrap import open_private_nursery

VERSION = "6.0.1"
INSTALL = (
    f"python3 -m venv .venv-band && .venv-band/bin/pip install 'band-sdk[a2a,codex]=={VERSION}'"
)
_CHILD = Path(__file__).with_name("band_child.py")
_PROBE = "import importlib.metadata as m, a2a, websockets; print(m.version('band-sdk'))"
_PROBING_S = 30.0
_CLOSING_S = 10.0
_KILLING_S = 2.0


class BandAbsent(Exception):
    """No Python with the peer was found; the text says how to install it."""


class BandFailed(Exception):
    """The peer's process ended or said nonsense; the text has the tail of its stderr."""


def find_band_python(path: str | os.PathLike[str] | None = None) -> str:
    """Find a Python that has band-sdk, for a process of its own.

    Args:
        path: what was asked for; else `$TURNSTOP_BAND_PYTHON`, else `.venv-band/bin/python` here.

    Raises:
        BandAbsent: there is none, or it has another version; the text is one line.
    """
    named = os.fspath(path) if path else os.environ.get("TURNSTOP_BAND_PYTHON")
    python = named or os.path.join(".venv-band", "bin", "python")
    try:
        found = subprocess.run(
            [python, "-I", "-c", _PROBE], capture_output=True, text=True, timeout=_PROBING_S
        )
    except (OSError, subprocess.TimeoutExpired):
        found = None
    if found is not None and found.stdout.strip() == VERSION:
        return python
    why = f"{python} has no band-sdk[a2a,codex]=={VERSION}"
    raise BandAbsent(f"{why}: run {INSTALL}, and name its python with --band-python")


@attrs.define(eq=False)
class BandTurn:
    """A turn that the peer runs.

    Attributes:
        at: when it reached what, seconds on CLOCK_MONOTONIC; `band_child` has the words.
        said: what came with it: the `how` of `ended`, the `error` of `refused` and `left`.
    """

    room: str
    turn_id: str
    at: dict[str, float] = attrs.field(factory=dict)
    said: dict[str, str] = attrs.field(factory=dict)
    _news: trio.Event = attrs.field(factory=trio.Event, repr=False)
    _broken: BandFailed | None = attrs.field(default=None, repr=False)

    async def reached(self, what: str) -> float:
        """Wait until the turn has reached `what`, and say when that was.

        Raises:
            BandFailed: the peer's process ended first.

        **Cancellation:** nothing happens to the turn.
        """
        await trio.lowlevel.checkpoint()
        while what not in self.at:
            if self._broken is not None:
                raise self._broken
            await self._news.wait()
        return self.at[what]

    def _hear(self, report: dict[str, Any]) -> None:
        self.at[report["what"]] = report["at"]
        for name in ("how", "error"):
            if name in report:
                self.said[report["what"]] = report[name]
        self._wake()

    def _fail(self, error: BandFailed) -> None:
        self._broken = error
        self._wake()

    def _wake(self) -> None:
        news, self._news = self._news, trio.Event()
        news.set()


@final
class BandRunner:
    """The peer with one backend open. Made by `open_band`.

    Attributes:
        versions: of band-sdk and of a2a-sdk in the peer's environment.
    """

    def __init__(self, process: trio.Process) -> None:
        self.versions: dict[str, str] = {}
        self._process = process
        self._writing = trio.Lock()
        self._turns: dict[str, BandTurn] = {}
        self._control = BandTurn("", "")
        self._stderr: deque[str] = deque(maxlen=40)

    async def start(
        self,
        room: str,
        content: str,
        *,
        turn_id: str,
        stop_after: float | None = None,
        **more: object,
    ) -> BandTurn:
        """Have the peer start a turn; a room's turns run one after another.

        Args:
            room: the conversation.
            content: the prompt.
            turn_id: unique among this runner's turns.
            stop_after: seconds after the start call left, timed in the peer's own process.
            more: what else its child takes with `start`.

        Raises:
            BandFailed: the peer's process is gone.

        **Cancellation:** the turn may have been started.
        """
        turn = self._turns[turn_id] = BandTurn(room, turn_id, broken=self._control._broken)
        await self._send(
            op="start", turn=turn_id, room=room, content=content, stop_after=stop_after, **more
        )
        return turn

    async def stop(self, turn: BandTurn) -> None:
        """Have the peer stop it: `cancel(room)` and `owner.cancel()`.

        Raises:
            BandFailed: the peer's process is gone.

        **Cancellation:** the turn may have been stopped.
        """
        await self._send(op="stop", turn=turn.turn_id)

    async def _send(self, **command: object) -> None:
        stdin = self._process.stdin
        assert stdin is not None
        try:
            async with self._writing:
                await stdin.send_all(json.dumps(command).encode() + b"\n")
        except (trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise self._control._broken or BandFailed("the peer's process is gone") from error

    async def _serve(self) -> None:
        try:
            async with open_private_nursery() as nursery:
                nursery.start_soon(self._drain)
                nursery.start_soon(self._read)
        finally:
            tail = "\n".join(self._stderr)
            error = BandFailed(f"the peer's process ended; the end of its stderr:\n{tail}")
            for turn in (*self._turns.values(), self._control):
                turn._fail(error)

    async def _read(self) -> None:
        rest = b""
        assert self._process.stdout is not None
        async for chunk in self._process.stdout:
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, report: dict[str, Any]) -> None:
        if report["op"] == "at":
            self._turns[report["turn"]]._hear(report)
            return
        self.versions.update(report.get("versions", {}))
        self._control._hear({"what": report["op"], "at": time.monotonic()})

    async def _drain(self) -> None:
        assert self._process.stderr is not None
        async for chunk in self._process.stderr:
            self._stderr.extend(chunk.decode(errors="replace").splitlines())

    async def _end(self) -> None:
        assert self._process.stdin is not None
        await self._process.stdin.aclose()
        with trio.move_on_after(_CLOSING_S):
            await self._process.wait()
        if self._process.returncode is None:
            os.killpg(self._process.pid, signal.SIGKILL)
            with trio.move_on_after(_KILLING_S):
                await self._process.wait()


@asynccontextmanager
async def open_band(python: str, **backend: object) -> AsyncGenerator[BandRunner, None]:
    """Open the peer with one backend, in a child process that never imports Trio.

    Args:
        python: what `find_band_python` found.
        backend: what `band_child` takes with `open`: `backend="codex"`, `command`, `cwd` and
            `env`, or `backend="a2a"`, `url` and `streaming`.

    Raises:
        BandFailed: the peer could not open it.

    **Cancellation:** the peer stops what it runs and ends its backend, within 12 seconds.
    """
    async with open_child(python, _CHILD, backend) as band:
        yield band


@asynccontextmanager
async def open_child(
    python: str, program: Path, given: Mapping[str, object]
) -> AsyncGenerator[BandRunner, None]:
    """Open an asyncio client that is driven by the peer's words, in a process of its own.

    Args:
        python: runs it.
        program: the client.
        given: what it takes with `open`.

    Raises:
        BandFailed: it could not be opened.

    **Cancellation:** as `open_band`.
    """
    process = await trio.lowlevel.open_process(
        [python, "-I", os.fspath(program)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
        env={name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ},
    )
    band = BandRunner(process)
    async with open_service() as service:
        service.start_soon(band._serve)
        try:
            await band._send(op="open", **given)
            await band._control.reached("opened")
            yield band
        finally:
            with trio.move_on_after(_CLOSING_S + 2 * _KILLING_S, shield=True):
                await band._end()
