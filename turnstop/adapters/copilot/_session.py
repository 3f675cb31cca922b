"""What a room keeps of Copilot: its session, and where that is loaded."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from typing import Any, final
from uuid import uuid4

import attrs
import trio

from ..._errors import BackendLost, BackendRefused
from ...transports.pace import wait_at_most
from . import _sdk
from ._cli import Cli

ASK = "on_permission_request"
_PATIENCE = 5.0
_WRITTEN_WITHIN = 0.5


@final
@attrs.define(eq=False, repr=False)
class CopilotSession:
    """A session of Copilot's. A plain str, its id, does as well.

    Attributes:
        number: its id.
        cli: the CLI that has it loaded, or had.
        conversation: the SDK's.
        evicted: whether it is to be let go of and resumed, since its last turn has failed.
        answered: whether a turn of it has ended by itself: Copilot has it on disk then.
        listened: whether a turn of it reads what is said, and so is asked for permissions.
        shown: the tool calls whose permissions its turns were asked for; the SDK hears of a
            request later than they do, and maybe after their end.
        ended_by: the event that ended its last turn.
        aborting: set once the last abort is answered, or will not be; None: there was none.
    """

    number: str
    cli: Cli | None = None
    conversation: _sdk.Conversation = None
    evicted: bool = False
    answered: bool = False
    listened: bool = False
    shown: set[str] = attrs.field(factory=set)
    ended_by: object = None
    aborting: trio.Event | None = None

    async def abort(self, cli: Cli) -> None:
        """Abort what it works on.

        **Cancellation:** the abort is sent all the same, and its answer waited for by the next.
        """
        answered = self.aborting = trio.Event()

        async def abort() -> None:
            try:
                await cli.aio.call(_sdk.abort, self.conversation)
            finally:
                answered.set()

        await cli.ask(abort, "abort")

    async def wait_aborted(self) -> None:
        """Wait until no abort is under way: a message that it overtakes would be thrown away.

        One that is not answered has been written by then, and so comes first.

        **Cancellation:** changes nothing.
        """
        if self.aborting is not None:
            await wait_at_most(self.aborting, _WRITTEN_WITHIN)

    def __str__(self) -> str:
        return self.number

    def __repr__(self) -> str:
        return f"<CopilotSession {self.number}>"


@final
@attrs.frozen
class Settings:
    """What a session is begun and resumed with.

    Attributes:
        options: keywords of the SDK's `create_session` and `resume_session`.
        approve_all: whether everything is permitted.
    """

    options: Mapping[str, Any] = attrs.field(factory=dict, repr=False)
    approve_all: bool = False

    @property
    def asks(self) -> bool:
        """Whether the turn's reader is asked for permissions, and not a handler of its own."""
        return not self.approve_all and ASK not in self.options

    def for_session(self, session: CopilotSession) -> dict[str, Any]:
        """The keywords of this one."""

        def decide(request: object, invocation: object) -> object:
            if self.approve_all:
                return _approved()
            tool_call = str(getattr(request, "tool_call_id", None))
            shown = tool_call in session.shown
            session.shown.discard(tool_call)  # The SDK hears of each once.
            return _left_to_the_turn() if session.listened or shown else _refused()

        return {ASK: decide, "streaming": True, **self.options}


def _approved() -> object:
    from copilot.rpc import PermissionDecisionApproveOnce

    return PermissionDecisionApproveOnce()


def _left_to_the_turn() -> object:
    # The turn sees the request among its events, in their order, and answers it by a call.
    from copilot.session import PermissionNoResult

    return PermissionNoResult()


def _refused() -> object:
    from copilot.rpc import PermissionDecisionUserNotAvailable

    return PermissionDecisionUserNotAvailable()


async def take_up(cli: Cli, kept: object, settings: Settings) -> CopilotSession:
    """Go on with a session, or begin one where there is none.

    Raises:
        BackendRefused: Copilot refuses it.
        BackendLost: the CLI was lost.

    **Cancellation:** a session that has begun stays with the CLI.
    """
    if kept is None:
        return await _begin(cli, CopilotSession(str(uuid4())), settings)
    if not isinstance(kept, CopilotSession):
        kept = CopilotSession(str(kept), answered=True)
    if kept.cli is cli and not kept.evicted:
        return kept
    if kept.cli is cli:
        await let_go(cli, kept)
    return await _resume(cli, kept, settings)


async def let_go(cli: Cli, session: CopilotSession) -> None:
    """Have the CLI unload a session, if it will; it stays on disk.

    **Cancellation:** it may be unloaded.
    """
    # One that is not let go of is of no use either way.
    with suppress(Exception):
        await cli.call_unowned(_sdk.detach, session.conversation, within=_PATIENCE)


async def _begin(cli: Cli, session: CopilotSession, settings: Settings) -> CopilotSession:
    options = settings.for_session(session)
    try:
        session.conversation = await cli.call_unowned(
            _sdk.begin, cli.client, session.number, options
        )
    except BackendLost:
        raise
    except Exception as error:
        raise BackendRefused(f"copilot begins no session: {error}") from error
    session.cli, session.evicted, session.aborting = cli, False, None
    return session


async def _resume(cli: Cli, session: CopilotSession, settings: Settings) -> CopilotSession:
    try:
        await _load(cli, session, settings)
    except BackendLost:
        raise
    except Exception as error:
        if not _sdk.is_refusal(error) or session.answered:
            raise BackendRefused(
                f"copilot cannot resume the room's session {session}: {error}; retire the room to "
                "begin a new conversation"
            ) from error
        # It was lost before Copilot had written anything down: there is nothing to resume.
        return await _begin(cli, CopilotSession(str(uuid4())), settings)
    return session


async def look_back(
    cli: Cli, session: CopilotSession, settings: Settings
) -> list[Mapping[str, Any]]:
    """Take up a session that another CLI had, and read what is written down of it.

    Raises:
        BackendLost: the CLI was lost.
        Exception: Copilot does not resume it.

    **Cancellation:** the session may be loaded.
    """
    await _load(cli, session, settings)
    return await cli.call_unowned(_sdk.read_back, session.conversation)


async def _load(cli: Cli, session: CopilotSession, settings: Settings) -> None:
    options = settings.for_session(session)
    session.conversation = await cli.call_unowned(_sdk.resume, cli.client, session.number, options)
    session.cli, session.evicted, session.aborting = cli, False, None
