"""How a customer message is processed: the task of its session, and what that starts."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, Protocol

import attrs
import trio

from ..._probe import Work
from ._events import Event, EventStore, Kind, Source

__all__ = ["Levers", "Processing"]


class Levers(Protocol):
    """What the engine was ordered to do with every message."""

    held: asyncio.Event
    refuses: bool
    swallows: bool
    preamble_swallows: bool
    ends_after: float
    dying: bool


class _Over(Exception):
    """It was told to stop, and obeys."""


class _Failed(Exception):
    """It was ordered to fail."""


@attrs.define(eq=False)
class Processing:
    """A message that is processed."""

    work: Work
    levers: Levers
    store: EventStore
    _orders: asyncio.Queue[tuple[str, str, float]] = attrs.field(factory=asyncio.Queue)
    _tasks: list[asyncio.Task[Any]] = attrs.field(factory=list)
    _generated: asyncio.Event = attrs.field(factory=asyncio.Event)
    _streamed: Event | None = None
    _obeys_at: float | None = None

    async def run(self) -> None:
        """The processing task. It returns, also where it was cancelled: the engine sees to that.

        **Cancellation:** does what the levers say.
        """
        self._watch(asyncio.current_task())
        try:
            await self._await_release()
        except _Over:
            return
        if self.levers.refuses:
            return
        self.tell("acknowledged")
        preamble = self._start(self._be_preamble())
        thinking = self._start(self._think(preamble))
        try:
            await self._process()
            self._generated.set()
        except _Over:
            self.tell("cancelled")
        except _Failed as error:
            self.tell("ready", stage="completed")
            self.tell("error", exception=repr(["Traceback ...\n", f"RuntimeError: {error}\n"]))
            thinking.cancel()
            return
        thinking.cancel()
        self.tell("ready", stage="completed")

    def order(self, verb: str, text: str = "", seconds: float = 0.0) -> None:
        """Have it do something. What it was ordered before it was released is done then."""
        if verb in ("finish", "fail") and not self.levers.held.is_set():
            self.work.ended_at = self.work.ended_at or now()
        self._orders.put_nowait((verb, text, seconds))

    def say(self, text: str) -> None:
        """Say a piece of the answer, whether it is over or not: a message that grows."""
        if self._streamed is None:
            self._streamed = self.add(Kind.MESSAGE, {"message": "", "chunks": []})
        data = self._streamed.data
        self._streamed.data = {
            "message": data["message"] + text,
            "chunks": [*data["chunks"], text],
        }

    def tell(self, status: str, **data: object) -> None:
        """Say a status."""
        self.add(Kind.STATUS, {"status": status, "data": data})

    def add(self, kind: Kind, data: Any) -> Event:
        """Say anything."""
        assert self.work.session is not None
        return self.store.add(self.work.session, Source.AI_AGENT, kind, self.work.name, data)

    async def _await_release(self) -> None:
        while not self.levers.held.is_set():
            try:
                await self.levers.held.wait()
            except asyncio.CancelledError as told:
                self._hear(told)

    async def _process(self) -> None:
        while True:
            try:
                async with asyncio.timeout_at(self._obeys_at):
                    verb, text, seconds = await self._orders.get()
            except TimeoutError:
                raise _Over from None
            except asyncio.CancelledError as told:
                self._hear(told)
                continue
            if verb == "say":
                self.say(text)
            elif verb == "emit":
                await self._emit(text, seconds)
            elif verb == "fail":
                raise _Failed(text)
            elif verb == "let go":
                raise _Over
            if verb in ("finish", "emit"):
                return

    def _hear(self, told: asyncio.CancelledError) -> None:
        """It is told to stop, with a reason; what comes later, and without one, is force."""
        if self.levers.dying:
            raise _Over
        if told.args or not self.work.told_at:
            self.work.told_at.append(now())
        if self.levers.swallows:
            return
        if not self.levers.ends_after:
            raise _Over
        self._obeys_at = self._obeys_at or now() + self.levers.ends_after

    async def _emit(self, text: str, seconds: float) -> None:
        """A message behind the latch: who is cancelled once meanwhile waits for it."""
        emitted = asyncio.Event()

        async def emit() -> None:
            await asyncio.sleep(seconds)
            self.add(Kind.MESSAGE, {"message": text})
            emitted.set()

        shim = self._start(emit())
        try:
            await asyncio.shield(shim)
        except asyncio.CancelledError:
            self.work.told_at.append(now())
            try:
                await emitted.wait()
            except asyncio.CancelledError:
                raise _Over from None

    async def _be_preamble(self) -> None:
        """It is generated until there is an answer, also when the engine has given that up."""
        self.tell("typing")
        while not self._generated.is_set():
            try:
                await self._generated.wait()
            except asyncio.CancelledError:
                # What a failure leaves behind is ended by nobody's order, and obeys.
                ordered = self.levers.preamble_swallows and self.work.told_at
                if self.levers.dying or not ordered:
                    raise

    async def _think(self, preamble: asyncio.Task[None]) -> None:
        while not preamble.done():  # noqa: ASYNC110  as the engine does
            await asyncio.sleep(0.1)

    def _start(self, child: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(child)
        self._watch(task)
        return task

    def _watch(self, task: asyncio.Task[Any] | None) -> None:
        assert task is not None
        self._tasks.append(task)
        task.add_done_callback(self._note_end)

    def _note_end(self, _: object) -> None:
        if self.work.runs and all(task.done() for task in self._tasks):
            self.work.ended_at = now()

    def let_go(self) -> None:
        """End, whatever the levers said."""
        self._orders.put_nowait(("let go", "", 0.0))
        self._generated.set()


def now() -> float:
    """Seconds on Trio's clock, which is the loop's."""
    return trio.current_time()
