"""The Copilot CLI as a program: how it is run, reached by the SDK, and ended."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Final

import attrs
import trio

from ..._errors import BackendError, BackendLost, BackendRefused
from ...transports.aio import Aio
from ...transports.framed import Message
from ...transports.loopback import Loopback, Tap, open_loopback
from ...transports.offspring import make_mark, open_clearing
from ...transports.pace import call_unless, open_farewell, wait_at_most
from ...transports.process import Grace, open_process
from ...transports.reading import open_reading
from . import _sdk
from ._cli import SEEN_WITHIN, Cli

FLOOR: Final = "1.0.73"
"""The oldest Copilot CLI that does what it says: 1.0.67 went on behind the idle of an abort."""

INSTALL: Final = "npm install -g @github/copilot@1.0.102"
MARK: Final = "TURNSTOP_COPILOT"

_TOKEN: Final = "COPILOT_SDK_AUTH_TOKEN"
# A SIGTERM, and a stdin that is closed, only make it wait for two seconds before it goes.
_GRACE: Final = Grace(close=0.0, terminate=0.0, kill=1.0)
_READY_WITHIN: Final = 60.0
_FAREWELL: Final = 1.0
_WHAT: Final = "see that it is the Copilot CLI"


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
        ImportError: something that the SDK imports is missing.

    **Cancellation:** ends the CLI with all that it has started, within about four seconds.
    """
    mark = make_mark(MARK)
    cli: Cli | None = None

    def note(direction: str, message: Message) -> None:
        for tap in (cli and cli.note, launch.tap):
            if tap is not None:
                tap(direction, message)

    try:
        async with (
            open_clearing(mark),
            open_process(
                launch.to_command(),
                name="copilot",
                cwd=launch.cwd,
                env={**launch.to_env(), **dict([mark])},
                install=INSTALL,
                grace=_GRACE,
            ) as process,
            open_reading() as reading,
            # After the connection: the SDK's thread complains aloud of one that it closes itself
            # while it reads, and takes the other end's leaving for what it is.
            open_farewell(lambda: _let_go(cli), within=_FAREWELL),
            open_loopback(process, note) as loopback,
        ):
            cli = Cli(aio, reading, process.address, loopback.broken, loopback.loss)
            if await _greet(cli, loopback):
                yield cli
                return
    finally:
        if cli is not None:
            cli.declare_lost()
    # It has ended by now, and how is told for good.
    raise _never_answered(loopback)


def _never_answered(loopback: Loopback) -> BackendError:
    if loopback.why is None:
        loss = loopback.loss()
        return BackendLost(f"{loss}; it had not answered yet: {_WHAT}", gone=loss.gone)
    # No loss, which would be made good by another start, and another.
    refused = BackendRefused(f"{loopback.why}: {_WHAT}")
    refused.__cause__ = loopback.why
    return refused


async def _greet(cli: Cli, loopback: Loopback) -> bool:
    """Connect the SDK; whether there is still somebody to talk to."""
    await _sdk.load()
    try:
        cli.client = await call_unless(
            loopback.broken,
            lambda: cli.aio.call_unowned(_sdk.connect, loopback.port, loopback.token),
            within=_READY_WITHIN,
            grace=SEEN_WITHIN,
        )
    except trio.BrokenResourceError:
        pass
    except trio.TooSlowError:
        raise BackendRefused(f"copilot does not answer within {_READY_WITHIN:g} s: {_WHAT}") from (
            None
        )
    except Exception as error:
        # The SDK may have noticed first that nobody is there.
        if not await wait_at_most(loopback.broken, SEEN_WITHIN):
            raise BackendRefused(
                f"the Copilot SDK does not take this CLI: {error}; install one that will do with: "
                f"{INSTALL}, and {_sdk.SDK_INSTALL}"
            ) from error
    return not loopback.broken.is_set()


async def _let_go(cli: Cli | None) -> None:
    if cli is not None and cli.client is not None:
        await cli.aio.call_unowned(_sdk.disconnect, cli.client)


def absolute(folder: str | os.PathLike[str] | None) -> str:
    """Where it works; here by default."""
    return os.path.abspath(os.getcwd() if folder is None else folder)
