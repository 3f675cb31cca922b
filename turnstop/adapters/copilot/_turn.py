"""One turn of Copilot: followed to the idle that is its own, aborted, swept up after."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, TypeAlias, final

import attrs
import trio

from ..._errors import BackendError, BackendMisbehaved, Silenced
from ...abc import Emit, End, How
from ...transports.backlog import Backlog
from ...transports.pace import wait_at_most
from ...transports.serving import open_serving
from . import _sdk
from ._asks import COMPLETED, REQUESTED, Permission, read_permission, refusal, to_decision
from ._cli import Cli
from ._events import SessionEvent, Translator, field, kind_of, of_sub_agent
from ._left import Found, Left
from ._session import CopilotSession

_END_WITHIN: Final = 0.5


@final
@attrs.frozen
class Quiet:
    """Told in the place of an idle that has not come: Copilot says that it works on nothing.

    Attributes:
        number: of the task that looks for it, which is no request of Copilot's.
    """

    number: str = "quiet"


Heard: TypeAlias = SessionEvent | Quiet


@final
class Listening:
    """What a session says, from before its message is sent.

    Attributes:
        unread: what was not read yet.
    """

    def __init__(self, cli: Cli, session: CopilotSession) -> None:
        self.unread: Backlog[Heard] = Backlog()
        self._cli = cli
        self._session = session
        cli.listen(session.number, self.unread)
        session.listened = True

    def close(self) -> None:
        """Hear nothing more."""
        self._session.listened = False
        self._cli.leave(self.unread)
        self.unread.close()


@final
class CopilotTurn:
    """A turn, named by the id of its message.

    Attributes:
        session: the session.
    """

    def __init__(
        self,
        cli: Cli,
        session: CopilotSession,
        listening: Listening,
        message: str,
        prompt: str,
        left: Left,
        *,
        asks: bool,
    ) -> None:
        self.session = session
        self._cli = cli
        self._listening = listening
        self._message = message
        self._prompt = prompt
        self._asks = asks
        self._left = left
        self._translator = Translator()
        self._followed = False
        self._begun = False
        self._told = trio.Event()
        self._acknowledged = trio.Event()
        self._aborted = False
        self._asked: set[str] = set()
        self._error: str | None = None
        self._over = trio.Event()

    def __repr__(self) -> str:
        return f"<CopilotTurn {self._message} of session {self.session}>"

    @property
    def address(self) -> str:
        """Where another process finds it."""
        return self._left.to_address(self._message)

    async def follow(self, emit: Emit) -> End:
        """Read the session until it is idle after this turn's message."""
        end: End | None = None
        self._followed = True
        try:
            async with open_serving() as serving:
                serving.start(Quiet(), self._see_end)
                while end is None:
                    event = await self._next()
                    if isinstance(event, Quiet):
                        end = self._end(aborted=self._told.is_set())
                    elif kind_of(event) == COMPLETED:
                        serving.withdraw(field(event, "requestId"))
                    elif kind_of(event) == REQUESTED and self._asks:
                        self._ask(serving.start, emit, event)
                    elif (end := self._read(event)) is None and self._begun:
                        for told in self._translator.translate(event):
                            emit(told)
        finally:
            self._over.set()
            self._listening.close()
            # It is then taken up anew, from what Copilot has written down.
            self.session.evicted = end is None or end.how is How.FAILED
        self.session.answered |= self._begun
        return end

    async def _next(self) -> Heard:
        try:
            return await self._listening.unread.receive()
        except trio.EndOfChannel:
            raise self._cli.loss() from None

    def _read(self, event: SessionEvent) -> End | None:
        """Learn where the turn is; its end, if this is it."""
        kind = kind_of(event)
        if of_sub_agent(event):
            return None
        if kind == "user.message":
            self._begun |= self._is_mine(event)
        elif kind == "abort":
            # Whosoever it is: before it has begun, a message is thrown away, and told of no more.
            self._aborted = True
        elif kind == "session.error":
            self._error = str(field(event, "message") or "copilot did not say why")
            self._begun |= field(event, "originatingMessageId") in (None, self._message)
        elif kind == "assistant.turn_start":
            self._error = None
        elif kind == "session.idle" and self._is_own_idle(event):
            self.session.ended_by = event.get("id")
            if self._aborted:
                self.session.aborting = None  # Obeyed: there is nothing left that it could take.
            return self._end(aborted=bool(field(event, "aborted")))
        return None

    def _is_mine(self, event: SessionEvent) -> bool:
        number = field(event, "messageId")
        # An old CLI leaves the id out. No other turn of this session runs.
        return number == self._message or (
            number is None and str(field(event, "content")) == self._prompt
        )

    def _is_own_idle(self, event: SessionEvent) -> bool:
        """Whether this turn has come to it: what an earlier one has left to say may come late."""
        if event.get("id") == self.session.ended_by:
            return False
        return self._aborted if field(event, "aborted") else self._begun

    def _end(self, *, aborted: bool) -> End:
        usage = self._translator.usage
        if aborted:
            return End(How.CANCELLED, usage=usage)
        if self._error is not None:
            return End(How.FAILED, usage=usage, detail=self._error)
        return End(How.COMPLETED, usage=usage)

    def _ask(self, start: Callable[..., None], emit: Emit, event: SessionEvent) -> None:
        permission = read_permission(event)
        if permission is None or permission.number in self._asked:
            return
        self._asked.add(permission.number)
        self.session.shown.add(permission.tool_call)

        async def serve(asked: Permission) -> None:
            decision = refusal()
            if self._begun:
                try:
                    decision = to_decision(await emit.ask(asked.to_ask()))
                except Silenced:
                    # A tool that is refused goes back to the model: the abort is to come first.
                    await self._told.wait()
            with suppress(Exception):  # it was answered, or is moot; a loss is told elsewhere
                await self._cli.call(_sdk.decide, self.session.conversation, asked.number, decision)

        start(permission, serve)

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Abort what the session works on.

        One that was revealed too late is told to end, and never followed.
        """

        def left() -> None:
            self._told.set()
            sent()

        self._cli.when_abort_left(self.session.number, left)
        try:
            await self.session.abort(self._cli)
        except BackendError:
            raise
        except Exception as error:
            raise BackendMisbehaved(f"copilot refused the abort: {error}") from error
        finally:
            if not self._followed:
                self._listening.close()
        self._acknowledged.set()

    async def _see_end(self, _: object) -> None:
        """Where no idle comes after an abort, ask whether Copilot works on anything."""
        await self._acknowledged.wait()
        while not await wait_at_most(self._over, _END_WITHIN):
            try:
                if not await self._cli.call(_sdk.is_active, self.session.conversation):
                    # What was said before it is read before it.
                    self._listening.unread.post(Quiet())
                    return
            except Exception:
                return  # It is lost, which is told elsewhere, or knows no such question.

    async def leftovers(self) -> list[Found]:
        """The background tasks and the processes that it started and that are there."""
        return await self._left.find()

    async def sweep(self, leftovers: Sequence[object]) -> list[Found]:
        """End them, and what they start on their way out."""
        return await self._left.end(leftovers)
