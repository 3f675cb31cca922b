"""Between a turn's `follow`, which never waits, and its reader, which may be slow or gone."""

from __future__ import annotations

from collections import deque
from typing import Protocol

import attrs
import outcome
import trio
from trio.lowlevel import RaiseCancelT, enable_ki_protection

from ._errors import Silenced
from .events import Ask, Event, Text, Thought

MAX_EVENTS = 10_000
MAX_TEXT = 4 * 1024 * 1024


def _weight(event: Event) -> int:
    """The bytes of text that an event carries, `raw` not counted."""
    found = 0
    for name in ("delta", "detail", "text"):
        text = getattr(event, name, "")
        found += len(text) if text.isascii() else len(text.encode("utf-8", "surrogatepass"))
    return found


@attrs.define(eq=False)
class _Run:
    """Neighbouring deltas that the reader gets as one. `raw` is the last piece's frame."""

    kind: type[Text] | type[Thought]
    pieces: list[str]
    raw: object
    weight: int

    def joined(self) -> Event:
        return self.kind("".join(self.pieces), raw=self.raw)


@attrs.define(eq=False)
class Tally:
    """Counts events that nobody read, over all turns of some rooms."""

    dropped: int = 0


class Owner(Protocol):
    """Whose events these are."""

    def overflow(self) -> None:
        """The reader is too slow: close the gate."""


@attrs.define(eq=False)
class Gate:
    """The events of one turn that wait for their reader, and the questions that wait for a person.

    It is open, then *closed* (a stop: nothing more is heard, what waits is dropped) or *over*
    (the end: what waits may still be read), and a closed gate becomes over at settlement.

    Attributes:
        owner: is told when the reader is too slow.
        tally: counts what is dropped here for all turns together.
        reader: the task that read last; None where no reader ever came.
        dropped: events that nobody read.
    """

    owner: Owner = attrs.field(repr=False)
    tally: Tally
    reader: trio.lowlevel.Task | None = None
    dropped: int = 0
    _waiting: deque[Event | _Run] | None = attrs.field(default=None, init=False)
    _weight: int = attrs.field(default=0, init=False)
    _closed: bool = attrs.field(default=False, init=False)
    _over: bool = attrs.field(default=False, init=False)
    _error: BaseException | None = attrs.field(default=None, init=False)
    _reading: bool = attrs.field(default=False, init=False)
    _parked: trio.lowlevel.Task | None = attrs.field(default=None, init=False)
    _asks: dict[str, trio.lowlevel.Task] | None = attrs.field(default=None, init=False)

    @enable_ki_protection
    def __call__(self, event: Event) -> None:
        """Emit: see `turnstop.abc.Emit`."""
        if self._closed or self._over:
            self._drop(1)
            return
        weight = _weight(event)
        self._weight += weight
        if self._waiting is None:
            self._waiting = deque()
        behind = bool(self._waiting)
        if not self._merge(self._waiting, event, weight):
            self._waiting.append(event)
        # One event of any size is no backlog: no reader could have been faster.
        if behind and (len(self._waiting) > MAX_EVENTS or self._weight > MAX_TEXT):
            self.owner.overflow()
        else:
            self._wake()

    @staticmethod
    def _merge(waiting: deque[Event | _Run], event: Event, weight: int) -> bool:
        if not waiting or not isinstance(event, (Text, Thought)):
            return False
        last = waiting[-1]
        if isinstance(last, _Run) and last.kind is type(event):
            last.pieces.append(event.delta)
            last.raw = event.raw
            last.weight += weight
            return True
        if type(last) is type(event):
            pieces = [last.delta, event.delta]
            waiting[-1] = _Run(type(event), pieces, event.raw, _weight(last) + weight)
            return True
        return False

    def _wake(self) -> None:
        if self._parked is not None:
            trio.lowlevel.reschedule(self._parked)
            self._parked = None

    @enable_ki_protection
    async def ask(self, ask: Ask) -> object:
        """Ask a person: see `turnstop.abc.Emit.ask`."""
        if self._asks is None:
            self._asks = {}
        asks = self._asks
        if ask.id in asks:
            raise ValueError(f"the ask {ask.id!r} is open already: give each ask its own id")
        self(ask)
        # A full backlog closes the gate in that very call.
        if self._closed or self._over:
            raise Silenced
        asks[ask.id] = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            del asks[ask.id]
            return trio.lowlevel.Abort.SUCCEEDED

        reply = await trio.lowlevel.wait_task_rescheduled(abort)
        # A stop in the step of the answer came after it, and before anything was done about it.
        if self._closed or self._over:
            raise Silenced
        return reply

    @enable_ki_protection
    def answer(self, ask_id: str, reply: object) -> bool:
        """Give a reply to whoever waits for it; False where nobody does any more."""
        task = None if self._asks is None else self._asks.pop(ask_id, None)
        if task is None:
            return False
        trio.lowlevel.reschedule(task, outcome.Value(reply))
        return True

    @property
    def asks(self) -> tuple[str, ...]:
        """The ids of the questions that nobody has answered yet, the oldest first."""
        return tuple(self._asks or ())

    def _silence(self) -> None:
        while self._asks:
            _, task = self._asks.popitem()
            trio.lowlevel.reschedule(task, outcome.Error(Silenced()))

    def close(self) -> None:
        """Nothing is heard from here on: what waits is dropped, and counted.

        A reader stays until the settlement.
        """
        self._silence()
        self._closed = True
        if self._waiting:
            self._drop(len(self._waiting))
            self._waiting = None

    def finish(self, error: BaseException | None = None) -> None:
        """The end: the reader gets what is left, then `error`, once, or the end of events."""
        if not self._over:
            self._over = True
            self._error = error
            self._silence()
            self._wake()

    def _drop(self, events: int) -> None:
        self.dropped += events
        self.tally.dropped += events

    def take_error(self) -> BaseException | None:
        """The error that no reader has been given; it is given once."""
        error, self._error = self._error, None
        return error

    @enable_ki_protection
    async def next(self) -> Event:
        """Wait for the next event.

        Raises:
            StopAsyncIteration: there will be no more.
            trio.BusyResourceError: another task is reading.

        **Cancellation:** no event is lost.
        """
        if self._reading:
            raise trio.BusyResourceError("another task is reading this turn's events")
        self._reading, self.reader = True, trio.lowlevel.current_task()
        try:
            # The checkpoint comes first: an event that is taken is an event that is heard.
            if self._waiting:
                await trio.lowlevel.checkpoint()
            while not self._waiting:
                if self._over:
                    # To a reader that a stop has cancelled, this is no normal end.
                    await trio.lowlevel.checkpoint_if_cancelled()
                    error = self.take_error()
                    raise StopAsyncIteration if error is None else error
                self._parked = self.reader
                raise_cancel = await trio.lowlevel.wait_task_rescheduled(self._abort)
                if raise_cancel is not None:
                    raise_cancel()
            return self._pop(self._waiting)
        finally:
            self._reading = False

    def _abort(self, raise_cancel: RaiseCancelT) -> trio.lowlevel.Abort:
        # The reader raises it in its own step. Had Trio to raise and catch it in this one, that
        # would be a third of what a stop costs whoever asks.
        assert self._parked is not None
        trio.lowlevel.reschedule(self._parked, outcome.Value(raise_cancel))
        self._parked = None
        return trio.lowlevel.Abort.FAILED

    def _pop(self, waiting: deque[Event | _Run]) -> Event:
        event = waiting.popleft()
        if isinstance(event, _Run):
            self._weight -= event.weight
            return event.joined()
        self._weight -= _weight(event)
        return event
