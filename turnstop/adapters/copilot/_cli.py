"""One Copilot CLI that serves all rooms, and the SDK's connection to it."""

from __future__ import annotations

import os
import uuid
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, Final, TypeVar, TypeVarTuple, final

import attrs
import trio

from ..._errors import BackendLost, BackendRefused
from ...transports.aio import Aio
from ...transports.backlog import Backlog
from ...transports.framed import Message
from ...transports.loopback import Loopback, Tap, open_loopback
from ...transports.offspring import open_clearing
from ...transports.pace import call_unless, open_farewell, wait_at_most
from ...transports.process import Grace, open_process
from ...transports.reading import Reader, Reading, open_reading
from . import _sdk

FLOOR: Final = "1.0.73"
"""The oldest Copilot CLI that does what it says: 1.0.67 went on behind the idle of an abort."""

INSTALL: Final = "npm install -g @github/copilot@1.0.102"
MARK: Final = "TURNSTOP_COPILOT"
TOOL: Final = "COPILOT_CLI"
"""What the CLI adds to the environment of its tools, with the value 1."""

TOOL_SESSION: Final = "COPILOT_AGENT_SESSION_ID"
"""The variable that tells a tool, and us, whose it is."""

_TOKEN: Final = "COPILOT_SDK_AUTH_TOKEN"
# A SIGTERM, and a stdin that is closed, only make it wait for two seconds before it goes.
_GRACE: Final = Grace(close=0.0, terminate=0.0, kill=1.0)
_READY_WITHIN: Final = 60.0
_ANSWERED_WITHIN: Final = 60.0
_FAREWELL: Final = 1.0
# The SDK sees by itself that the CLI is lost, and does not take a call then that was cancelled.
_GRACE_OF_SDK: Final = 0.2
_WHAT: Final = "see that it is the Copilot CLI"

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


@final
class Cli:
    """A CLI that answers.

    Attributes:
        aio: where the SDK lives.
        reading: for tasks that outlive the calls which start them.
        mark: what all that it starts carries in its environment, and the value.
        client: the SDK's.
        broken: set when it can no longer be talked to; it may still be on its way out.
    """

    def __init__(
        self,
        aio: Aio,
        reading: Reading,
        mark: tuple[str, str],
        broken: trio.Event,
        describe: Callable[[], BackendLost],
    ) -> None:
        self.aio = aio
        self.reading = reading
        self.mark = mark
        self.client: _sdk.Client = None
        self.broken = broken
        self._describe = describe
        self._ended = trio.Event()
        self._listeners: dict[Backlog[Any], str] = {}
        self._leaving: dict[object, Callable[[], None]] = {}
        self._naming: dict[object, Callable[[str], None]] = {}
        self._sending: dict[object, Callable[[str], None]] = {}

    def loss(self) -> BackendLost:
        """A new error: how it was lost, and whether it is gone."""
        return self._describe()

    def listen(self, session: str, backlog: Backlog[Any]) -> None:
        """Post what this session says, and close the backlog when the CLI is lost."""
        self._listeners[backlog] = session
        if self._ended.is_set():
            backlog.close()

    def leave(self, backlog: Backlog[Any]) -> None:
        """Leave it alone."""
        self._listeners.pop(backlog, None)

    def declare_lost(self) -> None:
        """Tell everybody. Its process has been ended before, so that what they learn is final."""
        self._ended.set()
        for backlog in self._listeners:
            backlog.close()

    def note(self, direction: str, message: Message) -> None:
        """See a message go by: before the SDK does, which takes its time over each."""
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        number = params.get("sessionId")
        match direction, message.get("method"):
            case "<-", "session.event" if isinstance(event := params.get("event"), dict):
                for backlog, session in self._listeners.items():
                    if session == number:
                        backlog.post(event)
            case "<-", None:
                self._note_answer(message)
            case "->", "session.send" if number in self._naming:
                self._sending[message.get("id")] = self._naming.pop(number)
            case "->", "session.abort" if number in self._leaving:
                self._leaving.pop(number)()

    def _note_answer(self, message: Message) -> None:
        named, result = self._sending.pop(message.get("id"), None), message.get("result")
        number = result.get("messageId") if isinstance(result, dict) else None
        if named is not None and isinstance(number, str) and number:
            named(number)

    def when_abort_left(self, session: str, left: Callable[[], None]) -> None:
        """Have `left` called when the next abort of this session has been written."""
        self._leaving[session] = left

    async def send(
        self, conversation: _sdk.Conversation, session: str, message: Mapping[str, Any]
    ) -> str:
        """Send a message for the current turn; its id, as soon as Copilot has told it.

        Raises:
            BackendLost: the CLI was lost, or has not answered in time.

        **Cancellation:** as `call`.
        """
        reader: Reader[tuple[str] | Exception] = Reader()
        self._naming[session] = lambda number: reader.post((number,))
        try:
            send = partial(self.aio.call, _sdk.send, conversation, message)
            return await self.ask(send, "send", reader=reader)
        finally:
            self._naming.pop(session, None)

    async def call(
        self, fn: Callable[[*Args], Awaitable[Result]], *args: *Args, within: float | None = None
    ) -> Result:
        """Call the SDK for the current turn.

        Raises:
            BackendLost: the CLI was lost, or has not answered in time.

        **Cancellation:** what has been sent stays so, and its answer is taken and dropped: the SDK
        knows no answer to a call that was cancelled.
        """
        return await self.ask(lambda: self.aio.call(fn, *args), fn.__name__, within)

    async def call_unowned(
        self, fn: Callable[[*Args], Awaitable[Result]], *args: *Args, within: float | None = None
    ) -> Result:
        """As `call`, for what belongs to no turn.

        **Cancellation:** as `call`.
        """
        return await self.ask(lambda: self.aio.call_unowned(fn, *args), fn.__name__, within)

    async def ask(
        self,
        call: Callable[[], Awaitable[Result]],
        name: str,
        within: float | None = None,
        reader: Reader[tuple[Result] | Exception] | None = None,
    ) -> Result:
        """The answer to a call of the SDK, or what was posted to the reader before it came.

        Raises:
            BackendLost: the CLI was lost, or has not answered in time.

        **Cancellation:** as `call`.
        """
        within = _ANSWERED_WITHIN if within is None else within
        reader = reader or Reader()

        async def answer() -> None:
            try:
                reader.post(
                    (await call_unless(self.broken, call, within=within, grace=_GRACE_OF_SDK),)
                )
            except trio.Cancelled:
                reader.post(trio.BrokenResourceError())
                raise
            except Exception as error:
                reader.post(error)

        self.reading.start(reader, answer, name=f"copilot {name}")
        outcome = await reader.receive()
        if isinstance(outcome, tuple):
            return outcome[0]
        if isinstance(outcome, trio.TooSlowError):
            raise BackendLost(f"copilot has not answered {name} for {within:g} s")
        if not isinstance(outcome, trio.BrokenResourceError) and not _sdk.is_loss(outcome):
            raise outcome
        self.broken.set()
        raise await self.wait_lost()

    async def wait_lost(self) -> BackendLost:
        """How it was lost, once that is known for good.

        **Cancellation:** leaves nothing.
        """
        await self._ended.wait()
        return self.loss()


@attrs.frozen
class Launch:
    """How a CLI is run.

    Attributes:
        command: the program, and what comes before the options.
        cwd: where it works.
        env: laid over this process's environment.
        token: of GitHub; None: whoever is logged in.
        tap: told what goes by.
    """

    command: Sequence[str]
    cwd: str
    env: Mapping[str, str | None] = attrs.field(factory=dict, repr=False)
    token: str | None = attrs.field(default=None, repr=False)
    tap: Tap | None = None

    def to_command(self) -> list[str]:
        """The whole command line."""
        options = ["--headless", "--no-auto-update", "--log-level", "error", "--stdio"]
        if self.token is not None:
            options += ["--auth-token-env", _TOKEN, "--no-auto-login"]
        return [*self.command, *options]

    def to_env(self) -> dict[str, str | None]:
        """What is laid over this process's environment."""
        return {**self.env, **({} if self.token is None else {_TOKEN: self.token})}


@asynccontextmanager
async def open_cli(aio: Aio, launch: Launch) -> AsyncGenerator[Cli, None]:
    """Run a CLI, and connect the SDK to it.

    Raises:
        BackendRefused: the program is missing, or does not answer, or not as the SDK wants it.
        BackendLost: it ended before it was ready.

    **Cancellation:** ends the CLI with all that it has started, within about four seconds.
    """
    mark = (MARK, uuid.uuid4().hex)
    cli: Cli | None = None
    try:
        async with (
            open_clearing(mark),
            open_process(
                launch.to_command(),
                name="copilot",
                cwd=launch.cwd,
                env={**launch.to_env(), mark[0]: mark[1]},
                install=INSTALL,
                grace=_GRACE,
            ) as process,
            open_reading() as reading,
        ):

            def note(direction: str, message: Message) -> None:
                if cli is not None:
                    cli.note(direction, message)
                if launch.tap is not None:
                    launch.tap(direction, message)

            async with open_loopback(process, note) as loopback:
                cli = Cli(aio, reading, mark, loopback.broken, loopback.loss)
                if await _greet(cli, loopback):
                    async with open_farewell(lambda: _let_go(aio, cli), within=_FAREWELL):
                        yield cli
                    return
    finally:
        if cli is not None:
            cli.declare_lost()
    # It has ended by now, and how is told for good.
    if loopback.why is not None:
        # No loss, which would be made good by another start, and another.
        raise BackendRefused(f"{loopback.why}: {_WHAT}") from loopback.why
    raise loopback.loss()


async def _greet(cli: Cli, loopback: Loopback) -> bool:
    """Connect the SDK; whether there is still somebody to talk to."""
    try:
        cli.client = await call_unless(
            loopback.broken,
            lambda: cli.aio.call_unowned(_sdk.connect, loopback.port, loopback.token),
            within=_READY_WITHIN,
            grace=_GRACE_OF_SDK,
        )
    except trio.BrokenResourceError:
        pass
    except trio.TooSlowError:
        raise BackendRefused(f"copilot does not answer within {_READY_WITHIN:g} s: {_WHAT}") from (
            None
        )
    except Exception as error:
        # The SDK may have noticed first that nobody is there.
        if not await wait_at_most(loopback.broken, _GRACE_OF_SDK):
            raise BackendRefused(
                f"the Copilot SDK does not take this CLI: {error}; install one that will do with: "
                f"{INSTALL}, and {_sdk.SDK_INSTALL}"
            ) from error
    return not loopback.broken.is_set()


async def _let_go(aio: Aio, cli: Cli) -> None:
    await aio.call_unowned(_sdk.disconnect, cli.client)


def absolute(folder: str | os.PathLike[str] | None) -> str:
    """Where it works; here by default."""
    return os.path.abspath(os.getcwd() if folder is None else folder)
