"""`open_rooms`: the nursery that turns live in, and the face of it."""

from __future__ import annotations

import itertools
import secrets
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from contextvars import copy_context
from typing import Any, Final, Generic, TypeVar, final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from ._admission import Door
from ._budget import StopBudget
from ._calls import Call
from ._errors import BackendError, RoomsClosed
from ._house import House, Journal, Orphan
from ._receipt import StopReceipt, ask_all
from ._records import OnlyMadeByUs, Settlement, Statistics, StopRequest, StopVerdict
from ._turn import Turn
from ._unwrap import open_private_nursery
from ._watch import Watch, observers_of
from ._workers import Workers
from .abc import Backend

Content = TypeVar("Content")

_LOOKS_EVERY: Final = 10.0
"""Seconds between two looks for turns of processes that have died meanwhile."""


@attrs.define(eq=False)
class _Retiring:
    """The guest that holds a room while it is retired."""

    task: trio.lowlevel.Task | None


@final
@attrs.define(eq=False, repr=False)
class Rooms(Generic[Content], metaclass=OnlyMadeByUs):
    """Rooms of one backend: one turn at a time in each, first come, first served.

    Made by `open_rooms`.
    """

    _house: House
    _prefix: str = attrs.field(factory=lambda: secrets.token_hex(4), init=False)
    _numbers: itertools.count[int] = attrs.field(factory=lambda: itertools.count(1), init=False)
    _looking: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)

    def turn(self, room: str, content: Content, *, turn_id: str | None = None) -> Turn:
        """A turn to be entered with `async with`; nothing happens before that.

        Args:
            room: the conversation. Its turns never overlap.
            content: what the backend takes: a str, or what its adapter documents.
            turn_id: names the turn, uniquely in its room; made up by default.

        Raises:
            TypeError: the room or the turn's id is no str.
            ValueError: the turn's id is empty.
        """
        if not isinstance(room, str):
            raise TypeError(f"a room is named by a str: got {room!r}")
        if turn_id is None:
            turn_id = f"{self._prefix}-{next(self._numbers)}"
        # A journal could not say of another which turn it was, and nobody would take it up.
        if not isinstance(turn_id, str):
            raise TypeError(f"a turn's id is a str: got {turn_id!r}")
        if not turn_id:
            raise ValueError("a turn's id is empty: leave turn_id out to have one made up")
        turn: Turn = Turn._create(self._house, room, turn_id, content)
        return turn

    @enable_ki_protection
    def stop(
        self, room: str, *, turn_id: str | None = None, reason: str = "", source: str = ""
    ) -> StopReceipt:
        """Stop the room's turns, the waiting ones too. Never waits, raises nothing of a backend.

        Args:
            room: a room without turns is no error: the receipt says NOTHING.
            turn_id: stop this turn only; the receipt says STALE where it is not live here.
            reason: free text, kept in the settlement.
            source: free text: where the asking came from.

        Raises:
            RuntimeError: called from another thread.
        """
        self._house.check_thread()
        turns, otherwise = self._turns_of(self._house.doors.get(room)), StopVerdict.NOTHING
        if turn_id is not None:
            turns = [turn for turn in turns if turn.turn_id == turn_id]
            otherwise = StopVerdict.STALE
        return ask_all(turns, StopRequest("stop", reason, source), otherwise)

    @enable_ki_protection
    def stop_all(self, *, reason: str = "", source: str = "") -> StopReceipt:
        """Stop every turn of every room; like `stop` otherwise."""
        self._house.check_thread()
        return self._stop_all(StopRequest("stop_all", reason, source))

    def _stop_all(self, request: StopRequest) -> StopReceipt:
        turns = [turn for door in self._house.doors.values() for turn in self._turns_of(door)]
        return ask_all(turns, request, StopVerdict.NOTHING)

    @staticmethod
    def _turns_of(door: Door | None) -> Sequence[Turn]:
        if door is None:
            return ()
        if not door.waiting and isinstance(door.holder, Turn):
            return (door.holder,)
        return [guest for guest in door.guests() if isinstance(guest, Turn)]

    @enable_ki_protection
    async def retire(self, room: str) -> None:
        """Stop the room's turns, wait for the room, and have the backend forget its session.

        Raises:
            RuntimeError: called inside a block of this room.
            RoomsClosed: the rooms are closing.
            BackendError: `forget` took longer than the budget's `kill_within` seconds; or
                whatever it raised. The session is dropped all the same.

        **Cancellation:** while waiting for the room: its turns are stopped, the session is kept.
        Once `forget` is called, it is waited for within its bound.
        """
        door = self._house.door(room)
        guest = _Retiring(trio.lowlevel.current_task())
        request = StopRequest("retire")
        try:
            for turn in self._turns_of(door):
                turn.ask(request)
            if door.take_nowait(guest):
                await trio.lowlevel.checkpoint()
            else:
                await door.wait(guest)
                await trio.lowlevel.checkpoint_if_cancelled()
            session, door.session, door.previous = door.session, None, None
            await self._forget(room, session)
        finally:
            self._house.leave(door, guest)

    async def _forget(self, room: str, session: object | None) -> None:
        forget = getattr(self._house.backend, "forget", None)
        if forget is None or session is None:
            return
        call, back, errors = Call("forget"), trio.Event(), []
        within = self._house.budget.kill_within

        async def attempt() -> None:
            try:
                await call.make(forget, session)
            except Exception as error:
                errors.append(error)
            finally:
                back.set()

        self._house.workers.spawn(copy_context(), attempt, f"turnstop forget of {room!r}")
        # The wait is ours and can be abandoned; the call may refuse to die.
        with trio.move_on_after(within, shield=True):
            await back.wait()
        if not back.is_set():
            call.outlive(self._house.stragglers, room)
            raise BackendError(f"forget() of room {room!r} took longer than {within} s")
        if errors:
            raise errors[0]
        if not call.ok:
            # Ctrl-C or the like is on its way out of open_rooms, and cancels whoever is inside.
            await trio.lowlevel.checkpoint_if_cancelled()
            raise RoomsClosed(f"forget() of room {room!r} ended these rooms")

    def statistics(self) -> Statistics:
        """A snapshot of these rooms."""
        turns = [turn for door in self._house.doors.values() for turn in self._turns_of(door)]
        states = [turn.state for turn in turns]
        return Statistics(
            rooms=sum(door.holder is not None for door in self._house.doors.values()),
            live=states.count("live") + states.count("stopping"),
            waiting=states.count("waiting"),
            stopping=states.count("stopping"),
            stragglers=len(self._house.stragglers),
            dropped=self._house.tally.dropped,
        )

    async def _recover(self, start_soon: Callable[..., None]) -> None:
        """Have each turn that a process has left hold its room, and be stopped."""
        journal = self._house.journal
        if journal is None:
            return
        await self._take_over(journal, start_soon)
        start_soon(self._look_again, journal, start_soon, name="turnstop recovery")
        # They are begun in the next pass, and each has its room, or its place in the queue, when
        # that is over: before any turn of the application's.
        await trio.lowlevel.cancel_shielded_checkpoint()
        await trio.lowlevel.cancel_shielded_checkpoint()

    async def _take_over(
        self, journal: Journal, start_soon: Callable[..., None], again: bool = False
    ) -> None:
        for orphan in await journal.take_over(self._house.backend_name, again=again):
            start_soon(self._end, orphan, name=f"turnstop recovery of {orphan.turn_id}")

    @enable_ki_protection
    async def _look_again(self, journal: Journal, start_soon: Callable[..., None]) -> None:
        with self._looking:
            while True:
                await trio.sleep(_LOOKS_EVERY)
                await self._take_over(journal, start_soon, again=True)

    @enable_ki_protection
    async def _end(self, orphan: Orphan) -> None:
        turn: Turn = Turn._create(self._house, orphan.room, orphan.turn_id, orphan)
        # Not cancelled while it waits for its room: that would say that nothing began.
        with trio.CancelScope(shield=True):
            try:
                async with turn:
                    turn.ask(StopRequest("recovery"))
            except RoomsClosed:
                # It was found while these rooms close.
                orphan.entry.note_left()

    def _shut(self) -> None:
        self._house.closing = True
        self._stop_all(StopRequest("closing"))

    async def _close(self) -> None:
        self._shut()
        self._looking.cancel()
        await self._house.wait_empty()
        self._house.workers.dismiss()
        self._house.watch.close()

    def __repr__(self) -> str:
        state = "closing" if self._house.closing else "open"
        return f"<Rooms of {self._house.backend!r}: {state}, {self.statistics()}>"


@asynccontextmanager
@enable_ki_protection
async def open_rooms(
    backend: Backend[Content],
    *,
    budget: StopBudget | None = None,
    sweep: bool = True,
    observers: Sequence[Callable[[Settlement], Any]] = (),
    journal: Journal | None = None,
) -> AsyncGenerator[Rooms[Content], None]:
    """Open rooms in which a backend works on turns.

    Args:
        backend: what an adapter's `open_*` yields, or anything that fits `turnstop.abc.Backend`.
        budget: the bound of each stop; 5 s and 2 s by default.
        sweep: end what a stopped turn left; False lists it in `Settlement.survivors` instead.
        observers: called with each `Settlement`, by a task of the kernel. One that raises is
            logged and dropped.
        journal: what `turnstop.journal.open_journal` yields: turns are noted in it, and those
            that a process has left there which is gone are stopped here. A room lets its next turn
            in when its old one is settled. Of a process that dies while these rooms are open,
            and in whose place none is started within half a minute, they are stopped here too,
            each when its room's turn has ended.

    The exit stops what is live, waits until every block has left, and then for adapter calls
    that refuse to end.

    Raises:
        TypeError: the backend has no `start`, an observer cannot be called, or the journal is none.
        RuntimeError: the backend would close before these rooms, and can tell.

    **Cancellation:** stops every turn in the step in which it arrives; the exit then waits for
    the settlements, within their budget.
    """
    if isinstance(backend, type) or not callable(getattr(backend, "start", None)):
        raise TypeError(
            f"open_rooms takes a backend, as an adapter's open_* yields it: got {backend!r}"
        )
    if journal is not None and not callable(getattr(journal, "take_over", None)):
        raise TypeError(
            f"open_rooms takes a journal, as `async with open_journal(path)` yields it: "
            f"got {journal!r}"
        )
    if (check_nesting := getattr(backend, "check_nesting", None)) is not None:
        check_nesting()
    watch = Watch(observers_of(observers))
    async with open_private_nursery() as nursery:
        workers = Workers(nursery.start_soon)
        house = House(backend, budget or StopBudget(), sweep, workers, watch, journal)
        rooms: Rooms[Content] = Rooms._create(house)
        nursery.start_soon(watch.run, rooms._shut, name="turnstop watch")
        try:
            await rooms._recover(nursery.start_soon)
            yield rooms
        finally:
            await rooms._close()
