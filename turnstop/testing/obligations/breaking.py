"""Obligations of what goes wrong: it is told once, truly, and the rooms go on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable

import trio

from ..._ending import Ending, Proof
from .._obligation import obligation
from .._stage import Actor, Stage, read
from ._expect import expect_no_lie


@obligation("fail")
async def failure_is_raised_once(stage: Stage) -> None:
    """A turn that fails by itself raises that once, to its reader; then its room goes on."""
    caught: list[Exception] = []

    async def read_twice(actor: Actor) -> None:
        try:
            await read(actor)
        except Exception as error:
            caught.append(error)
        await read(actor)

    async with stage.open():
        actor, work = await stage.begin(body=read_twice)
        await stage.probe.fail(work)
        settlement = await stage.left(actor)
        stage.expect(len(caught) == 1, f"its reader was given {len(caught)} errors")
        stage.expect(actor.error is None, f"it was raised again: {actor.error!r}")
        # Where only somebody says so, nothing shows that the work is over.
        said = Ending.UNCONFIRMED if settlement.proof is Proof.CLAIMED else Ending.FAILED
        stage.expect(settlement.ending is said, f"it failed, and is {settlement.ending.value}")
        stage.expect(caught[0] in settlement.errors, "its error is not in the settlement")
        expect_no_lie(stage, actor, work)
        await stage.asked(stage.enter("kitchen", "second"))


@obligation("fail")
async def failure_stays_with_its_turn(stage: Stage) -> None:
    """A turn that fails does nothing to another room's: that goes on, and can be stopped."""
    async with stage.open():
        actor, work = await stage.begin()
        other, its = await stage.begin("garden", "second")
        await stage.probe.fail(work)
        await stage.left(actor)
        await stage.quiet()
        stage.expect(not its.told_at, "the neighbour's work was told to stop")
        stage.expect(
            its.runs and other.turn.settlement is None, "the neighbour's work did not go on"
        )
        other.turn.stop()
        await stage.left(other)
        stage.expect(other.error is None, f"the neighbour's block was left with {other.error!r}")


@obligation("fail")
async def failure_ends_a_body_that_does_not_read(stage: Stage) -> None:
    """A body that never asks for events is cancelled when its turn fails, and raises the error."""

    async def wait(actor: Actor) -> None:
        await trio.sleep_forever()

    async with stage.open():
        actor, work = await stage.begin(body=wait)
        await stage.probe.fail(work)
        settlement = await stage.left(actor)
        stage.expect(actor.error is not None, "it failed, and nobody is told")
        stage.expect(actor.error in settlement.errors, f"it is told {actor.error!r}")


@obligation("die")
async def death_is_noticed(stage: Stage) -> None:
    """When the far end dies, each of its turns is settled, and its reader is told."""
    async with stage.open():
        actor, work = await stage.begin()
        other, _ = await stage.begin("garden", "second")
        await stage.probe.die()
        for one in (actor, other):
            settlement = await stage.left(one)
            stage.expect(one.error is not None, "the far end died, and the reader was told nothing")
            stage.expect(
                settlement.ending is Ending.FAILED, f"its ending is {settlement.ending.value}"
            )
        expect_no_lie(stage, actor, work)


@obligation("die", "hold_cancels")
async def death_ends_a_stop(stage: Stage) -> None:
    """When the far end dies while it is told to stop, the stop is settled in its bound."""
    await _break_a_stop(stage, stage.probe.die)


@obligation("babble", "hold_cancels")
async def garbage_ends_no_stop(stage: Stage) -> None:
    """When the far end talks garbage while it is told to stop, the stop is settled in its bound."""
    await _break_a_stop(stage, stage.probe.babble)


async def _break_a_stop(stage: Stage, break_it: Callable[[], Awaitable[None]]) -> None:
    async with stage.open():
        actor, work = await stage.begin()
        stage.probe.hold_cancels()
        actor.turn.stop()
        await stage.until(lambda: work.told_at, "the far end is told")
        await break_it()
        settlement = await stage.left(actor)
        took = settlement.settled_at - (settlement.asked_at or 0.0)
        stage.expect(actor.error is None, f"a stopped turn raised {actor.error!r}")
        stage.expect(
            took <= stage.settled_within + stage.tolerance,
            f"it took {took:.3f} s, and the bound is {stage.settled_within} s",
        )
        stage.expect(
            settlement.ending in (Ending.STOPPED, Ending.KILLED, Ending.UNCONFIRMED),
            f"a stopped turn is {settlement.ending.value}",
        )
        expect_no_lie(stage, actor, work)


@obligation("cut", "hold_cancels")
async def lost_connection_is_no_end(stage: Stage) -> None:
    """Where only the connection is lost after a stop, the work is not said to be gone."""
    async with stage.open():
        actor, work = await stage.begin()
        stage.probe.hold_cancels()
        actor.turn.stop()
        await stage.until(lambda: work.told_at, "the far end is told")
        await stage.probe.cut()
        settlement = await stage.left(actor)
        expect_no_lie(stage, actor, work)
        stage.expect(
            not work.runs or settlement.ending is Ending.UNCONFIRMED,
            f"the work goes on, and it is {settlement.ending.value}",
        )


@obligation("hold_starts", "cut")
async def lost_start_is_no_refusal(stage: Stage) -> None:
    """Where the connection is lost before the start is answered, nobody knows what has begun."""
    async with stage.open():
        stage.probe.hold_starts()
        actor, stopped = stage.enter("kitchen", "first"), stage.enter("garden", "second")
        for one in (actor, stopped):
            await stage.asked(one)
        stopped.turn.stop()
        await stage.probe.cut()
        stage.probe.release_starts()
        await trio.sleep(stage.moment)
        if actor.turn.settlement is None:
            # The adapter has found it again.
            actor.turn.stop()
        for one in (actor, stopped):
            settlement = await stage.left(one)
            expect_no_lie(stage, one, await stage.asked(one))
            stage.expect(
                settlement.ending is not Ending.UNSTARTED,
                "the far end works on it, and it is said never to have begun",
            )


@obligation("cut", "reach")
async def lost_turn_is_still_told(stage: Stage) -> None:
    """A turn whose connection is lost is told to stop all the same, before its room goes on."""
    async with stage.open():
        actor, work = await stage.begin()
        await stage.probe.cut()
        await trio.sleep(stage.moment)
        if actor.turn.state == "live":
            # The adapter has another connection, and takes the turn up again.
            if stage.can("say"):
                await stage.probe.say(work, "still here")
                await stage.until(lambda: actor.heard, "the work is heard again")
            actor.turn.stop()
            settlement = await stage.left(actor)
        else:
            settlement = await stage.left(actor)
            stage.expect(actor.error, "the connection was lost, and the reader not told")
            stage.expect(
                settlement.ending is Ending.FAILED, f"it was lost, and is {settlement.ending.value}"
            )
        stage.expect(len(work.told_at) == 1, f"the far end was told {len(work.told_at)} times")
        expect_no_lie(stage, actor, work)
        later = await stage.asked(stage.enter("kitchen", "second"))
        stage.expect(
            stage.not_before(later.asked_at, settlement.settled_at),
            "the next turn was sent before this one was settled",
        )


@obligation("die", "restart", "finish")
async def rooms_go_on_after_a_death(stage: Stage) -> None:
    """After the far end has died, the room's next turn finds it again and is answered."""
    async with stage.open():
        actor, _ = await stage.begin()
        await stage.probe.die()
        await stage.left(actor)
        second, its = await stage.begin(text="second")
        await stage.probe.finish(its)
        settlement = await stage.left(second)
        stage.expect(
            settlement.ending is Ending.FINISHED, f"the next turn is {settlement.ending.value}"
        )


@obligation("babble")
async def garbage_is_bounded(stage: Stage) -> None:
    """Garbage from the far end hangs nobody: the turn can be stopped, and the room goes on."""
    async with stage.open():
        actor, work = await stage.begin()
        await stage.probe.babble()
        await stage.quiet()
        actor.turn.stop()
        settlement = await stage.left(actor)
        expect_no_lie(stage, actor, work)
        if settlement.asked_at is not None:
            took = settlement.settled_at - settlement.asked_at
            stage.expect(
                took <= stage.settled_within + stage.tolerance,
                f"it took {took:.3f} s, and the bound is {stage.settled_within} s",
            )
        second = stage.enter("kitchen", "second")
        await stage.until(
            lambda: stage.find(second) or second.left_at, "the next turn is sent, or told why not"
        )


@obligation("leave", "sweep")
async def leftovers_are_swept(stage: Stage) -> None:
    """What a stopped turn has started and left is ended too, or is named."""
    async with stage.open():
        _, others = await stage.begin("garden", "second")
        await stage.probe.leave(others)
        await stage.quiet()
        neighbours = Counter(stage.probe.alive)
        actor, work = await stage.begin()
        await stage.probe.leave(work)
        await stage.quiet()
        stage.expect(Counter(stage.probe.alive) > neighbours, "the lever left nothing behind")
        actor.turn.stop()
        settlement = await stage.left(actor)
        found = Counter(stage.probe.alive)
        stage.expect(neighbours <= found, "what a neighbour has left was ended as well")
        alive = ", ".join((found - neighbours).elements())
        stage.expect(
            not alive or settlement.survivors, f"{alive}: alive, and not in the settlement"
        )
        stage.expect(not alive, f"{alive}: alive after the sweep")
        stage.expect(
            not settlement.survivors, f"nothing is alive, and {settlement.survivors} is named"
        )
