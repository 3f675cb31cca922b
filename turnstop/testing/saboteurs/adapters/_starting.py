"""Adapters whose start does not do what it says."""

from __future__ import annotations

from typing import Any

import attrs
import trio

from ...._errors import BackendError, BackendLost, BackendRefused
from ....abc import Emit, End, Request
from .._saboteur import in_adapter
from .._wrap import Backend, Turn


@in_adapter("early_stop_reaches_the_work")
class StartDawdles(Backend):
    """Start returns a while after the far end has answered."""

    async def start(self, request: Request[Any]) -> Turn:
        turn = await super().start(request)
        await trio.sleep(self.pause)
        return turn


@in_adapter("one_turn_is_one_request", needs=("hold_starts",))
class SlowStartIsRepeated(Backend):
    """Start asks again when the far end has not answered within half a second."""

    async def start(self, request: Request[Any]) -> Turn:
        with trio.move_on_after(0.5):
            return await super().start(request)
        return await super().start(request)


@in_adapter("late_reveal_is_undone")
class StartIsNotUndone(Backend):
    """A start that is given up goes on, and nobody is told what it makes."""

    async def start(self, request: Request[Any]) -> Turn:
        found: list[Turn] = []
        back = trio.Event()

        async def start() -> None:
            found.append(await super(StartIsNotUndone, self).start(request))
            back.set()

        self.service.start_soon(start)
        await back.wait()
        return found[0]


@in_adapter("refused_start_is_no_turn")
class RefusalIsALoss(Backend):
    """A start that was refused is reported as one that may have begun."""

    async def start(self, request: Request[Any]) -> Turn:
        try:
            return await super().start(request)
        except BackendRefused as error:
            raise BackendLost(str(error)) from error


@in_adapter("lost_start_is_no_refusal")
class LossIsARefusal(Backend):
    """A start that was lost, and may have begun, is reported as refused."""

    async def start(self, request: Request[Any]) -> Turn:
        try:
            return await super().start(request)
        except BackendLost as error:
            raise BackendRefused(str(error)) from error


@in_adapter("fresh_session_after_unconfirmed")
class PreviousIsIgnored(Backend):
    """A start goes on in a conversation whose work may be alive."""

    async def start(self, request: Request[Any]) -> Turn:
        return await super().start(attrs.evolve(request, previous=None))


@in_adapter("fresh_session_after_unconfirmed")
class PreviousIsRemembered(Backend):
    """Once a turn may be alive, each start of any room begins a new conversation."""

    previous = None

    async def start(self, request: Request[Any]) -> Turn:
        vars(self)["previous"] = request.previous or self.previous
        return await super().start(attrs.evolve(request, previous=self.previous))


@in_adapter("room_goes_on_after_a_stop")
class SessionIsDropped(Turn):
    """A turn leaves nothing for the next to go on with."""

    session = None


@in_adapter("room_goes_on_after_a_stop")
class SessionIsDroppedAtTheEnd(Turn):
    """A turn that ends by itself leaves nothing for the next to go on with."""

    @property
    def session(self) -> object:
        return None if self.over and not self.told else self.remote.session


@in_adapter("retired_room_begins_anew")
class SessionIsTheRooms(Backend):
    """A start goes on with what it knows of the room, whatever it is asked for."""

    async def start(self, request: Request[Any]) -> Turn:
        for turn in self.turns:
            if turn.request.room == request.room:
                request = attrs.evolve(request, session=turn.session)
        return await super().start(request)


@in_adapter("neighbours_are_untouched")
class SessionIsShared(Backend):
    """A start goes on with what any room has left."""

    async def start(self, request: Request[Any]) -> Turn:
        if self.turns:
            request = attrs.evolve(request, session=self.turns[-1].session)
        return await super().start(request)


@in_adapter("neighbours_are_untouched", "failure_stays_with_its_turn", "teardown_waits")
class RoomsTakeTurns(Backend):
    """A start waits until no other room has a turn."""

    async def start(self, request: Request[Any]) -> Turn:
        while not all(turn.over for turn in self.turns):  # noqa: ASYNC110  nobody signals it
            await trio.sleep(0.05)
        return await super().start(request)


@in_adapter("rooms_go_on_after_a_death", "garbage_is_bounded")
class StartsEndWithALoss(Backend):
    """Once the far end was lost, a start waits for it and does not look for another."""

    lost = False

    async def start(self, request: Request[Any]) -> Turn:
        if self.lost:
            await trio.sleep_forever()
        self.kind = _LosesHeart
        return await super().start(request)


class _LosesHeart(Turn):
    async def listen(self, emit: Emit) -> End:
        try:
            return await super().listen(emit)
        except BackendError:
            vars(self.home)["lost"] = True
            raise
