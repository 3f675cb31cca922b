"""Adapters that do not say where their turns are, or do not end what another process has left."""

from __future__ import annotations

from contextlib import suppress
from typing import Any, ClassVar

import attrs
import trio

from ...._errors import BackendError, BackendLost, BackendRefused
from ....abc import Emit, End, How, Request
from .._saboteur import in_adapter
from .._wrap import Backend, Turn


@in_adapter("turn_tells_where_it_is")
class AddressIsNoText(Turn):
    """A turn's address is an object, and no text."""

    @property
    def address(self) -> object:
        return self.remote


async def _keep_to_yourself(_: str) -> None:
    await trio.lowlevel.checkpoint()


@in_adapter("what_begins_is_announced", "early_left_turn_is_no_lie")
class AnnouncedWhenItHasBegun(Backend):
    """A turn is announced when its start was answered."""

    announces: ClassVar[bool] = True

    async def start(self, request: Request[Any]) -> Turn:
        turn = await super().start(attrs.evolve(request, announce=_keep_to_yourself))
        await request.announce(turn.address)
        return turn


@in_adapter("disk_holds_up_no_start")
class AnnouncedUntilItIsWritten(Backend):
    """A turn is announced again and again, to be on the safe side."""

    async def start(self, request: Request[Any]) -> Turn:
        async def announce(address: str) -> None:
            for _ in range(3):
                await request.announce(address)

        return await super().start(attrs.evolve(request, announce=announce))


@in_adapter("stop_before_sending_sends_nothing")
class SentAfterAStop(Backend):
    """A turn that was stopped while it was announced is sent all the same."""

    async def start(self, request: Request[Any]) -> Turn:
        async def announce(address: str) -> None:
            with suppress(BackendRefused):
                await request.announce(address)

        return await super().start(attrs.evolve(request, announce=announce))


@in_adapter("left_turn_is_stopped", "left_turn_tells_its_end")
class LeftIsOver(Backend):
    """What another process has left is taken for cancelled with that process."""

    async def take_up(self, address: str) -> Any:
        self.kind = _Over
        return await super().take_up(address)


class _Over(Turn):
    async def listen(self, emit: Emit) -> End:
        await trio.lowlevel.checkpoint()
        return End(How.CANCELLED)


@in_adapter("left_turn_is_stopped", "early_left_turn_is_no_lie")
class LeftNeverWas(Backend):
    """What this process has not begun is refused, as if nothing worked there."""

    async def take_up(self, address: str) -> Any:
        raise BackendRefused("nothing was begun here")


@in_adapter("left_turn_tells_its_end")
class EndIsForgotten(Backend):
    """What has ended is not known any more to who takes it up."""

    async def take_up(self, address: str) -> Any:
        raise BackendLost("nobody knows")


@in_adapter("old_address_harms_nobody")
class NewestIsTold(Backend):
    """What is taken up is told to stop as whatever works there now, as by its conversation."""

    newest: ClassVar[list[Turn]] = []

    async def start(self, request: Request[Any]) -> Turn:
        turn = await super().start(request)
        self.newest[:] = [turn]
        return turn

    async def take_up(self, address: str) -> Any:
        for turn in self.newest:
            if turn.lives:
                await turn.remote.cancel(lambda: None)
        return await super().take_up(address)


@in_adapter("foreign_address_tells_nothing")
class ForeignNeverWas(Backend):
    """An address that is another's is refused, as if nothing worked there."""

    async def take_up(self, address: str) -> Any:
        try:
            return await super().take_up(address)
        except BackendError as error:
            raise BackendRefused(str(error)) from error


@in_adapter("foreign_address_tells_nothing")
class ForeignIsAnAccident(Backend):
    """An address that is another's is read without looking, and whatever is raised passes."""

    async def take_up(self, address: str) -> Any:
        try:
            return await super().take_up(address)
        except BackendError as error:
            raise ValueError(address) from error
