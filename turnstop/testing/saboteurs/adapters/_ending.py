"""Adapters that say something else of the end than what they saw."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import outcome
import trio

from ...._errors import BackendError, BackendLost
from ...._unwrap import open_private_nursery
from ....abc import Emit, End, How, Proof
from .._saboteur import in_adapter
from .._wrap import Turn


class Apart(Turn):
    """Its follow can come back before the adapter's own does, which is left to itself."""

    async def listen(self, emit: Emit) -> End:
        self.early = trio.Event()
        self.end: outcome.Outcome[End] = outcome.Value(End(How.CANCELLED))
        self.home.service.start_soon(self._listen, emit)
        await self.early.wait()
        return self.end.unwrap()

    async def _listen(self, emit: Emit) -> None:
        try:
            self.end = outcome.Value(await self.remote.follow(emit))
        except Exception as error:
            self.end = outcome.Error(error)
        self.early.set()


@in_adapter("teardown_waits")
class ReaderIsNoService(Apart):
    """The adapter's reader is in a plain nursery: an application's end ends it before the stop."""

    around = open_private_nursery


@in_adapter(
    "settled_means_ended",
    "next_turn_waits",
    "leaving_waits",
    "teardown_waits",
    "unconfirmed_is_final",
    "hung_cancel_is_bounded",
    "acknowledgement_is_no_end",
    "lost_connection_is_no_end",
    "budget_is_one",
    "left_turn_holds_its_room",
)
class AskingIsTheEnd(Apart):
    """Follow returns as soon as somebody asks for a stop."""

    async def tell(self, sent: Callable[[], None]) -> None:
        self.early.set()
        await self.remote.cancel(sent)


@in_adapter("acknowledgement_is_no_end", "settled_means_ended", needs=("ignore_cancels",))
class AcknowledgementIsTheEnd(Apart):
    """Follow returns as soon as cancel has."""

    async def tell(self, sent: Callable[[], None]) -> None:
        await self.remote.cancel(sent)
        self.early.set()


@in_adapter("hung_cancel_is_bounded")
class FollowGivesUp(Apart):
    """Follow waits for a while after a stop, and claims the end then."""

    async def tell(self, sent: Callable[[], None]) -> None:
        self.home.service.start_soon(self._give_up)
        await self.remote.cancel(sent)

    async def _give_up(self) -> None:
        await trio.sleep(self.home.pause / 2)
        self.end = outcome.Value(End(How.CANCELLED, Proof.CLAIMED))
        self.early.set()


@in_adapter("end_needs_no_acknowledgement")
class EndWaitsForTheAcknowledgement(Turn):
    """Follow returns when the work has ended and cancel has returned too."""

    async def listen(self, emit: Emit) -> End:
        self.back = trio.Event()
        end = await super().listen(emit)
        if self.told:
            await self.back.wait()
        return end

    async def tell(self, sent: Callable[[], None]) -> None:
        try:
            await self.remote.cancel(sent)
        finally:
            self.back.set()


@in_adapter("settled_means_ended")
class FollowDawdles(Turn):
    """Follow returns a while after the end."""

    async def listen(self, emit: Emit) -> End:
        end = await super().listen(emit)
        await trio.sleep(self.home.pause)
        return end


@in_adapter("finished_turn_is_told_nothing", "completion_wins", "left_turn_tells_its_end")
class CompletedIsCancelled(Turn):
    """A turn that completed is reported as cancelled."""

    async def listen(self, emit: Emit) -> End:
        end = await super().listen(emit)
        return attrs.evolve(end, how=How.CANCELLED) if end.how is How.COMPLETED else end


@in_adapter("failure_is_raised_once", "failure_ends_a_body_that_does_not_read")
class FailedIsCompleted(Turn):
    """A turn that failed is reported as completed."""

    async def listen(self, emit: Emit) -> End:
        try:
            end = await super().listen(emit)
        except Exception:
            return End(How.COMPLETED)
        return attrs.evolve(end, how=How.COMPLETED) if end.how is How.FAILED else end


@in_adapter("failure_stays_with_its_turn")
class FailureEndsEverybody(Turn):
    """A turn that fails ends all that the backend works on."""

    async def listen(self, emit: Emit) -> End:
        try:
            end = await super().listen(emit)
        except Exception:
            self._tell_everybody()
            raise
        if end.how is How.FAILED:
            self._tell_everybody()
        return end

    def _tell_everybody(self) -> None:
        for turn in self.home.turns:
            if turn.lives and turn is not self:
                self.home.service.start_soon(turn.remote.cancel, lambda: None)


@in_adapter("death_is_noticed", "death_ends_a_stop", "lost_connection_is_no_end")
class LossIsCompletion(Turn):
    """A turn whose far end was lost is reported as completed."""

    async def listen(self, emit: Emit) -> End:
        try:
            return await super().listen(emit)
        except BackendLost:
            return End(How.COMPLETED)


@in_adapter("garbage_ends_no_stop")
class GarbageIsCompletion(Turn):
    """A turn whose far end sends garbage is reported as completed."""

    async def listen(self, emit: Emit) -> End:
        try:
            return await super().listen(emit)
        except BackendError:
            return End(How.COMPLETED)


@in_adapter("death_is_noticed")
class LossIsNotNoticed(Turn):
    """Follow waits on when the far end was lost."""

    async def listen(self, emit: Emit) -> End:
        try:
            return await super().listen(emit)
        except BackendLost:
            await trio.sleep_forever()
            raise


@in_adapter("lost_connection_is_no_end")
class LossIsTheEnd(Turn):
    """A lost connection is reported as the end of the work."""

    async def listen(self, emit: Emit) -> End:
        try:
            return await super().listen(emit)
        except BackendLost as error:
            raise BackendLost(str(error), gone=True) from error


@in_adapter("repeated_end_ends_nothing_else", "room_goes_on_after_a_stop")
class EndIsHeardAgain(Turn):
    """The end of a turn is heard by the room's next one too."""

    async def listen(self, emit: Emit) -> End:
        heard: dict[str, End] = vars(self.home).setdefault("heard", {})
        if self.request.room in heard:
            await trio.sleep(0.001)
            return heard.pop(self.request.room)
        end = heard[self.request.room] = await super().listen(emit)
        return end


@in_adapter("leftovers_are_swept")
class LeftoversAreNotTold(Turn):
    """What a turn left is not told."""

    async def leftovers(self) -> list[Any]:
        return []


@in_adapter("leftovers_are_swept")
class SweepLies(Turn):
    """Sweep says that all is ended, and ends nothing."""

    async def sweep(self, leftovers: object) -> list[Any]:
        return []


@in_adapter("leftovers_are_swept")
class SweepNamesTheDead(Turn):
    """Sweep ends what is left, and names it all the same."""

    async def sweep(self, leftovers: list[Any]) -> list[Any]:
        await self.remote.sweep(leftovers)
        return leftovers
