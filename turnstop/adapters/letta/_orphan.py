"""A run that another process has begun, which is gone: found again, and ended."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Final, final

import attrs
import trio

from ..._errors import BackendError, BackendLost, BackendRefused
from ...abc import Emit, End, How, Proof
from ._account import APPROVAL, judge
from ._address import Address
from ._session import LettaSession
from ._wire import Run, Wire

# The server shows a run a quarter of a second after its message has come, a busy one later.
_FINDS: Final = (0.0, 0.05, 0.1, 0.1, *itertools.repeat(0.25, 5))
# Once the run is called over, for as long as an ordinary stop looks for the trace.
_LOOKS: Final = (0.0, 0.02, 0.05, 0.1, *itertools.repeat(0.25, 15))
_LOOK_EVERY: Final = 0.1
_FAILS: Final = 5


@final
class LettaOrphan:
    """A message, and the run that it has begun, if it has come to one."""

    def __init__(self, wire: Wire, address: Address) -> None:
        self._wire = wire
        self._told = address
        self._run_id = address.run_id or None
        self._strangers: set[str] = set()
        self._over: End | None = None
        self._lost: BackendLost | None = None
        self._idle: str | None = None
        self._looks: Iterator[float] | None = None
        self._fails = 0
        self._session: LettaSession | None = LettaSession(
            address.agent_id, address.conversation_id or None, run_id=address.since or None
        )

    @property
    def session(self) -> LettaSession | None:
        """The agent, and the conversation, where it is there still."""
        return self._session

    @property
    def address(self) -> str:
        """Where it is."""
        return str(attrs.evolve(self._told, run_id=self._run_id or ""))

    async def find(self) -> None:
        """Find the run, and learn how it stands.

        Raises:
            BackendRefused: its message has begun none, and begins none any more.
        """
        if self._run_id is None:
            await self._search()
        if self._run_id is None and self._told.place == "made":
            await self._see_that_none_begins()
        if self._run_id is None:
            self._lost = self._lost or BackendLost(
                "no run of this turn is to be seen: its message may never have been sent, or come "
                f"later; look at what {self._told.agent_id} does"
            )
            await self._recall_asked(self._told.since)
            return
        if self._session is not None:
            self._session = attrs.evolve(self._session, run_id=self._run_id)
        with suppress(BackendError):
            self._over = await self._look()

    async def _search(self) -> None:
        for pause in _FINDS:
            await trio.sleep(pause)
            try:
                self._run_id = await self._look_up()
            except BackendError as error:
                self._lost = BackendLost(f"the run of this turn was not found: {error}")
                continue
            self._lost = None
            if self._run_id is not None:
                return

    async def _look_up(self) -> str | None:
        told = self._told
        place = told.agent_id, told.conversation_id or None
        runs = await self._wire.runs_after(*place, told.since or None)
        unknown = [run for run in runs if run.id not in self._strangers]
        for run in list(unknown):
            step = await self._wire.newest_step(run.id)
            if step is not None and step.mark == told.mark:
                return run.id
            if step is not None and step.mark is not None:
                self._strangers.add(run.id)
                unknown.remove(run)
        # Nobody speaks in a conversation that was just made, and hardly anybody in a room's.
        likely = {"made": runs, "shared": []}.get(told.place, unknown)
        return likely[0].id if likely else None

    async def _see_that_none_begins(self) -> None:
        """See to it that a message which is still on its way finds no conversation."""
        if self._lost is not None:
            return
        try:
            await self._wire.drop_conversation(self._told.conversation_id)
        except BackendError as error:
            self._lost = BackendLost(f"a run of this turn may begin yet: {error}")
            return
        self._session = None
        await self._search()
        if self._run_id is None and self._lost is None:
            raise BackendRefused("the process was gone before its message had come to Letta")

    async def follow(self, emit: Emit) -> End:
        """Look at the run until it is over, and its last model call is."""
        while self._over is None:
            if self._lost is not None:
                raise self._lost
            pause = _LOOK_EVERY if self._looks is None else next(self._looks, None)
            if pause is None:
                return End(How.CANCELLED, Proof.CLAIMED)
            await trio.sleep(pause)
            try:
                self._over = await self._look()
                self._fails = 0
            except BackendError as error:
                self._fails += 1
                if self._fails == _FAILS:
                    self._lost = BackendLost(f"the run is out of sight: {error}")
        return self._over

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Have it cancelled. Of one that was over when it was found, `follow` has said so."""
        if self._run_id is None:
            raise BackendLost("the run of this turn is lost: look at what the agent does")
        await self._wire.cancel(self._told.agent_id, self._run_id, sent)

    async def _look(self) -> End | None:
        """The run's end, once there is one to be seen."""
        assert self._run_id is not None
        run = await self._wire.find_run(self._run_id)
        if run.reason == APPROVAL:
            # Nothing works, and nobody is there who would go on with it.
            await self._recall_asked(run.id)
            return End(How.CANCELLED, Proof.EVENT)
        if run.status in ("created", "running"):
            return None
        if run.status == "completed":
            # Said by its own loop, at the very end.
            return End(judge(run.reason), Proof.EVENT, detail=run.reason or "")
        if self._looks is None:
            self._looks = iter(_LOOKS)
        if not await self._is_idle(run):
            return None
        how = How.CANCELLED if run.status == "cancelled" else How.FAILED
        return End(how, Proof.EVENT, detail=run.reason or "")

    async def _recall_asked(self, run_id: str) -> None:
        """Have the next turn deny what the run has asked a person."""
        if self._session is not None and run_id:
            with suppress(BackendError):
                asked = await self._wire.asked_in(run_id)
                self._session = attrs.evolve(self._session, asked=asked)

    async def _is_idle(self, run: Run) -> bool:
        """Whether a run that is said to be over is."""
        step = await self._wire.newest_step(run.id)
        if step is None:
            # One that was cancelled may come to its first step yet.
            return run.status == "failed"
        if not (step.over and await self._wire.is_traced(step.id)):
            return False
        # The next step may have begun in the moment of the cancel: it would be here by now.
        seen, self._idle = self._idle, step.id
        return run.status == "failed" or seen == step.id
