"""Doing what the steps of a schedule say."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

import attrs
import trio

from ..._errors import RoomsClosed
from .._probe import Work, has_lever
from ._crash import told
from ._later import look_for_answer, look_for_word
from ._people import come, take_turn
from ._person import NEVER, Person
from ._schedule import OF_ALL, SYNC, Schedule, Step
from ._world import World

__all__ = ["Conductor"]

OF_THE_ANSWERED = ("say", "ask", "leave", "say_end_again")


@attrs.define(eq=False)
class Conductor:
    """Does one step after the other.

    Attributes:
        people: where the people's tasks run.
        latecomers: where those who come after the closing run.
        close: closes the rooms, and says how.
    """

    world: World
    schedule: Schedule
    people: trio.Nursery
    latecomers: trio.Nursery
    close: Callable[[str], None]

    async def run(self) -> None:
        """Do them all; close the rooms where no step does.

        **Cancellation:** the rest of the steps is left out.
        """
        for step in self.schedule.steps:
            await self._wait(step.wait)
            if self.world.over:
                return
            await self._do(step)
        if self.world.closing == NEVER:
            self.close("leave")

    async def _wait(self, seconds: float) -> None:
        if seconds:
            await trio.sleep(seconds)
        else:
            await trio.lowlevel.checkpoint()

    async def _do(self, step: Step) -> None:
        own = getattr(self, f"_do_{step.what}", None)
        if own is not None:
            own(step)
        elif step.what == "end_late" or step.what in SYNC:
            self._set(step)
        elif step.what in OF_ALL:
            await self._meddle(step)
        else:
            await self._order(step)

    # What people do.

    def _do_enter(self, step: Step) -> None:
        person = come(self.world, step)
        # Who comes after the closing is not one of those who end with the rooms.
        where = self.people if self.world.closing == NEVER else self.latecomers
        where.start_soon(take_turn, self.world, person, name=step.who)

    def _do_stop(self, step: Step) -> None:
        person = self.world.people.get(step.who)
        if person is not None and person.here:
            room = person.step.room
            due = person in self.world.reachable(None)
            receipt = self.world.rooms.stop(room, turn_id=step.who, reason=step.who)
            self.world.note_receipt(receipt, step.who, room)
            if due and step.who not in receipt.turn_ids:
                self.world.blame("receipt", step.who, f"is not reached by its stop: {receipt}")
            if {*receipt.turn_ids} - {step.who}:
                self.world.blame("receipt", step.who, f"its stop reaches others: {receipt}")

    def _do_stop_room(self, step: Step) -> None:
        self._stop_many(step.room)

    def _do_stop_all(self, step: Step) -> None:
        self._stop_many(None)

    def _stop_many(self, room: str | None) -> None:
        world = self.world
        due = world.reachable(room)
        what = room or "all"
        if room is None:
            receipt = world.rooms.stop_all(reason=what)
        else:
            receipt = world.rooms.stop(room, reason=what)
        world.note_receipt(receipt, what, room)
        for person in due:
            if person.name not in receipt.turn_ids:
                world.blame("receipt", person.name, "is not reached by a stop of its room")

    def _do_cancel(self, step: Step) -> None:
        person = self.world.people.get(step.who)
        if person is not None and person.here:
            self.world.say(step.who, "is cancelled from outside")
            person.scope.cancel()

    def _do_answer(self, step: Step) -> None:
        world, person = self.world, self.world.people.get(step.who)
        if person is None or not person.asks:
            return
        work, state = world.work_of(person), person.turn.state
        waits = state == "live" and work is not None and work.runs and world.disturbed_at == NEVER
        reply = (*person.asks[-1].choices, "yes", "no")[len(person.asks) % 2]
        taken = person.turn.answer(person.asks[-1], reply)
        world.say(step.who, f"answers, which is {'taken' if taken else 'too late'}")
        if waits and not taken and len(person.asks) > person.answers:
            world.blame("asks", step.who, "nobody waits for the answer to its question")
        person.answers += taken
        if taken and work is not None:
            person.given.append(reply)
            world.aside.start_soon(look_for_answer, world, person, work, reply)

    def _do_close(self, step: Step) -> None:
        if self.world.closing == NEVER:
            self.close(step.how)

    def _do_retire(self, step: Step) -> None:
        if self.world.closing == NEVER:
            self.world.aside.start_soon(self._retire, step.room)

    async def _retire(self, room: str) -> None:
        world, began = self.world, trio.current_time()
        world.say("retire", f"the {room}")
        due = world.reachable(room)
        for person in world.people.values():
            if person.here and person.step.room == room:
                person.reasons.add(("retire", ""))
        number = len(world.retired)
        world.retired.append((room, began, NEVER))
        try:
            await world.rooms.retire(room)
            world.say("retire", f"has retired the {room}")
        except RoomsClosed:
            began = NEVER
            if world.closing > trio.current_time():
                world.blame("leak", "retire", "RoomsClosed, and the rooms are open")
        except Exception as error:
            world.say("retire", f"the {room}: {error!r}")
            if world.disturbed_at > trio.current_time():
                world.blame("leak", "retire", f"raises {error!r}")
        finally:
            world.retired[number] = (room, began, trio.current_time())
        for person in due:
            if person.turn.settlement is None and world.closing > began:
                world.blame("receipt", person.name, "is not stopped by the retirement of its room")

    # What the far end does.

    def _note(self, step: Step) -> None:
        self.world.say("far end", f"{step.what} {step.lasts or ''}".rstrip())
        self.world.levers.append((trio.current_time(), step.what, step.lasts))

    def _set(self, step: Step) -> None:
        if step.what != "release_starts" and not has_lever(self.world.probe, step.what):
            return
        self._note(step)
        lever = getattr(self.world.probe, step.what)
        try:
            lever(step.lasts) if step.what == "end_late" else lever()
        except Exception as error:
            self._blame(step.what, error)

    async def _meddle(self, step: Step) -> None:
        if has_lever(self.world.probe, step.what):
            self._note(step)
            await self._bounded(step.what, getattr(self.world.probe, step.what))

    async def _order(self, step: Step) -> None:
        """Have a work do something, if it is in a state to do it."""
        person = self.world.people.get(step.who)
        work = None if person is None else self.world.work_of(person)
        if person is None or work is None or not has_lever(self.world.probe, step.what):
            return
        if not self._fits(step.what, work):
            return
        lever = getattr(self.world.probe, step.what)
        self.world.say("far end", f"{step.what} of {step.who}")
        if step.what == "say":
            person.said += 1
            lever = functools.partial(lever, text=f"{step.who}:{person.said} ")
        before, told = self.world.alive(), bool(work.told_at)
        began = trio.current_time()
        await self._bounded(f"{step.what} of {step.who}", functools.partial(lever, work))
        if step.what == "leave" and person.turn.settlement is None:
            self._note_left(person, work, self.world.alive() - before)
        elif step.what in ("finish", "fail"):
            self._note_ordered(person, work, step.what, told, began)
        elif step.what == "say":
            self.world.aside.start_soon(look_for_word, self.world, person, person.said)

    def _fits(self, what: str, work: Work) -> bool:
        # What the answer to its start names is not known before; that it is over may be.
        if what in OF_THE_ANSWERED and not self.world.answered(work):
            return False
        if what != "say_end_again":
            return work.runs
        # An end that was told to nobody cannot be told again.
        told = self.world.disturbed_at == NEVER
        return told and work.began_at is not None and work.ended_at is not None

    def _note_left(self, person: Person, work: Work, new: set[str]) -> None:
        person.left_behind |= new
        goes_on = work.runs and person.turn.state == "live" and self.world.disturbed_at == NEVER
        if goes_on and not new:
            what = f"leave of {person.name}"
            text = f"after the probe's lever {what} nothing is alive under a name of its own"
            self.world.blame("lever", what, text)

    def _note_ordered(
        self, person: Person, work: Work, what: str, told: bool, began: float
    ) -> None:
        ended = work.ended_at is not None and work.ended_at >= began
        # Told to stop and to finish in one instant: either may have ended it.
        if ended and bool(work.told_at) is told:
            person.ordered[f"{what} after a cancel" if told else what] = work.ended_at or began
        else:
            person.ordered["perhaps"] = began

    async def _bounded(self, what: str, lever: Callable[[], Awaitable[object]]) -> None:
        with trio.move_on_after(5.0) as scope:
            try:
                await lever()
            except Exception as error:
                self._blame(what, error)
        if scope.cancelled_caught:
            self.world.blame("lever", what, f"the probe's lever {what} did not come back in 5 s")

    def _blame(self, what: str, error: Exception) -> None:
        self.world.blame("lever", what, f"the probe's lever {what} raises {told(error)}")
