"""Adapters whose cancel does not do what it says."""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress

import trio

from ....abc import Emit, End
from .._saboteur import in_adapter
from .._wrap import Turn, long

Sent = Callable[[], None]

# Seconds: where the clock is real, an instant takes some time.
_INSTANT = 0.001


@in_adapter(
    "stop_ends_the_work",
    "stop_is_told_at_once",
    "early_stop_reaches_the_work",
    "timeout_is_a_stop",
    "error_in_the_body_is_a_stop",
    "teardown_waits",
    "settled_means_ended",
    "end_needs_no_acknowledgement",
    "lost_turn_is_still_told",
    "disk_holds_up_no_stop",
    "left_turn_is_stopped",
)
class CancelDoesNothing(Turn):
    """Cancel returns, and has told nobody."""

    async def tell(self, sent: Sent) -> None:
        sent()


@in_adapter("stop_is_told_once", "stop_in_the_queue_sends_nothing", needs=("refuse_cancels",))
class CancelIsSentTwice(Turn):
    """Cancel is sent twice, to be on the safe side."""

    async def tell(self, sent: Sent) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.remote.cancel, sent)
            nursery.start_soon(self.remote.cancel, sent)


@in_adapter(
    "stop_is_told_at_once",
    "early_stop_reaches_the_work",
    "teardown_waits",
    "disk_holds_up_no_stop",
)
class CancelWaits(Turn):
    """Cancel waits before it is sent."""

    async def tell(self, sent: Sent) -> None:
        await trio.sleep(self.home.pause)
        await self.remote.cancel(sent)


@in_adapter("early_stop_reaches_the_work")
class EarlyCancelIsDropped(Turn):
    """A cancel in the instant in which the start is answered is not sent."""

    async def tell(self, sent: Sent) -> None:
        if trio.current_time() - self.made_at > _INSTANT:
            await self.remote.cancel(sent)
        else:
            sent()


@in_adapter("teardown_waits")
class SecondCancelIsLost(Turn):
    """Of two cancels in one instant the second is not sent."""

    async def tell(self, sent: Sent) -> None:
        last, now = vars(self.home).get("last", -math.inf), trio.current_time()
        vars(self.home)["last"] = now
        if now - last > _INSTANT:
            await self.remote.cancel(sent)
        else:
            sent()


@in_adapter("stop_ends_the_work", "neighbours_are_untouched")
class CancelIsOfAnother(Turn):
    """Cancel names another turn of the backend, or none."""

    async def tell(self, sent: Sent) -> None:
        for turn in self.home.turns:
            if turn.lives:
                await turn.remote.cancel(sent)
                return
        sent()


@in_adapter("neighbours_are_untouched")
class CancelIsOfEverybody(Turn):
    """Cancel ends all that the backend works on."""

    async def tell(self, sent: Sent) -> None:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self.remote.cancel, sent)
            for turn in self.home.turns:
                if turn.lives:
                    nursery.start_soon(turn.remote.cancel, sent)


@in_adapter("hung_cancel_is_bounded")
class CancelRefusesToEnd(Turn):
    """Cancel shields itself, and waits for an answer for as long as it takes."""

    async def tell(self, sent: Sent) -> None:
        sent()
        with trio.CancelScope(shield=True):
            await trio.sleep(long(self.home.budget))


@in_adapter("settlement_has_its_times")
class SentIsNotSaid(Turn):
    """Cancel does not say when the request has left."""

    async def tell(self, sent: Sent) -> None:
        await self.remote.cancel(lambda: None)


@in_adapter("settlement_has_its_times", needs=("hold_acknowledgements",))
class SentIsSaidAtTheAnswer(Turn):
    """Cancel says that the request has left when it is answered."""

    async def tell(self, sent: Sent) -> None:
        await self.remote.cancel(lambda: None)
        sent()


@in_adapter("hung_cancel_is_bounded")
class CancelReturnsAtOnce(Turn):
    """Cancel returns when it is sent, whatever is answered, and whether it is."""

    async def tell(self, sent: Sent) -> None:
        self.home.service.start_soon(self._send)
        sent()

    async def _send(self) -> None:
        with suppress(Exception):
            await self.remote.cancel(lambda: None)


@in_adapter("refused_cancel_is_reported")
class CancelSwallowsErrors(Turn):
    """Cancel keeps to itself that the far end refused it."""

    async def tell(self, sent: Sent) -> None:
        try:
            await self.remote.cancel(sent)
        except Exception:
            sent()


@in_adapter("finished_turn_is_told_nothing", needs=("refuse_cancels",))
class CancelTidiesUp(Turn):
    """A turn that is over is cancelled, in case something of it is left."""

    async def follow(self, emit: Emit) -> End:
        try:
            return await super().follow(emit)
        finally:
            self.home.service.start_soon(self._tidy_up)

    async def _tidy_up(self) -> None:
        with suppress(Exception):
            await self.remote.cancel(lambda: None)
