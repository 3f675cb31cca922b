"""The end: asked, sent, acknowledged and ended are four facts, and only the last settles."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import (
    BackendError,
    BackendLost,
    BackendRefused,
    Ending,
    Proof,
    Settlement,
    StopBudget,
    StopVerdict,
    Turn,
    open_rooms,
)
from turnstop.abc import End, How
from turnstop.events import Usage

from .backend import CANCELLED, CLAIMED, COMPLETED, SILENT, Act, Recorder, ending, hang, occupy


async def stopped(backend: Recorder, *, at: float = 1.0, **options: Any) -> Settlement:
    """One turn that is stopped at `at`, and its settlement."""
    async with open_rooms(backend, budget=StopBudget(4, 2), **options) as rooms:
        turn = rooms.turn("a", "x", turn_id="t")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(occupy, turn)
            await trio.sleep(at)
            turn.stop()
    assert turn.settlement is not None
    return turn.settlement


async def test_an_acknowledgement_proves_nothing() -> None:
    found = await stopped(Recorder(cancel=Act(), follow=Act(takes=3, returns=COMPLETED)))
    assert (found.ending, found.acked_at, found.ended_at) == (Ending.FINISHED, 1, 3)


async def test_an_acknowledgement_without_an_end_is_unconfirmed() -> None:
    found = await stopped(Recorder(cancel=Act()))
    assert (found.ending, found.acked_at, found.ended_at) == (Ending.UNCONFIRMED, 1, None)
    assert (found.gone, found.proof, found.settled_at) == (False, None, 7)


async def test_the_four_facts_are_four_times() -> None:
    backend = Recorder(start=Act(takes=2), cancel=Act(takes=1), follow=Act(takes=2.5))
    backend.follow.returns = CANCELLED
    found = await stopped(backend)
    assert (found.asked_at, found.sent_at, found.acked_at, found.ended_at) == (1, 2, 3, 4.5)
    assert found.settled_at == 4.5


async def test_a_cancel_that_never_says_sent_leaves_sent_at_empty() -> None:
    found = await stopped(Recorder(cancel=ending(sent=False, takes=1)))
    assert (found.sent_at, found.ending) == (None, Ending.STOPPED)


async def test_a_notification_is_never_acknowledged() -> None:
    def make(backend: Any, turn_id: str) -> Any:
        remote = original(backend, turn_id)
        remote.acknowledges = False
        return remote

    backend = Recorder()
    original, backend.make = backend.make, make
    backend.cancel = Act()
    backend.follow = Act(takes=2, returns=CANCELLED)
    found = await stopped(backend)
    assert (found.sent_at, found.acked_at) == (1, None)


async def test_follow_that_raises_is_no_end_and_the_backend_is_told_all_the_same() -> None:
    backend = Recorder(
        follow=Act(takes=1, raises=BackendLost("broken")),
        cancel=Act(takes=1),
        kill=Act(takes=0.5),
    )
    entered = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        async def second() -> None:
            async with rooms.turn("a", "y"):
                entered.append(trio.current_time())

        with pytest.raises(BackendLost):
            async with turn:
                nursery.start_soon(second)
                async for _ in turn:
                    pass
        await wait_all_tasks_blocked()
    assert entered == [2.5]
    assert turn.settlement is not None
    assert turn.settlement.ending is Ending.FAILED
    assert (turn.settlement.gone, turn.settlement.proof) == (True, Proof.PROCESS)
    assert (turn.settlement.request, turn.settlement.asked_at) == (None, None)
    assert backend.at("cancel", turn.turn_id) == [1]
    assert backend.at("kill", turn.turn_id) == [2]


async def test_follow_raises_after_the_stop_and_kill_returns() -> None:
    backend = Recorder(cancel=Act(takes=1), kill=Act(takes=0.5))
    backend.follow = Act(takes=1.5, raises=BackendLost("broken"))
    found = await stopped(backend)
    assert (found.ending, found.proof, found.gone) == (Ending.KILLED, Proof.PROCESS, True)
    assert (found.settled_at, found.ended_at) == (2.5, 2.5)
    assert backend.at("kill") == [2]


async def test_follow_raises_and_kill_raises() -> None:
    broken = ValueError("no such process")
    backend = Recorder(cancel=Act(), kill=Act(raises=broken))
    backend.follow = Act(takes=1.5, raises=BackendLost("broken"))
    found = await stopped(backend)
    assert (found.ending, found.proof, found.gone) == (Ending.UNCONFIRMED, None, False)
    assert broken in found.errors


async def test_follow_raises_and_there_is_no_kill() -> None:
    backend = Recorder(cancel=Act(takes=1), follow=Act(takes=1.5, raises=BackendLost("broken")))
    found = await stopped(backend)
    assert (found.ending, found.gone) == (Ending.UNCONFIRMED, False)


async def test_follow_raises_while_cancel_is_in_flight_and_kill_waits_for_it() -> None:
    backend = Recorder(cancel=Act(takes=2), kill=Act())
    backend.follow = Act(takes=1.5, raises=BackendLost("broken"))
    found = await stopped(backend)
    assert (backend.at("cancel"), backend.at("cancel left")) == ([1], [3])
    assert backend.at("kill") == [3]
    assert found.ending is Ending.KILLED


async def test_follow_raises_and_cancel_hangs_until_its_bound() -> None:
    backend = Recorder(cancel=hang(), kill=Act())
    backend.follow = Act(takes=1.5, raises=BackendLost("broken"))
    found = await stopped(backend)
    assert (backend.at("cancel left"), backend.at("kill")) == ([5], [5])
    assert (found.ending, found.settled_at) == (Ending.KILLED, 5)


async def test_a_kill_that_returned_is_no_end_while_follow_still_runs() -> None:
    found = await stopped(Recorder(cancel=Act(), kill=Act()))
    assert (found.ending, found.settled_at) == (Ending.UNCONFIRMED, 7)


async def test_follow_returns_after_kill() -> None:
    backend = Recorder(cancel=hang(), kill=ending(SILENT, takes=0.5))
    found = await stopped(backend)
    assert (found.ending, found.proof, found.settled_at) == (Ending.KILLED, Proof.EVENT, 5.5)


async def test_follow_raises_after_kill_returned() -> None:
    backend = Recorder(cancel=hang(), kill=Act(ends=BackendLost("broken"), takes=0.5))
    found = await stopped(backend)
    assert (found.ending, found.proof, found.settled_at) == (Ending.KILLED, Proof.PROCESS, 5.5)


async def test_a_local_process_that_ended_because_it_was_killed_is_killed() -> None:
    gone = BackendLost("exited", gone=True)
    backend = Recorder(cancel=hang(), kill=Act(takes=0.5, ends=gone))
    found = await stopped(backend)
    assert (found.ending, found.proof, found.gone) == (Ending.KILLED, Proof.PROCESS, True)
    assert (found.settled_at, found.ended_at, found.errors) == (5.5, 5.5, (gone,))


async def test_a_local_process_that_ended_while_it_started_is_stopped() -> None:
    gone = BackendLost("exited", gone=True)
    found = await stopped(Recorder(start=Act(takes=2, raises=gone)))
    assert (found.ending, found.proof, found.gone) == (Ending.STOPPED, Proof.PROCESS, True)
    assert (found.settled_at, found.errors) == (2, (gone,))


async def test_start_that_raises_has_nothing_to_call_and_settles_at_once() -> None:
    backend = Recorder(start=Act(takes=2, raises=BackendLost("no answer")), kill=Act())
    found = await stopped(backend)
    assert (found.ending, found.gone, found.settled_at) == (Ending.UNCONFIRMED, False, 2)
    assert backend.calls == ["start"]


async def test_start_that_refuses_after_a_stop_is_unstarted() -> None:
    refused = BackendRefused("busy")
    found = await stopped(Recorder(start=Act(takes=2, raises=refused)))
    assert (found.ending, found.gone, found.proof) == (Ending.UNSTARTED, True, None)
    assert (found.settled_at, found.errors) == (2, (refused,))


@pytest.mark.parametrize("call", ["cancel", "kill"])
async def test_a_call_that_never_answers_is_cancelled_as_soon_as_follow_has_returned(
    call: str,
) -> None:
    backend = Recorder(cancel=hang(), kill=hang())
    ends_at = 2 if call == "cancel" else 5.5
    backend.follow = Act(takes=ends_at, returns=CANCELLED)
    found = await stopped(backend)
    assert backend.at(f"{call} left") == [ends_at]
    assert (found.settled_at, found.survivors) == (ends_at, ())
    assert found.ending is (Ending.STOPPED if call == "cancel" else Ending.KILLED)
    # It was not acknowledged.
    assert found.acked_at is None


async def test_a_cancel_that_waits_for_its_turn_is_never_called_once_follow_has_raised_gone() -> (
    None
):
    backend = Recorder(cancel=hang())
    backend.follow = Act(takes=2, raises=BackendLost("exited", gone=True))
    found = await stopped(backend)
    assert (found.ending, found.proof, found.gone) == (Ending.STOPPED, Proof.PROCESS, True)
    assert (found.settled_at, backend.at("cancel left")) == (2, [2])


async def test_whoever_sees_the_end_settles_life_canceller_or_the_leaving_block() -> None:
    async def check(turn: Turn, after: float, ending: Ending) -> None:
        assert turn.settlement is not None
        assert (turn.settlement.settled_at, turn.settlement.ending) == (after, ending)

    backend = Recorder(follow=Act(takes=1, returns=COMPLETED))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as life:
            await trio.sleep(5)
        await check(life, 1, Ending.FINISHED)
        backend.follow = Act()
        async with rooms.turn("a", "x") as canceller:
            await trio.sleep(1)
        await check(canceller, 6, Ending.STOPPED)
        async with rooms.turn("a", "x") as block:
            pass
        await check(block, 6, Ending.UNSTARTED)


async def test_unconfirmed_is_final_and_a_late_end_changes_nothing() -> None:
    backend = Recorder(cancel=hang(), follow=Act(stubborn=30, returns=COMPLETED))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        found = turn.settlement
        assert found is not None
        assert (found.ending, found.settled_at) == (Ending.UNCONFIRMED, 7)
    assert trio.current_time() == 30
    assert turn.settlement is found


async def test_the_usage_that_the_end_tells_is_in_the_settlement() -> None:
    usage = Usage(3, 4)
    backend = Recorder(follow=Act(takes=1, returns=End(How.COMPLETED, usage=usage)))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            async for _ in turn:
                pass
        assert turn.settlement is not None
        assert turn.settlement.usage is usage


async def test_a_claimed_end_is_unconfirmed_at_once_and_nothing_is_killed() -> None:
    backend = Recorder(cancel=ending(CLAIMED, takes=1), kill=Act())
    found = await stopped(backend)
    assert (found.ending, found.proof, found.gone) == (Ending.UNCONFIRMED, Proof.CLAIMED, False)
    assert found.settled_at == 2
    assert backend.at("kill") == []


async def test_the_stop_that_loses_the_race_is_finished() -> None:
    backend = Recorder(cancel=ending(COMPLETED, takes=1))
    found = await stopped(backend)
    assert (found.ending, found.gone) == (Ending.FINISHED, True)
    assert found.request is not None


async def test_a_claim_that_it_completed_is_believed() -> None:
    backend = Recorder(cancel=ending(End(How.COMPLETED, Proof.CLAIMED), takes=1))
    found = await stopped(backend)
    assert (found.ending, found.gone, found.proof) == (Ending.FINISHED, True, Proof.CLAIMED)


async def test_what_follow_returns_must_be_an_end() -> None:
    backend = Recorder(follow=Act(takes=1, returns="done"), cancel=Act(), kill=Act())
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendError, match="done"):
            async with turn:
                await trio.sleep_forever()
    assert turn.ending is Ending.FAILED
    assert backend.calls == ["start", "follow", "cancel", "kill"]


async def test_what_start_returns_must_be_a_remote_turn() -> None:
    backend = Recorder(start=Act(returns=7))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendError, match="7"):
            async with turn:
                await trio.sleep_forever()
    assert (turn.ending, backend.calls) == (Ending.FAILED, ["start"])


@pytest.mark.parametrize("limit", [4.0, 6.0])
async def test_an_end_exactly_at_the_bound_settles_once(limit: float) -> None:
    backend = Recorder(cancel=Act(), kill=Act(takes=limit), follow=Act(takes=limit + 1))
    backend.follow.returns = CANCELLED
    seen: list[Settlement] = []
    found = await stopped(backend, observers=[seen.append])
    assert seen == [found]
    assert found.settled_at == limit + 1
    # Whoever of the two is first, nothing is told to a turn that has ended.
    assert backend.at("kill") == ([] if limit == 4 else [5])


async def test_what_a_turn_left_that_was_lost_with_its_process_is_swept_and_named() -> None:
    lost = BackendLost("it exited", gone=True)
    backend = Recorder(
        follow=Act(takes=1, raises=lost),
        leftovers=Act(takes=1, returns=["a shell"]),
        sweep=Act(returns=["a shell"]),
    )
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendLost):
            async with turn:
                await trio.sleep(1.5)
                # Nobody asked before it failed, and nothing is told again.
                assert turn.stop().verdict is StopVerdict.JOINED
                await trio.sleep_forever()
        assert backend.calls == ["start", "follow", "leftovers", "sweep"]
    found = turn.settlement
    assert found is not None
    assert (found.ending, found.gone, found.clean) == (Ending.FAILED, True, False)
    assert (found.survivors, found.request, found.settled_at) == (("a shell",), None, 2)
