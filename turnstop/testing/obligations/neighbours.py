"""Obligations between rooms: none of them waits for another, or is hit by what happens there."""

from __future__ import annotations

import trio

from .._obligation import obligation
from .._stage import Stage
from ._expect import expect_held, expect_no_lie


@obligation()
async def neighbours_are_untouched(stage: Stage) -> None:
    """A stop in one room does nothing to another: its work goes on and is heard."""
    async with stage.open():
        actor, work = await stage.begin()
        other, its = await stage.begin("garden", "second")
        stage.expect(
            its.session is None or its.session != work.session,
            f"two rooms go on in the same conversation {its.session}",
        )
        if stage.can("say"):
            await stage.probe.say(work, "here")
            await stage.until(lambda: actor.heard, "the work is heard")
        stage.rooms.stop("kitchen")
        await stage.left(actor)
        await stage.quiet()
        stage.expect(not its.told_at, "the neighbour's work was told to stop")
        stage.expect(
            its.runs and other.turn.settlement is None, "the neighbour's work did not go on"
        )
        if stage.can("say"):
            await stage.probe.say(its, "still here")
            await stage.until(lambda: other.heard, "the neighbour is heard")
            stage.expect(other.heard == ["still here"], f"the neighbour was heard as {other.heard}")
        third = stage.enter("garden", "third")
        other.turn.stop()
        await stage.left(other)
        await stage.asked(third)


@obligation("hold_cancels")
async def rooms_do_not_wait_for_each_other(stage: Stage) -> None:
    """While one room's stop hangs, others are started, heard and told at once."""
    async with stage.open():
        actor, work = await stage.begin()
        other, its = await stage.begin("garden", "second")
        stage.probe.hold_cancels()
        actor.turn.stop()
        await stage.until(lambda: work.told_at, "the far end is told")
        if stage.can("say"):
            await stage.probe.say(its, "here")
            await stage.until(lambda: other.heard or actor.turn.settlement, "the other is heard")
            stage.expect(other.heard, "another room was not heard meanwhile")
        entering = trio.current_time()
        third = stage.enter("cellar", "third")
        newest = await stage.asked(third)
        asked = trio.current_time()
        other.turn.stop()
        await stage.until(lambda: its.told_at or other.turn.settlement, "the other is told")
        stage.expect(
            newest.asked_at - entering <= stage.moment / 2, "another room's start had to wait"
        )
        stage.expect(
            bool(its.told_at) and stage.same(its.told_at[0], asked),
            "another room's stop had to wait",
        )


@obligation("hold_cancels")
async def force_stays_with_its_turn(stage: Stage) -> None:
    """What is done by force to a turn that does not obey touches no other."""
    async with stage.open():
        other, its = await stage.begin("garden", "second")
        actor, work = await stage.begin()
        stage.probe.hold_cancels()
        actor.turn.stop()
        await expect_held(stage, actor, work)
        await stage.left(actor)
        await stage.quiet()
        expect_no_lie(stage, actor, work)
        stage.expect(not its.told_at, "the neighbour's work was told to stop")
        stage.expect(
            its.runs and other.turn.settlement is None, "the neighbour's work did not go on"
        )


@obligation("hold_starts")
async def starts_do_not_wait_for_each_other(stage: Stage) -> None:
    """While the far end has not answered one room's start, the others are sent at once."""
    async with stage.open():
        stage.probe.hold_starts()
        await stage.asked(stage.enter("kitchen", "first"))
        entering = trio.current_time()
        other = await stage.asked(stage.enter("garden", "second"))
        waited = other.asked_at - entering
        stage.expect(waited <= stage.moment / 2, f"another room's start waited for {waited:.3f} s")
        stage.probe.release_starts()
