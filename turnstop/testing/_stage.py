"""Where an obligation plays: rooms over a probe, and people who take turns in them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import attrs
import trio

from .._records import Settlement
from .._rooms import Rooms, open_rooms
from .._service import open_service
from .._turn import Turn
from .._unwrap import open_private_nursery
from ..abc import Backend
from ..events import Ask, Event, Text
from ._notebook import Notebook
from ._probe import Probe, Work, has_lever

__all__ = ["Actor", "Broken", "Stage"]


class Broken(AssertionError):
    """A promise was not kept; the text says which, and what was seen instead."""


@attrs.define(eq=False)
class Actor:
    """Somebody who takes one turn.

    Attributes:
        turn: the turn.
        text: what is asked.
        work: the far end's work for it; None until the request has arrived there.
        scope: the scope around the block: cancel it, or give it a deadline.
        heard: the texts that were read, in order.
        asks: the questions that were read.
        entered_at: when the body began; Trio's clock, as the next one.
        left_at: when the block was left.
        error: what it was left with.
    """

    turn: Turn
    text: str
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    work: Work | None = None
    heard: list[str] = attrs.field(factory=list)
    asks: list[Ask] = attrs.field(factory=list)
    entered_at: float | None = None
    left_at: float | None = None
    error: BaseException | None = None

    @property
    def settlement(self) -> Settlement:
        """The turn's settlement.

        Raises:
            Broken: there is none yet.
        """
        if self.turn.settlement is None:
            raise Broken(f"{self.text!r} is not settled, it is {self.turn.state}")
        return self.turn.settlement

    def note(self, event: Event) -> None:
        """Keep what was read."""
        if isinstance(event, Text):
            self.heard.append(event.delta)
        elif isinstance(event, Ask):
            self.asks.append(event)


async def read(actor: Actor) -> None:
    """A body that reads to the end.

    **Cancellation:** no event is lost.
    """
    async for event in actor.turn:
        actor.note(event)


@attrs.define(eq=False)
class Stage:
    """One obligation's rooms, over the probe's backend.

    Attributes:
        probe: the adapter and the levers of its far end.
        suffix: what the turns' ids end in, where other stages share the backend.
        settlements: what the rooms' observer was told, in order.
        turns: every turn that was taken.
        tolerance: seconds within which two times are the same: next to nothing in virtual time,
            more where the clock is real.
        moment: seconds, more than `tolerance`, and less than the budget has for a cancel.
        patience: seconds that something may take to happen that no promise bounds.
        broken: the promise that was not kept.
        unseen: why what was promised could not show, as far as that is so.
        lacks: what the adapter does not offer, and need not; with the reason.
        notebook: where the turns are noted, so that others can end them; None: nowhere.
        again: whether its backend is the next process's: see `Probe.open_again`.
    """

    probe: Probe
    suffix: str = ""
    settlements: list[Settlement] = attrs.field(factory=list)
    turns: list[Turn] = attrs.field(factory=list)
    actors: list[Actor] = attrs.field(factory=list)
    broken: Broken | None = None
    unseen: str = ""
    lacks: str = ""
    notebook: Notebook | None = None
    again: bool = False
    _backend: Backend[Any] | None = None
    _rooms: Rooms[Any] | None = None
    _people: trio.Nursery | None = None

    @property
    def tolerance(self) -> float:
        """See above."""
        return 1e-6 if self.probe.clock == "virtual" else 0.25

    @property
    def moment(self) -> float:
        """See above."""
        return 1.0 if self.probe.clock == "virtual" else 0.5

    @property
    def patience(self) -> float:
        """See above."""
        return 30.0 if self.probe.clock == "virtual" else 20.0

    @property
    def rooms(self) -> Rooms[Any]:
        """The rooms of `open`."""
        assert self._rooms is not None
        return self._rooms

    @property
    def bound(self) -> float:
        """Within how many seconds of the asking an ending is known."""
        return self.probe.budget.cancel_within + self.probe.budget.kill_within

    @property
    def settled_within(self) -> float:
        """Within how many seconds of the asking a turn is settled, with leftovers looked for."""
        return self.bound + self.probe.budget.kill_within

    def can(self, lever: str) -> bool:
        """Whether the far end has this lever: an obligation uses more than it needs."""
        return has_lever(self.probe, lever)

    def able(self, ability: str) -> bool:
        """Whether the backend does not say that it is unable to do this."""
        return ability not in self.probe.unable

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Stage, None]:
        """Open the backend and rooms over it, as an application would.

        **Cancellation:** as `open_rooms`.
        """
        opening = self.probe.open_again() if self.again else self.probe.open()
        async with opening as self._backend, open_service() as service:
            async with open_rooms(
                self._backend,
                budget=self.probe.budget,
                observers=[self.settlements.append],
                journal=self.notebook,
            ) as self._rooms:
                async with open_private_nursery() as self._people:
                    try:
                        yield self
                    except trio.Cancelled:
                        # An application's end is played with works that end late, not at once.
                        service.start_soon(self._release_at_the_bound)
                        raise
                    except BaseException as error:
                        # Kept, for a kernel that breaks a promise may also never let go.
                        self.broken = error if isinstance(error, Broken) else None
                        self.probe.release()
                        raise
                    # Before the people leave: a broken kernel makes them wait for ever.
                    self.probe.release()
                    self._people.cancel_scope.cancel()

    def after(self, *left: tuple[str, str, str | None]) -> Stage:
        """The stage of the next process: this one is gone.

        Args:
            left: what this one has left: a room, a turn's id, and its address if that is known.
        """
        shared = (self.settlements, self.turns, self.actors)
        return Stage(self.probe, self.suffix, *shared, notebook=Notebook(left), again=True)

    def recovered(self, turn_id: str) -> Settlement | None:
        """How a turn has ended that was left."""
        found = (one for one in self.settlements if one.turn_id == turn_id)
        return next((one for one in found if one.request and one.request.kind == "recovery"), None)

    def require(self, member: str, without: str) -> None:
        """Go on where the adapter offers an optional member.

        Raises:
            Broken: it does not; that is excused, since it need not.
        """
        if not getattr(self._backend, member, False):
            self.lacks = f"it offers no {member}: {without}"
            self.fail(self.lacks)

    async def _release_at_the_bound(self) -> None:
        await trio.sleep(self.settled_within + self.tolerance)
        self.probe.release()

    # People.

    def enter(
        self,
        room: str,
        text: str,
        body: Callable[[Actor], Awaitable[object]] = read,
    ) -> Actor:
        """Have somebody take a turn, in a task of their own, and do not wait for anything."""
        assert self._people is not None
        turn = self.rooms.turn(room, self.probe.content(text), turn_id=f"{text}{self.suffix}")
        actor = Actor(turn, text)
        self.turns.append(turn)
        self.actors.append(actor)
        self._people.start_soon(self._take, actor, body, name=f"{text} in {room}")
        return actor

    async def begin(
        self,
        room: str = "kitchen",
        text: str = "first",
        body: Callable[[Actor], Awaitable[object]] = read,
    ) -> tuple[Actor, Work]:
        """Have somebody take a turn, and wait until the far end works on it and it is revealed.

        Raises:
            Broken: that does not happen.

        **Cancellation:** leaves the turn to its task.
        """
        actor = self.enter(room, text, body)
        work = await self.asked(actor)
        await self._met(actor, lambda: work.began_at is not None, "begins at the far end")
        await self.quiet()
        return actor, work

    async def at_work(self) -> None:
        """Wait until the far end works on something: a real one may take long to begin.

        Raises:
            Broken: it never does.

        **Cancellation:** changes nothing.
        """
        await self.until(lambda: any(work.runs for work in self.probe.works), "the far end works")

    async def asked(self, actor: Actor) -> Work:
        """Wait until the far end was asked for this actor's work.

        Raises:
            Broken: it is not.

        **Cancellation:** changes nothing.
        """
        await self._met(actor, lambda: self.find(actor) is not None, "is asked for")
        work = self.find(actor)
        assert work is not None
        return work

    async def _met(self, actor: Actor, holds: Callable[[], object], what: str) -> None:
        """Wait until something holds of a turn, and no longer than its block is open."""
        await self.until(lambda: holds() or actor.left_at is not None, f"{actor.text!r} {what}")
        if not holds():
            self.fail(f"{actor.text!r} was over before it {what}: {actor.error!r}")

    def find(self, actor: Actor) -> Work | None:
        """The newest work that was asked for this actor."""
        found = self.all_of(actor)
        actor.work = found[-1] if found else None
        return actor.work

    def all_of(self, actor: Actor) -> list[Work]:
        """All the works that were asked for this actor: there should be one."""
        return [work for work in self.probe.works if actor.text in work.text]

    async def left(self, actor: Actor) -> Settlement:
        """Wait until an actor has left its block; return the settlement.

        Raises:
            Broken: it does not leave in time.

        **Cancellation:** changes nothing.
        """
        await self.until(
            lambda: actor.left_at is not None,
            f"the block of {actor.text!r} is left; it is {actor.turn.state}",
        )
        return actor.settlement

    async def _take(self, actor: Actor, body: Callable[[Actor], Awaitable[object]]) -> None:
        try:
            with actor.scope:
                async with actor.turn:
                    actor.entered_at = trio.current_time()
                    await body(actor)
        except trio.Cancelled:
            raise
        except Exception as error:
            actor.error = error
        finally:
            actor.left_at = trio.current_time()

    def aside(self, run: Callable[[], Awaitable[object]]) -> None:
        """Have somebody else do something meanwhile; whoever leaves the stage cancels it."""
        assert self._people is not None
        self._people.start_soon(run)

    # Time.

    async def until(self, holds: Callable[[], object], what: str) -> None:
        """Wait until something holds, at most `patience` seconds.

        Raises:
            Broken: it does not, and `what` is what was waited for.

        **Cancellation:** changes nothing.
        """
        with trio.move_on_after(self.patience):
            pause = 0.01
            while not holds():
                # What it waits for is not ours to signal. Looking costs most of what the kit costs.
                await trio.sleep(pause)
                pause = min(pause * 1.2, 0.2 if self.probe.clock == "virtual" else 0.05)
            return
        raise Broken(f"waited for {self.patience:g} s until {what}: in vain")

    async def quiet(self) -> None:
        """Let everything happen that is about to happen.

        **Cancellation:** changes nothing.
        """
        await trio.sleep(0.01 if self.probe.clock == "virtual" else 0.1)

    # Judging.

    def same(self, one: float | None, other: float | None) -> bool:
        """Whether two times are the same instant; None is the same as None only."""
        if one is None or other is None:
            return one is other
        return abs(one - other) <= self.tolerance

    def not_before(self, later: float | None, earlier: float | None) -> bool:
        """Whether both happened, and in this order or at once."""
        if later is None or earlier is None:
            return False
        # Two that are seen over two connections may be seen in the other order.
        return later >= earlier - (1e-6 if self.probe.clock == "virtual" else 0.05)

    def expect(self, holds: object, text: str) -> None:
        """Go on where it holds.

        Raises:
            Broken: it does not; with `text`.
        """
        if not holds:
            self.fail(text)

    def fail(self, text: str) -> NoReturn:
        """Say that the promise is not kept.

        Raises:
            Broken: always.
        """
        raise Broken(text)
