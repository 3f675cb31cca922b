"""Obligations of who is meant, and who comes when."""

from __future__ import annotations

import trio

from ..._ending import Ending
from ..._errors import RoomsClosed
from ..._records import StopVerdict
from .._obligation import obligation
from .._stage import Actor, Stage


@obligation()
async def stop_in_the_queue_sends_nothing(stage: Stage) -> None:
    """A turn that is stopped or cancelled while it waits for its room sends nothing, ever."""
    async with stage.open():
        first, work = await stage.begin()
        if stage.can("end_late"):
            stage.probe.end_late(stage.moment)
        stopped = stage.enter("kitchen", "second")
        cancelled = stage.enter("kitchen", "third")
        await stage.quiet()
        stage.rooms.stop("kitchen", turn_id=stopped.turn.turn_id)
        cancelled.scope.cancel()
        stage.expect(
            stopped.settlement.ending is Ending.UNSTARTED, "it was not settled in the queue"
        )
        await stage.quiet()
        stage.expect(
            not (work.told_at or first.turn.settlement), "the turn before them was stopped as well"
        )
        first.turn.stop()
        for actor in (first, stopped, cancelled):
            await stage.left(actor)
        await stage.quiet()
        for actor in (stopped, cancelled):
            stage.expect(
                actor.settlement.ending is Ending.UNSTARTED,
                f"it waited for its room, and is {actor.settlement.ending.value}",
            )
            stage.expect(not stage.all_of(actor), f"{actor.text!r} was sent to the far end")
        stage.expect(
            len(work.told_at) == 1, f"the turn before them was told {len(work.told_at)} times"
        )


@obligation()
async def stop_of_a_room_reaches_its_queue(stage: Stage) -> None:
    """A stop of a room stops every turn of it, those that wait too; an id means one turn only."""
    async with stage.open():
        first, _ = await stage.begin()
        waiting = [stage.enter("kitchen", text) for text in ("second", "third")]
        await stage.quiet()
        stale = stage.rooms.stop("kitchen", turn_id="a turn that nobody knows")
        stage.expect(
            stale.verdict is StopVerdict.STALE and not stale.turn_ids,
            f"a stop of a turn that is not here says {stale.verdict.value}",
        )
        receipt = stage.rooms.stop("kitchen")
        settled = await receipt.settled()
        for actor in (first, *waiting):
            await stage.left(actor)
        meant = sorted(actor.turn.turn_id for actor in (first, *waiting))
        stage.expect(sorted(receipt.turn_ids) == meant, f"it stopped {receipt.turn_ids}")
        stage.expect(
            [one.turn_id for one in settled] == list(receipt.turn_ids),
            f"its receipt waited for {[one.turn_id for one in settled]}",
        )
        for actor in waiting:
            stage.expect(not stage.all_of(actor), f"{actor.text!r} was sent to the far end")


@obligation()
async def room_is_first_come_first_served(stage: Stage) -> None:
    """The turns of a room are sent in the order in which they came."""
    async with stage.open():
        texts = ("first", "second", "third", "fourth")
        actors = []
        for text in texts:
            actors.append(stage.enter("kitchen", text))
            await stage.quiet()
        came = []
        for actor in actors:
            came.append((await stage.asked(actor)).asked_at)
            await stage.quiet()
            actor.turn.stop()
            await stage.left(actor)
        stage.expect(came == sorted(came), f"{texts} were sent at {came}")


@obligation()
async def closing_rooms_take_no_turn(stage: Stage) -> None:
    """Once the rooms are closing, a turn that is entered is refused, and sends nothing."""
    refused: list[bool] = []

    async def enter_another(actor: Actor) -> None:
        with trio.CancelScope(shield=True):
            await stage.until(lambda: actor.turn.settlement, "its turn is stopped")
            try:
                async with stage.rooms.turn("garden", stage.probe.content("late")):
                    refused.append(False)
            except RoomsClosed:
                refused.append(True)

    with trio.CancelScope() as app:
        async with stage.open():
            await stage.begin(body=enter_another)
            app.cancel()
            await trio.sleep_forever()
    stage.expect(refused == [True], "a turn was let in while the rooms were closing")
    stage.expect(not [work for work in stage.probe.works if "late" in work.text], "and it was sent")
