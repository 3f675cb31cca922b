"""Obligations of what is left when a process dies: the next one finds it, and ends it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Final

import trio

from ..._ending import Ending
from ..._errors import BackendLost
from ..._house import ANNOUNCED_WITHIN
from ..._records import Settlement
from .._notebook import Notebook, Noted
from .._obligation import obligation
from .._probe import Work
from .._stage import Actor, Stage
from ._expect import expect_true, expect_waited

_NO_ATTACH: Final = "what a process leaves that dies cannot be taken up"
_NO_ANNOUNCE: Final = "where a turn is, it tells when it is revealed"
_FOREIGN: Final = ("", "nobody's", "null", "[]", '["a"]', '{"a": 1}', 'process:["a"]')


@obligation("attach")
async def turn_tells_where_it_is(stage: Stage) -> None:
    """A turn that another process could take up tells its address when it is revealed."""
    notebook = stage.notebook = Notebook()
    async with stage.open():
        stage.require("attach", _NO_ATTACH)
        actor, _ = await stage.begin()
        noted = notebook.turns[actor.turn.turn_id]
        stage.expect(noted.revealed, f"it was revealed, and has told {noted.addresses}")
        stage.expect(noted.address, "its address is empty")
        actor.turn.stop()
        settlement = await stage.left(actor)
        stage.expect(noted.settlements == [settlement], f"its end is noted as {noted.settlements}")


@obligation("announce")
async def what_begins_is_announced(stage: Stage) -> None:
    """An address that is known before is on the disk before anything leaves that can begin it."""
    notebook = stage.notebook = Notebook()
    notebook.hang()
    async with stage.open():
        stage.require("announces", _NO_ANNOUNCE)
        actor, _ = await _announcing(stage, notebook)
        notebook.answers.set()
        await stage.asked(actor)
        actor.turn.stop()
        await stage.left(actor)


@obligation("announce")
async def stop_before_sending_sends_nothing(stage: Stage) -> None:
    """A turn that is stopped while it is announced is over at once, and nothing of it leaves."""
    notebook = stage.notebook = Notebook()
    notebook.hang()
    async with stage.open():
        stage.require("announces", _NO_ANNOUNCE)
        actor, _ = await _announcing(stage, notebook)
        actor.turn.stop()
        settlement = await stage.left(actor)
        took = settlement.settled_at - (settlement.asked_at or 0.0)
        stage.expect(took <= stage.tolerance, f"it was settled {took:.3f} s after the stop")
        stage.expect(
            settlement.ending is Ending.UNSTARTED,
            f"nothing had left, and it is {settlement.ending.value}: {settlement.errors}",
        )
        notebook.answers.set()
        await trio.sleep(stage.moment)
        stage.expect(not stage.all_of(actor), "the far end was asked after the stop")
        await stage.asked(stage.enter("kitchen", "second"))


async def _announcing(stage: Stage, notebook: Notebook) -> tuple[Actor, Noted]:
    """Have somebody take a turn, while the disk hangs, and wait until it is announced."""
    actor = stage.enter("kitchen", "first")
    await stage.until(lambda: notebook.turns, "the turn is noted")
    noted = notebook.turns[actor.turn.turn_id]
    await stage.until(lambda: noted.waits or stage.find(actor), "the turn is announced")
    await stage.quiet()
    stage.expect(not stage.all_of(actor), "the far end was asked before that was on the disk")
    return actor, noted


@obligation("announce")
async def disk_holds_up_no_start(stage: Stage) -> None:
    """A disk that never answers holds up what is announced for half a second, and no longer."""
    notebook = stage.notebook = Notebook()
    notebook.hang()
    async with stage.open():
        stage.require("announces", _NO_ANNOUNCE)
        actor, _ = await _announcing(stage, notebook)
        announced = trio.current_time()
        work = await stage.asked(actor)
        late = work.asked_at - announced
        stage.expect(late <= ANNOUNCED_WITHIN + stage.tolerance, f"it was sent {late:.3f} s later")
        actor.turn.stop()
        await stage.left(actor)


@obligation()
async def disk_holds_up_no_stop(stage: Stage) -> None:
    """With a disk that never answers a turn is told to stop at once, and its end is noted."""
    notebook = stage.notebook = Notebook()
    notebook.hang()
    async with stage.open():
        actor, work = await stage.begin()
        asked = trio.current_time()
        actor.turn.stop()
        await stage.until(lambda: work.told_at or actor.turn.settlement, "the far end is told")
        stage.expect(work.told_at, "the turn is settled and the far end was never told")
        late = work.told_at[0] - asked
        stage.expect(stage.same(work.told_at[0], asked), f"it was told {late:.3f} s after the stop")
        settlement = await stage.left(actor)
        expect_waited(stage, actor, work)
        noted = notebook.turns[actor.turn.turn_id]
        stage.expect(noted.settlements == [settlement], f"its end is noted as {noted.settlements}")


@asynccontextmanager
async def _left(
    stage: Stage, *, ends_late: bool = False, ends: bool = False
) -> AsyncGenerator[tuple[Actor, Work, Stage], None]:
    """A turn, its work, and the rooms of the next process, which has found it.

    **Cancellation:** leaves both stages.
    """
    notebook = stage.notebook = Notebook()
    async with stage.open():
        stage.require("attach", _NO_ATTACH)
        actor, work = await stage.begin()
        address = notebook.turns[actor.turn.turn_id].address
        if ends_late and stage.can("end_late"):
            stage.probe.end_late(stage.moment)
        if ends:
            await stage.probe.finish(work)
            await stage.quiet()
        later = stage.after(("kitchen", actor.turn.turn_id, address))
        async with later.open():
            yield actor, work, later


@obligation("attach", "open_again")
async def left_turn_is_stopped(stage: Stage) -> None:
    """What a process has left that died is taken up where it is, told to stop, and waited for."""
    async with _left(stage) as (actor, work, later):
        settlement = await _recovered(later, actor.turn.turn_id)
        expect_true(stage, settlement, work)
        if stage.able("end_seen"):
            stage.expect(
                settlement.ending is Ending.STOPPED,
                f"it was stopped, and is {settlement.ending.value}: {settlement.errors}",
            )
        stage.expect(len(work.told_at) == 1, f"the far end was told {len(work.told_at)} times")
        asked = len(stage.all_of(actor))
        stage.expect(asked == 1, f"the far end was asked for it {asked} times")


@obligation("attach", "open_again", "end_seen")
async def left_turn_holds_its_room(stage: Stage) -> None:
    """A room lets nobody in before what was left there has ended; another room does."""
    async with _left(stage, ends_late=True) as (actor, work, later):
        second, third = later.enter("kitchen", "second"), later.enter("garden", "third")
        other = await later.asked(third)
        settlement = await _recovered(later, actor.turn.turn_id)
        mine = await later.asked(second)
        expect_true(stage, settlement, work)
        stage.expect(
            stage.not_before(mine.asked_at, settlement.settled_at)
            and stage.not_before(mine.asked_at, work.ended_at),
            "the next turn was sent before the one that was left had ended",
        )
        stage.expect(
            not stage.can("end_late") or other.asked_at < settlement.settled_at,
            "another room waited as well",
        )


@obligation("attach", "open_again", "finish", "end_kept")
async def left_turn_tells_its_end(stage: Stage) -> None:
    """What was left and has completed since is finished."""
    async with _left(stage, ends=True) as (actor, work, later):
        settlement = await _recovered(later, actor.turn.turn_id)
        expect_true(stage, settlement, work)
        stage.expect(
            settlement.ending is Ending.FINISHED,
            f"it has completed, and is {settlement.ending.value}: {settlement.errors}",
        )


@obligation("attach", "open_again", "hold_starts")
async def early_left_turn_is_no_lie(stage: Stage) -> None:
    """Of a turn that was left before its start was answered, nothing is said that is not so."""
    notebook = stage.notebook = Notebook()
    async with stage.open():
        stage.require("attach", _NO_ATTACH)
        stage.probe.hold_starts()
        actor = stage.enter("kitchen", "first")
        work = await stage.asked(actor)
        turn_id = actor.turn.turn_id
        noted = notebook.turns.get(turn_id)
        stage.expect(noted, "the far end was asked, and nothing is noted that it could be found by")
        assert noted is not None
        later = stage.after(("kitchen", turn_id, noted.address))
        async with later.open():
            expect_true(stage, await _recovered(later, turn_id), work)
        stage.probe.release_starts()


@obligation("attach", "open_again")
async def old_address_harms_nobody(stage: Stage) -> None:
    """A turn that is over is taken up once more: no other is touched, not in its own room."""
    async with _left(stage) as (actor, work, later):
        turn_id = actor.turn.turn_id
        await _recovered(later, turn_id)
        others = [await later.begin(text="second"), await later.begin("garden", "third")]
        asked = len(stage.probe.works)
        assert stage.notebook is not None
        address = stage.notebook.turns[turn_id].address
        once_more = stage.after(("kitchen", f"{turn_id} again", address))
        async with once_more.open():
            expect_true(stage, await _recovered(once_more, f"{turn_id} again"), work)
        await stage.quiet()
        for one, its in others:
            stage.expect(not its.told_at, f"the work of {one.text!r} was told to stop")
            goes_on = its.runs and one.turn.settlement is None
            stage.expect(goes_on, f"the work of {one.text!r} did not go on")
        more = len(stage.probe.works) - asked
        stage.expect(not more, f"the far end was asked for {more} more")


@obligation("attach")
async def foreign_address_tells_nothing(stage: Stage) -> None:
    """An address that is none of this backend's says nothing of what becomes of its turn."""
    left = [(f"room {n}", f"left {n}{stage.suffix}", text) for n, text in enumerate(_FOREIGN)]
    stage.notebook = Notebook(left)
    async with stage.open():
        stage.require("attach", _NO_ATTACH)
        for _, turn_id, address in left:
            settlement = await _recovered(stage, turn_id)
            stage.expect(
                settlement.ending is Ending.UNCONFIRMED,
                f"of {address!r} nothing is known, and it is {settlement.ending.value}",
            )
            lost = [one for one in settlement.errors if isinstance(one, BackendLost)]
            stage.expect(lost, f"{address!r}: {settlement.errors}, and not BackendLost")
        await stage.begin()


async def _recovered(later: Stage, turn_id: str) -> Settlement:
    """Wait until what was left is settled, and see that this is noted.

    **Cancellation:** changes nothing.
    """
    await later.until(lambda: later.recovered(turn_id), f"{turn_id!r}, which was left, is settled")
    settlement = later.recovered(turn_id)
    assert settlement is not None
    assert later.notebook is not None
    noted = later.notebook.turns[turn_id].settlements
    later.expect(noted == [settlement], f"its end is noted as {noted}")
    return settlement
