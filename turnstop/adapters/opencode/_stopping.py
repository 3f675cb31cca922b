"""Telling opencode to stop a turn, and seeing that it was not too early for that."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import final

import trio

from ..._errors import BackendError, BackendRefused
from ...transports.pace import wait_at_most
from ...transports.reading import Reader
from ._left import SubAgents
from ._progress import Progress
from ._server import Server
from ._session import Abort
from ._wire import NoOpenCode, NotThere

LEAVES_WITHIN = 0.05
_LOOK_EVERY = 0.25
_SOON = 2
_NEVER = 8
_TRIES = 4


@final
class Stopping:
    """How one turn is told to stop.

    Attributes:
        abort: the last abort of its session; None until there was one.
    """

    def __init__(
        self, server: Server, session: str, message: str, progress: Progress, agents: SubAgents
    ) -> None:
        self.abort: Abort | None = None
        self._server = server
        self._session = session
        self._message = message
        self._progress = progress
        self._agents = agents

    def is_under_way(self) -> bool:
        """Whether an abort of its session is not answered yet."""
        return self.abort is not None and not self.abort.over.is_set()

    def is_answered(self) -> bool:
        """Whether opencode has answered an abort."""
        abort = self.abort
        return abort is not None and abort.over.is_set() and abort.error is None

    async def run(self, sent: Callable[[], None], looks: int | None = None) -> None:
        """Abort the sub-agents, then the session, and again where nothing worked there yet.

        Args:
            sent: called when the first abort of the session has left.
            looks: after how many of them a message that does not come is given up; None: whoever
                called this has a bound of its own.
        """
        await self._abort_agents()
        early = not self._progress.begun.is_set()
        await self._tell(sent)
        # opencode answers an abort that finds nothing to abort as any other, and the turn runs on.
        if early and await self._comes(looks) and await self._is_lost():
            await self._tell(lambda: None)

    async def _comes(self, looks: int | None) -> bool:
        """Wait for a run that an abort was too early for; False where none will come, or is seen.

        One look that fails, as a proxy's may at any time, shows nothing, and there is another.
        """
        seen = 0
        for _ in itertools.count() if looks is None else range(looks):
            if await wait_at_most(self._progress.begun, _LOOK_EVERY):
                return True
            try:
                # A plugin may hold it up, and then it comes at any time: opencode would also take
                # back what is not there yet, and work on it later; and what the session works on
                # before is somebody else's.
                if not await self._is_there():
                    seen = 0
                    continue
                if await self._server.is_busy(self._session):
                    self._progress.begun.set()
                    return True
                seen += 1
                if seen >= self._looks_enough() and await self._withdraw():
                    return False
            except BackendError:
                if self._server.broken.is_set():
                    raise
                seen = 0
        return False

    async def _is_lost(self) -> bool:
        """Whether the abort may have found nothing to abort, and the turn runs on."""
        heard = self._progress.followed and not self._agents.unsure
        if heard and not self._progress.idled:
            return False
        try:
            return await self._server.is_busy(self._session)
        except BackendError:
            # Nobody has told: an abort that finds nothing changes nothing.
            if self._server.broken.is_set():
                raise
            return True

    def _looks_enough(self) -> int:
        # An abort that finds the message there has most probably found its run as well.
        return _SOON if self._progress.idled_since else _NEVER

    @property
    def _place(self) -> str:
        return f"/session/{self._session}/message/{self._message}"

    async def _is_there(self) -> bool:
        try:
            await self._server.wire.get(self._place)
        except (BackendRefused, NotThere):
            return False
        return True

    async def _withdraw(self) -> bool:
        """Take the message back, which opencode does not do where it works; whether it has.

        An abort between the message and the first word about it ends the run, and nothing tells.
        """
        try:
            await self._server.wire.delete(self._place)
        except (BackendRefused, NotThere):
            return False
        return True

    async def _abort_agents(self) -> None:
        try:
            await self._agents.enumerate()
        except BackendError:
            self._agents.unsure = True
        for session in sorted(self._agents.sessions):
            left = trio.Event()
            self._server.post_aside(f"/session/{session}/abort", None, left)
            await wait_at_most(left, LEAVES_WITHIN)

    async def _tell(self, sent: Callable[[], None]) -> None:
        """Send an abort, in a task that outlives the turn, for the next one must know its answer.

        An abort is the session's and not the turn's: one that is late would end the next turn.
        """
        if self._server.broken.is_set():
            raise self._server.loss()
        abort = self.abort = Abort()

        async def post() -> None:
            try:
                await self._post(abort)
            except trio.Cancelled:
                abort.error = self._server.loss()
                raise
            except NotThere as error:
                abort.error = BackendRefused(str(error))
            except BackendError as error:
                abort.error = error
            finally:
                abort.end()

        self._server.reading.start(Reader(), post, name=f"opencode abort {self._session}")
        await abort.left.wait()
        if not isinstance(abort.error, BackendRefused):
            sent()
        await abort.over.wait()
        if abort.error is not None:
            raise abort.error

    async def _post(self, abort: Abort) -> None:
        path = f"/session/{self._session}/abort"
        for times in range(1, _TRIES):
            try:
                await self._server.wire.post(path, sent=abort.left.set)
            except NoOpenCode:
                # A proxy has answered, and that may be over soon: opencode was not told.
                await trio.sleep(times * _LOOK_EVERY)
            else:
                return
        await self._server.wire.post(path, sent=abort.left.set)
