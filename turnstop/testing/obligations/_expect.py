"""What several obligations expect of a settlement."""

from __future__ import annotations

from ..._ending import Ending
from ..._records import Settlement
from .._probe import Work
from .._stage import Actor, Stage


def expect_no_lie(stage: Stage, actor: Actor, work: Work) -> None:
    """What is gone has ended at the far end, and before that was said."""
    expect_true(stage, actor.settlement, work)


def expect_true(stage: Stage, settlement: Settlement, work: Work) -> None:
    """The same, of a settlement that is not an actor's."""
    if settlement.gone:
        lie = f"it is said to be {settlement.ending.value} and gone"
        stage.expect(work.ended_at is not None, f"{lie}, and the work goes on")
        stage.expect(
            stage.not_before(settlement.settled_at, work.ended_at),
            f"{lie}, before the work has ended",
        )


def expect_stopped(stage: Stage, actor: Actor, work: Work) -> None:
    """A far end that obeys has ended the work for being told, and no force was needed."""
    settlement = actor.settlement
    took = settlement.settled_at - (settlement.asked_at or 0.0)
    since = f"{took:.3f} s after the stop; it had {stage.probe.budget.cancel_within:g} s to end"
    what = "the work did not end" if work.ended_at is None else "nobody saw that the work ended"
    stage.expect(settlement.gone, f"{what}: it is {settlement.ending.value} {since}")
    stage.expect(
        settlement.ending is not Ending.KILLED,
        f"the work did not end for being told: it was killed {since}",
    )
    stage.expect(
        settlement.ending is Ending.STOPPED, f"a stopped turn is {settlement.ending.value}"
    )
    expect_no_lie(stage, actor, work)


def expect_waited(stage: Stage, actor: Actor, work: Work) -> None:
    """The block was left when the turn was settled, and its work over, as far as that is told."""
    settlement = actor.settlement
    if stage.able("end_seen"):
        expect_stopped(stage, actor, work)
    expect_no_lie(stage, actor, work)
    stage.expect(
        stage.not_before(actor.left_at, settlement.settled_at),
        "the block was left before the turn was settled",
    )
    stage.expect(
        not settlement.gone or stage.not_before(actor.left_at, work.ended_at),
        "the block was left while the work went on",
    )


async def expect_held(stage: Stage, actor: Actor, work: Work) -> None:
    """The far end has heard the cancel and goes on: without that, nothing is seen.

    **Cancellation:** changes nothing.
    """
    await stage.until(lambda: work.told_at or actor.turn.settlement, "the far end is told")
    await stage.quiet()
    stage.expect(
        work.runs or not work.told_at, "the lever did nothing: the far end has ended the work"
    )
