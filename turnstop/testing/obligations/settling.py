"""Obligations of the end: what is said of a turn is true, and whoever waits for it waits."""

from __future__ import annotations

import trio

from ..._ending import Ending
from .._obligation import obligation
from .._stage import Actor, Stage
from ._expect import expect_held, expect_no_lie, expect_stopped, expect_waited


@obligation("end_late", "end_seen")
async def settled_means_ended(stage: Stage) -> None:
    """A turn is settled when its work has ended, and not when the stop was acknowledged."""
    async with stage.open():
        actor, work = await stage.begin()
        stage.probe.end_late(stage.moment)
        actor.turn.stop()
        settlement = await stage.left(actor)
        expect_stopped(stage, actor, work)
        stage.expect(
            stage.same(settlement.ended_at, work.ended_at) and settlement.proof is not None,
            f"the work ended at {work.ended_at}: the settlement says {settlement.ended_at}, by "
            f"{settlement.proof}",
        )
        stage.expect(
            stage.same(settlement.settled_at, work.ended_at),
            f"the work ended {(work.ended_at or 0) - settlement.settled_at:+.3f} s "
            "from the settlement",
        )


@obligation("ignore_cancels")
async def acknowledgement_is_no_end(stage: Stage) -> None:
    """Work that goes on after its stop was acknowledged is never said to be gone."""
    async with stage.open():
        actor, work = await stage.begin()
        stage.probe.ignore_cancels()
        actor.turn.stop()
        await expect_held(stage, actor, work)
        settlement = await stage.left(actor)
        expect_no_lie(stage, actor, work)
        if not work.runs:
            stage.unseen = "the work was killed, and did not go on"
        stage.expect(
            settlement.gone or settlement.ending is Ending.UNCONFIRMED,
            f"the work goes on, and it is {settlement.ending.value}",
        )


@obligation("hold_cancels")
async def hung_cancel_is_bounded(stage: Stage) -> None:
    """A stop that is never answered is settled at its bound, and the room goes on."""
    async with stage.open():
        actor, work = await stage.begin()
        stage.probe.hold_cancels()
        actor.turn.stop()
        await expect_held(stage, actor, work)
        settlement = await stage.left(actor)
        expect_no_lie(stage, actor, work)
        took = settlement.settled_at - (settlement.asked_at or 0.0)
        stage.expect(
            took <= stage.settled_within + stage.tolerance,
            f"it took {took:.3f} s, and the bound is {stage.settled_within} s",
        )
        stage.expect(
            settlement.gone or took >= stage.bound - stage.tolerance,
            f"it was given up after {took:.3f} s, and it has {stage.bound} s",
        )
        stage.expect(settlement.acked_at is None, "it was never answered, and was acknowledged")
        hung = [name for name in settlement.survivors if name.startswith(("cancel()", "kill()"))]
        stage.expect(not hung, f"{', '.join(hung)}: an adapter lets itself be cancelled")
        await stage.asked(stage.enter("kitchen", "second"))


@obligation("refuse_cancels")
async def refused_cancel_is_reported(stage: Stage) -> None:
    """A stop that the far end refuses is in the settlement, and nobody is hit by it."""
    async with stage.open():
        actor, work = await stage.begin()
        stage.probe.refuse_cancels()
        actor.turn.stop()
        await expect_held(stage, actor, work)
        settlement = await stage.left(actor)
        expect_no_lie(stage, actor, work)
        stage.expect(settlement.errors, "the far end refused the stop, and nobody is told")
        if not work.runs:
            stage.unseen = "the work was killed, and what that raised is told as well"
        stage.expect(actor.error is None, f"the block was left with {actor.error!r}")
        await stage.asked(stage.enter("kitchen", "second"))


@obligation("hold_acknowledgements", "end_seen")
async def end_needs_no_acknowledgement(stage: Stage) -> None:
    """Work that has ended is settled, though the stop is never acknowledged."""
    async with stage.open():
        actor, work = await stage.begin()
        stage.probe.hold_acknowledgements()
        actor.turn.stop()
        settlement = await stage.left(actor)
        expect_stopped(stage, actor, work)
        stage.expect(
            stage.same(settlement.settled_at, work.ended_at),
            f"it was settled {settlement.settled_at - (work.ended_at or 0):.3f} s after the end",
        )


@obligation()
async def next_turn_waits(stage: Stage) -> None:
    """The room's next turn sends nothing before the stopped one is settled and its work ended."""
    async with stage.open():
        first, work = await stage.begin()
        if stage.can("end_late"):
            stage.probe.end_late(stage.moment)
        second = stage.enter("kitchen", "second")
        await stage.quiet()
        stage.expect(stage.find(second) is None, "two turns of a room are sent at once")
        first.turn.stop()
        settlement = await stage.left(first)
        later = await stage.asked(second)
        expect_no_lie(stage, first, work)
        stage.expect(
            stage.not_before(later.asked_at, settlement.settled_at),
            "the next turn was sent before this one was settled",
        )
        stage.expect(
            not settlement.gone or stage.not_before(later.asked_at, work.ended_at),
            "the next turn was sent while the work went on",
        )


@obligation()
async def leaving_waits(stage: Stage) -> None:
    """Whoever leaves the block early has stopped the turn, and waits until it is settled."""

    async def leave(actor: Actor) -> None:
        await stage.at_work()
        await trio.sleep(stage.moment)

    async with stage.open():
        if stage.can("end_late"):
            stage.probe.end_late(stage.moment)
        actor, work = await stage.begin(body=leave)
        settlement = await stage.left(actor)
        stage.expect(len(work.told_at) == 1, f"the far end was told {len(work.told_at)} times")
        kind = settlement.request and settlement.request.kind
        stage.expect(kind == "left", f"its block was left, and the settlement says {kind}")
        expect_waited(stage, actor, work)


@obligation()
async def teardown_waits(stage: Stage) -> None:
    """When the whole application is cancelled, each turn is stopped, and waited for."""

    async def cling(actor: Actor) -> None:
        with trio.move_on_after(4 * stage.settled_within, shield=True):
            await stage.until(lambda: actor.turn.settlement, "the turn is settled")

    asked = 0.0
    with trio.CancelScope() as app:
        async with stage.open():
            actor, work = await stage.begin()
            other, other_work = await stage.begin("garden", "second", cling)
            if stage.can("end_late"):
                stage.probe.end_late(stage.moment)
            asked = trio.current_time()
            app.cancel()
            await trio.sleep_forever()
    for one, its in ((actor, work), (other, other_work)):
        settlement = one.settlement
        stage.expect(len(its.told_at) == 1, f"the far end was told {len(its.told_at)} times")
        stage.expect(
            stage.same(its.told_at[0], asked),
            f"it was told {its.told_at[0] - asked:.3f} s after the application was cancelled",
        )
        expect_waited(stage, one, its)
        # The far end of some probes ends with the application, and its work with it.
        stage.expect(
            not (stage.can("end_late") and settlement.gone)
            or stage.not_before(settlement.settled_at, asked + stage.moment),
            "it was settled before its work could have ended",
        )


@obligation("hold_cancels", "finish")
async def unconfirmed_is_final(stage: Stage) -> None:
    """An end that comes after the settlement changes nothing, and nobody is told twice."""
    async with stage.open():
        actor, work = await stage.begin()
        stage.probe.hold_cancels()
        actor.turn.stop()
        await expect_held(stage, actor, work)
        settlement = await stage.left(actor)
        expect_no_lie(stage, actor, work)
        stage.expect(
            not work.runs or settlement.ending is Ending.UNCONFIRMED,
            f"the work goes on, and it is {settlement.ending.value}",
        )
        if work.runs:
            await stage.probe.finish(work)
        else:
            stage.unseen = "the work was killed, and could not end late"
        await stage.quiet()
        stage.expect(actor.settlement == settlement, f"it became {actor.settlement.ending.value}")
        told = [one for one in stage.settlements if one.turn_id == actor.turn.turn_id]
        stage.expect(len(told) == 1, f"observers were told {len(told)} times")


@obligation("hold_cancels", "session")
async def fresh_session_after_unconfirmed(stage: Stage) -> None:
    """While a turn's work may be alive, the next turn does not go on in its conversation."""
    async with stage.open():
        if stage.can("finish"):
            # Then the stopped turn goes on in a conversation that is known beforehand.
            before, its = await stage.begin(text="before")
            await stage.probe.finish(its)
            await stage.left(before)
        actor, work = await stage.begin()
        stage.probe.hold_cancels()
        actor.turn.stop()
        await expect_held(stage, actor, work)
        await stage.left(actor)
        expect_no_lie(stage, actor, work)
        _, later = await stage.begin(text="second")
        stage.expect(later.session is not None, "the far end knows no conversations")
        if not work.runs:
            stage.unseen = "the work was killed, so that no conversation had to be left"
        stage.expect(
            not work.runs or later.session != work.session,
            f"the next turn went on in {later.session}, where work may be alive",
        )
        if not stage.can("finish"):
            return
        await stage.probe.finish(later)
        _, last = await stage.begin(text="third")
        stage.expect(
            last.session == later.session,
            f"once nothing is alive, a turn went on in {last.session}, not in {later.session}",
        )


@obligation()
async def settlement_has_its_times(stage: Stage) -> None:
    """The settlement says who asked, when, and when the far end was told."""
    async with stage.open():
        actor, work = await stage.begin()
        if stage.can("hold_acknowledgements"):
            # To be sent is one thing, to be answered is another.
            stage.probe.hold_acknowledgements()
        asked = trio.current_time()
        stage.rooms.stop("kitchen", reason="enough", source="the kit")
        settlement = await stage.left(actor)
        request = settlement.request
        stage.expect(
            request is not None and (request.reason, request.source) == ("enough", "the kit"),
            f"it was asked for by the kit, and the settlement has {request}",
        )
        stage.expect(stage.same(settlement.asked_at, asked), "it has another time of the asking")
        stage.expect(settlement.sent_at is not None, "it was never sent, says the settlement")
        stage.expect(
            bool(work.told_at) and stage.same(settlement.sent_at, work.told_at[0]),
            f"the far end was told at {work.told_at}, and the settlement says {settlement.sent_at}",
        )


@obligation("hold_starts", "hold_cancels", "early_stop")
async def budget_is_one(stage: Stage) -> None:
    """The wait for the start and the wait for the end share one bound, counted from the asking."""
    async with stage.open():
        stage.probe.hold_starts()
        stage.probe.hold_cancels()
        actor = stage.enter("kitchen", "first")
        work = await stage.asked(actor)
        actor.turn.stop()
        await trio.sleep(stage.probe.budget.cancel_within * 0.75)
        stage.probe.release_starts()
        settlement = await stage.left(actor)
        expect_no_lie(stage, actor, work)
        took = settlement.settled_at - (settlement.asked_at or 0.0)
        stage.expect(
            settlement.gone or abs(took - stage.bound) <= stage.probe.budget.kill_within,
            f"it took {took:.3f} s, and the bound is {stage.bound} s",
        )
        ended = (settlement.ended_at or settlement.settled_at) - (settlement.asked_at or 0.0)
        stage.expect(
            not settlement.gone or ended <= stage.bound + stage.tolerance,
            f"it ended after {ended:.3f} s, and the bound is {stage.bound} s",
        )
        stage.expect(
            took <= stage.settled_within + stage.tolerance,
            f"it took {took:.3f} s, and the bound is {stage.settled_within} s",
        )


@obligation("session")
async def retired_room_begins_anew(stage: Stage) -> None:
    """Retiring a room stops its turn, waits for it, and its next turn begins a new conversation."""
    async with stage.open():
        actor, work = await stage.begin()
        await stage.rooms.retire("kitchen")
        retired = trio.current_time()
        settlement = actor.settlement
        stage.expect(len(work.told_at) == 1, f"the far end was told {len(work.told_at)} times")
        expect_no_lie(stage, actor, work)
        stage.expect(
            stage.not_before(retired, settlement.settled_at), "it was retired before the settlement"
        )
        _, later = await stage.begin(text="second")
        stage.expect(later.session is not None, "the far end knows no conversations")
        stage.expect(
            later.session != work.session, f"the next turn went on in the old {later.session}"
        )
