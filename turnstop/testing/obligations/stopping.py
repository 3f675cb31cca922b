"""Obligations of the asking: a stop reaches the work, once and at once."""

from __future__ import annotations

import trio

from ..._ending import Ending
from ..._errors import BackendRefused
from ..._records import StopVerdict
from .._obligation import obligation
from .._stage import Actor, Stage, read
from ._expect import expect_stopped, expect_waited


@obligation("end_seen")
async def stop_ends_the_work(stage: Stage) -> None:
    """A stop ends the work at the far end, and says so only then."""
    async with stage.open():
        actor, work = await stage.begin()
        stage.rooms.stop("kitchen")
        await stage.left(actor)
        expect_stopped(stage, actor, work)


@obligation()
async def stop_is_told_once(stage: Stage) -> None:
    """However many ask, and however often, the far end is told once, and of the right work."""
    async with stage.open():
        actor, work = await stage.begin()
        if stage.can("end_late"):
            stage.probe.end_late(stage.moment)
        verdicts = [stage.rooms.stop("kitchen").verdict, actor.turn.stop().verdict]
        actor.scope.cancel()
        verdicts.append(stage.rooms.stop_all().verdict)
        await stage.left(actor)
        await stage.quiet()
        told = len(work.told_at)
        stage.expect(told == 1, f"the far end was told {told} times to stop the work")
        stage.expect(
            verdicts[0] is StopVerdict.ASKED and StopVerdict.ASKED not in verdicts[1:],
            f"the stops say {[verdict.value for verdict in verdicts]}",
        )


@obligation()
async def stop_is_told_at_once(stage: Stage) -> None:
    """The far end is told in the instant of the asking, whatever the body does on its way out."""

    async def dawdle(actor: Actor) -> None:
        with trio.move_on_after(4 * stage.settled_within, shield=True):
            await stage.until(lambda: actor.turn.settlement, "the turn is settled")

    async with stage.open():
        actor, work = await stage.begin(body=dawdle)
        asked = trio.current_time()
        actor.turn.stop()
        await stage.until(lambda: work.told_at or actor.turn.settlement, "the far end is told")
        stage.expect(work.told_at, "the turn is settled and the far end was never told")
        late = work.told_at[0] - asked
        stage.expect(stage.same(work.told_at[0], asked), f"it was told {late:.3f} s after the stop")
        await stage.left(actor)


@obligation("hold_starts", "early_stop")
async def early_stop_reaches_the_work(stage: Stage) -> None:
    """A stop before the far end has answered the start is told as soon as it has."""
    async with stage.open():
        stage.probe.hold_starts()
        actor = stage.enter("kitchen", "first")
        work = await stage.asked(actor)
        actor.turn.stop()
        await stage.quiet()
        stage.expect(actor.turn.settlement is None, "it was settled before anybody knew the turn")
        released = trio.current_time()
        stage.probe.release_starts()
        await stage.left(actor)
        stage.expect(len(work.told_at) == 1, f"the far end was told {len(work.told_at)} times")
        # Some answers are not sent, but have to be looked for.
        late = work.told_at[0] - released
        stage.expect(late <= stage.moment / 2, f"it was told {late:.3f} s after the reveal")
        expect_waited(stage, actor, work)


@obligation("hold_starts", "early_stop", "undo")
async def late_reveal_is_undone(stage: Stage) -> None:
    """A start that is answered after the bound: the turn is settled, and the work still ended."""
    async with stage.open():
        stage.probe.hold_starts()
        actor = stage.enter("kitchen", "first")
        work = await stage.asked(actor)
        actor.turn.stop()
        settlement = await stage.left(actor)
        stage.expect(
            settlement.ending is Ending.UNCONFIRMED,
            f"nobody knows what became of it, and it is {settlement.ending.value}",
        )
        took = settlement.settled_at - (settlement.asked_at or 0.0)
        stage.expect(
            stage.same(took, stage.bound), f"it was settled after {took:.3f} s, not {stage.bound}"
        )
        stage.probe.release_starts()
        await stage.until(lambda: work.ended_at, "the late turn is ended")


@obligation("refuse_starts")
async def refused_start_is_no_turn(stage: Stage) -> None:
    """A refused start: nothing began, the body is told once, and a stop finds it unstarted."""
    async with stage.open():
        stage.probe.refuse_starts()
        actor = stage.enter("kitchen", "first")
        settlement = await stage.left(actor)
        stage.expect(
            isinstance(actor.error, BackendRefused), f"the block was left with {actor.error!r}"
        )
        stage.expect(
            settlement.ending is Ending.FAILED and settlement.gone,
            f"nothing began, and it is {settlement.ending.value}",
        )
        if stage.can("hold_starts"):
            await _refuse_a_stopped_start(stage)


async def _refuse_a_stopped_start(stage: Stage) -> None:
    stage.probe.hold_starts()
    actor = stage.enter("kitchen", "second")
    work = await stage.asked(actor)
    actor.turn.stop()
    await stage.quiet()
    stage.probe.release_starts()
    settlement = await stage.left(actor)
    stage.expect(
        settlement.ending is Ending.UNSTARTED, f"nothing began, and it is {settlement.ending.value}"
    )
    stage.expect(actor.error is None, f"the refusal left the block: {actor.error!r}")
    stage.expect(not work.told_at, "the far end was told to stop what never began")


@obligation()
async def one_turn_is_one_request(stage: Stage) -> None:
    """A turn is asked for once, however long the far end takes to answer."""
    async with stage.open():
        if stage.can("hold_starts"):
            stage.probe.hold_starts()
        actor = stage.enter("kitchen", "first")
        await stage.asked(actor)
        await trio.sleep(stage.moment)
        if stage.can("hold_starts"):
            stage.probe.release_starts()
        await stage.quiet()
        actor.turn.stop()
        await stage.left(actor)
        asked = len(stage.all_of(actor))
        stage.expect(asked == 1, f"the far end was asked {asked} times for one turn")


@obligation()
async def timeout_is_a_stop(stage: Stage) -> None:
    """A timeout around the block is a stop like any other: told once, and waited for."""
    async with stage.open():
        actor, work = await stage.begin()
        if stage.can("end_late"):
            stage.probe.end_late(stage.moment)
        actor.scope.deadline = trio.current_time() + 0.1
        settlement = await stage.left(actor)
        request = settlement.request
        stage.expect(request is not None, "the timeout did not stop the turn")
        kind = request and request.kind
        stage.expect(kind == "cancelled", f"it timed out, and the settlement says {kind}")
        stage.expect(len(work.told_at) == 1, f"the far end was told {len(work.told_at)} times")
        expect_waited(stage, actor, work)


@obligation()
async def error_in_the_body_is_a_stop(stage: Stage) -> None:
    """An error of the body stops the turn and is waited for; then it leaves as it is."""
    bang = ZeroDivisionError("the body's own")

    async def fail(actor: Actor) -> None:
        await stage.at_work()
        await trio.sleep(stage.moment)
        raise bang

    async with stage.open():
        if stage.can("end_late"):
            stage.probe.end_late(stage.moment)
        actor, work = await stage.begin(body=fail)
        await stage.left(actor)
        stage.expect(actor.error is bang, f"the block was left with {actor.error!r}")
        stage.expect(len(work.told_at) == 1, f"the far end was told {len(work.told_at)} times")
        expect_waited(stage, actor, work)


@obligation("finish")
async def finished_turn_is_told_nothing(stage: Stage) -> None:
    """A turn that is over is not told to stop, whoever asks then."""

    async def linger(actor: Actor) -> None:
        await read(actor)
        await trio.sleep(stage.moment)

    async with stage.open():
        actor, work = await stage.begin(body=linger)
        await stage.probe.finish(work)
        await stage.until(lambda: actor.turn.settlement, "a finished turn is settled")
        stopped = trio.current_time()
        actor.turn.stop()
        settlement = await stage.left(actor)
        stage.expect(stage.same(actor.left_at, stopped), "the stop did not cancel its body")
        stage.rooms.stop("kitchen")
        await stage.quiet()
        stage.expect(settlement.ending is Ending.FINISHED, f"it is {settlement.ending.value}")
        stage.expect(not work.told_at, "the far end was told to stop what was over")


@obligation("hold_cancels", "finish")
async def completion_wins(stage: Stage) -> None:
    """A turn that completes while it is being stopped is finished, and gone."""
    async with stage.open():
        actor, work = await stage.begin()
        stage.probe.hold_cancels()
        actor.turn.stop()
        await stage.until(lambda: work.told_at, "the far end is told")
        await stage.probe.finish(work)
        settlement = await stage.left(actor)
        stage.expect(
            settlement.ending is Ending.FINISHED and settlement.gone,
            f"it completed, and is {settlement.ending.value}",
        )


@obligation("ask")
async def stopped_approvals_are_answered(stage: Stage) -> None:
    """An approval that is open when the turn is stopped is answered, and nobody waits for it."""
    async with stage.open():
        actor, work = await stage.begin()
        if stage.can("hold_cancels"):
            # One that obeys may withdraw its question by itself.
            stage.probe.hold_cancels()
        await stage.probe.ask(work)
        await stage.until(lambda: actor.asks, "the question is read")
        actor.turn.stop()
        await stage.quiet()
        stage.expect(work.replies, "the far end's question was left open while it ran")
        yes = (*actor.asks[0].choices, "yes")[0]
        stage.expect(
            not any(stage.probe.carries(answer, yes) for answer in work.replies),
            f"nobody has approved, and the far end was answered {work.replies}",
        )
        if stage.can("finish") and work.runs:
            await stage.probe.finish(work)
        await stage.left(actor)
        stage.expect(
            not actor.turn.answer(actor.asks[0], "yes"), "somebody still waits for the answer"
        )
