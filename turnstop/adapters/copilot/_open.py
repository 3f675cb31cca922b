"""Opening Copilot, and the backend that starts its turns."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import partial
from typing import Any, ClassVar, TypeAlias, final

import trio

from ..._errors import BackendLost, BackendMisbehaved, BackendRefused
from ...abc import Backend, RemoteTurn, Request
from ...transports.aio import Aio, open_aio
from ...transports.offspring import Look
from ...transports.orphans import attach_process
from ...transports.proctable import find_marked
from ...transports.reading import Reader
from ...transports.restart import Restarting, open_restarting
from ...transports.version import check_version
from . import _sdk
from ._cli import Cli
from ._left import Left
from ._orphan import Attach, take_up_turn
from ._program import FLOOR, INSTALL, Launch, absolute, open_cli
from ._session import CopilotSession, Settings, let_go, take_up
from ._turn import CopilotTurn, Listening

CopilotContent: TypeAlias = str | Mapping[str, Any]
"""What a turn of Copilot may be asked: a text, or the keywords of the SDK's `session.send`."""

Connect: TypeAlias = Callable[[], AbstractAsyncContextManager[Cli]]


@final
class _Beginning:
    """A start: in a task of its own, since what it has begun must be undone if nobody waits."""

    def __init__(
        self, cli: Cli, settings: Settings, request: Request[CopilotContent], look: Look
    ) -> None:
        self.reader: Reader[CopilotTurn | Exception | None] = Reader()
        self._cli = cli
        self._settings = settings
        self._request = request
        self._look = look
        self._fresh: CopilotSession | None = None
        self._outcome: CopilotTurn | Exception | None = None
        self._abandoned = False

    async def reveal(self) -> CopilotTurn:
        """Return the turn once Copilot has taken its message; raise what came instead."""
        try:
            outcome = await self.reader.receive()
        except trio.Cancelled:
            self._abandoned = True
            if self._outcome is not None and not self._cli.broken.is_set():
                self._cli.reading.start(Reader[None](), self._undo, name="copilot undo")
            raise
        if outcome is None:
            raise await self._cli.wait_lost()
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    async def run(self) -> None:
        """The task."""
        try:
            self._outcome = await self._begin()
        except trio.Cancelled:
            self.reader.post(None)  # The CLI is lost, or closed.
            raise
        except Exception as error:
            self._outcome = error
        self.reader.post(self._outcome)
        if self._abandoned or isinstance(self._outcome, Exception):
            await self._undo()

    async def _begin(self) -> CopilotTurn:
        # First: what cannot be sent shall leave no session behind, and none in doubt.
        message = _to_message(self._request.content)
        kept = None if self._request.previous is not None else self._request.session
        session = await take_up(self._cli, kept, self._settings)
        if kept is None:
            self._fresh = session
        if self._abandoned:
            raise BackendRefused("the turn was stopped before its message was sent")
        left = Left(self._cli, session, self._look)
        await self._request.announce(left.to_address())
        listening = Listening(self._cli, session)
        number = None
        try:
            number = await self._send(session, message)
        finally:
            if number is None:
                listening.close()
        prompt, asks = str(message["prompt"]), self._settings.asks
        return CopilotTurn(self._cli, session, listening, number, prompt, left, asks=asks)

    async def _send(self, session: CopilotSession, message: Mapping[str, Any]) -> str:
        try:
            await session.wait_aborted()
            return await self._cli.send(session.conversation, session.number, message)
        except (BackendLost, BackendMisbehaved):
            # Whatever it has begun has no name, and is ended by its session's.
            if not self._cli.broken.is_set():
                abort = partial(_abort, self._cli, session)
                self._cli.reading.start(Reader[None](), abort, name="copilot abort")
            raise

    async def _undo(self) -> None:
        # There is nobody left to tell.
        with suppress(Exception):
            if isinstance(self._outcome, CopilotTurn):
                await self._outcome.cancel(lambda: None)
            if self._fresh is not None:
                await let_go(self._cli, self._fresh)


async def _abort(cli: Cli, session: CopilotSession) -> None:
    with suppress(Exception):
        await session.abort(cli)


@final
class _Backend:
    name: ClassVar[str] = "copilot"
    announces: ClassVar[bool] = True

    def __init__(
        self,
        aio: Aio,
        clis: Restarting[Cli],
        settings: Settings,
        look: Look = find_marked,
        attach: Attach = attach_process,
    ) -> None:
        self._aio = aio
        self._clis = clis
        self._settings = settings
        self._look = look
        self._attach = attach

    def check_nesting(self) -> None:
        """See that the loop outlives the rooms."""
        self._aio.check_nesting()

    async def start(self, request: Request[CopilotContent]) -> RemoteTurn:
        cli = await self._clis.get()
        beginning = _Beginning(cli, self._settings, request, self._look)
        name = f"copilot turn {request.turn_id}"
        cli.reading.start(beginning.reader, beginning.run, name=name)
        return await beginning.reveal()

    async def attach(self, address: str) -> RemoteTurn:
        return await take_up_turn(address, self._clis, self._settings, self._attach)

    async def forget(self, session: object) -> None:
        """Unload the room's session; it stays on disk. No CLI is started for it."""
        cli = self._clis.current
        if isinstance(session, CopilotSession) and cli is not None and session.cli is cli:
            await let_go(cli, session)


@asynccontextmanager
async def open_copilot(
    command: str | os.PathLike[str] | Sequence[str] | None = None,
    *,
    cwd: str | os.PathLike[str] | None = None,
    env: Mapping[str, str | None] | None = None,
    model: str | None = None,
    provider: Mapping[str, Any] | None = None,
    github_token: str | None = None,
    approve_all: bool = False,
    session: Mapping[str, Any] | None = None,
    thread: bool = False,
) -> AsyncGenerator[Backend[CopilotContent], None]:
    """Run a Copilot CLI, and start turns on it through the Copilot SDK.

    Args:
        command: the program, or the beginning of a command line; by default the copilot on PATH.
        cwd: where Copilot works; by default the current folder.
        env: laid over this process's environment, which Copilot needs for its own home and its
            proxies; None takes a variable away.
        model: None leaves it to Copilot.
        provider: a model provider of your own, as the SDK's `ProviderConfig`.
        github_token: who works; None: whoever is logged in.
        approve_all: whether everything is permitted, and nobody asked.
        session: further keywords of the SDK's `create_session`, also used where a session is
            resumed. With an `on_permission_request` of its own, nobody else is asked.
        thread: run the SDK's asyncio loop in a thread of its own: see `open_aio`.

    Raises:
        BackendRefused: the CLI is missing, or too old; the text has the command that installs it.
        BackendLost: the CLI was lost before it was ready, again and again.
        ImportError: the SDK is missing, or too old; or trio-asyncio is, and `thread` is not set.

    **Cancellation:** reaches Copilot only after the body has left. The CLI is then ended with all
    that it has started, within about four seconds, whatever it does.
    """
    folder = absolute(cwd)
    given: dict[str, Any] = {"working_directory": folder, **(session or {})}
    given |= {} if model is None else {"model": model}
    given |= {} if provider is None else {"provider": dict(provider)}
    launch = Launch(_command(command, env), folder, dict(env or {}), github_token)
    async with open_backend(launch, Settings(given, approve_all), thread=thread) as backend:
        yield backend


@asynccontextmanager
async def open_backend(
    launch: Launch, settings: Settings, *, thread: bool = False
) -> AsyncGenerator[_Backend, None]:
    """Open the backend over CLIs that are run so. The first is run now.

    **Cancellation:** as `open_copilot`.
    """
    _sdk.check_sdk()
    await check_version(
        [*launch.command, "--version"],
        FLOOR,
        name="copilot",
        env=launch.to_env(),
        install=INSTALL,
    )
    async with open_aio(thread=thread) as aio:
        async with open_restarting(partial(open_cli, aio, launch)) as clis:
            await clis.get()
            yield _Backend(aio, clis, settings)


def _command(
    command: str | os.PathLike[str] | Sequence[str] | None, env: Mapping[str, str | None] | None
) -> list[str]:
    if command is None:
        found = shutil.which("copilot", path=(env or {}).get("PATH"))
        if found is None:
            raise BackendRefused(f"copilot is not installed; install it with: {INSTALL}")
        return [found]
    if isinstance(command, str | os.PathLike):
        return [os.fspath(command)]
    if not command:
        raise ValueError("command is empty: name a program, or leave it out")
    return list(command)


def _to_message(content: object) -> dict[str, Any]:
    message = {"prompt": content} if isinstance(content, str) else content
    if not isinstance(message, Mapping) or not isinstance(message.get("prompt"), str):
        raise BackendRefused(
            "copilot is asked a text, or a mapping with a prompt and what else session.send takes: "
            f"{type(content).__name__} is neither"
        )
    return dict(message)
