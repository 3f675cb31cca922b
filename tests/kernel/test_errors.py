"""Errors: raised once, whose they are, and what never leaves the kernel."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import (
    BackendError,
    BackendLost,
    BackendMisbehaved,
    BackendRefused,
    Ending,
    StopBudget,
    open_rooms,
)
from turnstop.abc import End, How, Proof
from turnstop.events import Text

from .backend import COMPLETED, FAILED, Act, Recorder, Remote, ending, hang, occupy

LOST = BackendLost("the line broke")


def failing(where: str, after: float = 1) -> Recorder:
    """A backend whose turn fails by itself."""
    act = Act(takes=after, raises=LOST)
    if where == "end":
        act = Act(takes=after, returns=FAILED)
    return Recorder(start=act) if where == "start" else Recorder(follow=act)


FAILURES = ["start", "follow", "end"]


@pytest.mark.parametrize("where", FAILURES)
async def test_a_failure_is_raised_by_the_async_for_that_waits(where: str) -> None:
    async with open_rooms(failing(where)) as rooms:
        turn = rooms.turn("a", "x")
        async with turn:
            with pytest.raises(BackendError) as caught:
                async for _ in turn:
                    pass
            assert trio.current_time() == 1
            # Once: it is over from here on.
            async for _ in turn:
                raise AssertionError("more events")
        assert turn.settlement is not None
        assert (turn.ending, turn.settlement.request) == (Ending.FAILED, None)
        assert turn.settlement.errors == (caught.value,)
        assert caught.value is LOST or str(caught.value) == "it broke"


@pytest.mark.parametrize("where", ["follow", "end"])
async def test_a_failure_is_raised_by_the_async_for_that_asks_next_after_the_unread(
    where: str,
) -> None:
    backend = failing(where)
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            with trio.move_on_after(0.5):
                await turn.__anext__()
            backend.remote.say(Text("last words"))
            await trio.sleep(5)
            heard = []
            with pytest.raises(BackendError):
                async for event in turn:
                    heard.append(event)
            assert heard == [Text("last words")]


@pytest.mark.parametrize("where", FAILURES)
async def test_a_body_that_never_asked_is_cancelled_and_the_exit_raises(where: str) -> None:
    async with open_rooms(failing(where)) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendError) as caught:
            async with turn:
                await trio.sleep_forever()
        assert trio.current_time() == 1
        assert turn.settlement is not None
        assert turn.settlement.errors == (caught.value,)


@pytest.mark.parametrize("where", FAILURES)
async def test_the_exit_raises_what_a_body_that_has_asked_was_not_given(where: str) -> None:
    async with open_rooms(failing(where)) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendError):
            async with turn:
                with trio.move_on_after(0.5):
                    await turn.__anext__()
                await trio.sleep(5)
                # A body that has asked is not cancelled.
                assert trio.current_time() == 5.5


async def test_a_failure_given_to_a_reader_in_another_task_is_not_raised_again() -> None:
    caught: list[BaseException] = []
    async with open_rooms(failing("follow")) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        async def read() -> None:
            try:
                async for _ in turn:
                    pass
            except BackendLost as error:
                caught.append(error)

        async with turn:
            nursery.start_soon(read)
            await trio.sleep(5)
    assert caught == [LOST]


@pytest.mark.parametrize("how", ["after", "before"])
async def test_after_the_asking_an_error_stands_only_in_the_settlement(how: str) -> None:
    backend = failing("start" if how == "before" else "follow", after=2)
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(1)
            turn.stop()
            await trio.sleep_forever()
        assert turn.ending is Ending.UNCONFIRMED
        assert turn.settlement is not None
        assert turn.settlement.errors == (LOST,)


async def test_an_end_that_failed_after_cancel_is_an_end_and_no_error() -> None:
    async with open_rooms(Recorder(cancel=ending(FAILED))) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(1)
        assert turn.settlement is not None
        assert (turn.ending, turn.settlement.errors) == (Ending.STOPPED, ())


async def test_a_stop_after_the_error_is_not_its_asking() -> None:
    backend = Recorder(follow=Act(takes=1, raises=LOST), cancel=Act(takes=2))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendLost):
            async with turn:
                with trio.move_on_after(0.5):
                    await turn.__anext__()
                await trio.sleep(1)
                assert turn.settlement is None
                turn.stop()
                await trio.sleep_forever()
        assert turn.settlement is not None
        assert (turn.ending, turn.settlement.request) == (Ending.FAILED, None)
        assert turn.settlement.asked_at is None
    assert backend.at("cancel") == [1]


@pytest.mark.parametrize("sync", [False, True])
@pytest.mark.parametrize("call", ["cancel", "kill", "leftovers", "sweep"])
async def test_errors_of_the_ladder_are_in_the_settlement_and_never_leave_the_kernel(
    call: str, sync: bool
) -> None:
    broken = ValueError(call)
    act = Act(sync=broken) if sync else Act(raises=broken)
    acts: dict[str, Any] = {"kill": ending(), "leftovers": Act(returns=["sh"]), call: act}
    backend = Recorder(**{"cancel": Act(), **acts})
    async with open_rooms(backend, budget=StopBudget(1, 1)) as rooms, trio.open_nursery() as nurse:
        other = rooms.turn("b", "y")
        nurse.start_soon(occupy, other)
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        assert turn.settlement is not None
        assert turn.settlement.errors == (broken,)
        assert other.settlement is None
        nurse.cancel_scope.cancel()


async def test_a_cancel_that_raises_is_not_asked_again() -> None:
    backend = Recorder(cancel=Act(raises=ValueError("no")))
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        assert turn.settlement is not None
        assert (turn.settlement.sent_at, turn.settlement.acked_at) == (0, None)
    assert backend.at("cancel") == [0]


class Bare:
    """A remote turn that an adapter forgot to finish."""

    session = None

    async def follow(self, emit: object) -> End:
        await trio.sleep(3)
        return COMPLETED


@pytest.mark.parametrize("how", ["stop", "follow raises"])
async def test_a_remote_turn_without_cancel_fails_its_own_turn_and_no_other(how: str) -> None:
    class Broken(Bare):
        async def follow(self, emit: object) -> End:
            await trio.sleep(1)
            raise LOST

    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        other = rooms.turn("b", "y")
        nursery.start_soon(occupy, other)
        await wait_all_tasks_blocked()
        backend.start_act = Act(returns=Bare() if how == "stop" else Broken())
        turn = rooms.turn("a", "x")
        try:
            async with turn:
                await wait_all_tasks_blocked()
                if how != "stop":
                    await trio.sleep_forever()
        except BackendError:
            pass
        assert turn.settlement is not None
        assert turn.settlement.errors != ()
        assert other.settlement is None
        nursery.cancel_scope.cancel()


class Moody(Remote):
    """Its session cannot be read."""

    @property
    def session(self) -> object:
        raise ValueError("no session")

    @session.setter
    def session(self, value: object) -> None:
        pass


async def test_a_session_that_raises_does_not_hide_a_turn_that_began() -> None:
    backend = Recorder(make=Moody)
    async with open_rooms(backend, budget=StopBudget(1, 1)) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(ValueError, match="no session"):
            async with turn:
                await trio.sleep_forever()
    assert turn.settlement is not None
    # It was revealed: it is told to stop.
    assert backend.at("cancel") == [0]


async def test_a_session_that_raises_after_a_stop_does_not_hide_a_turn_that_began() -> None:
    backend = Recorder(make=Moody, start=Act(takes=2), kill=Act())
    async with open_rooms(backend, budget=StopBudget(4, 2)) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(1)
    assert turn.settlement is not None
    assert (backend.at("cancel"), backend.at("kill")) == ([2], [2])
    assert (turn.ending, turn.settlement.settled_at) == (Ending.KILLED, 2)


async def test_a_session_that_raises_does_not_have_previous_told_again() -> None:
    backend = Recorder(cancel=hang())
    async with open_rooms(backend, budget=StopBudget(1, 1)) as rooms:
        async with rooms.turn("a", "x") as first:
            await wait_all_tasks_blocked()
        assert first.ending is Ending.UNCONFIRMED
        backend.cancel, backend.kill, backend.make = ending(), Act(), Moody
        with pytest.raises(ValueError, match="no session"):
            await occupy(rooms.turn("a", "y"))
        assert backend.requests[-1].previous is first.settlement
        backend.make = Remote
        async with rooms.turn("a", "z"):
            await wait_all_tasks_blocked()
        # Its start has returned, and it is gone.
        assert backend.requests[-1].previous is None


async def test_one_failing_turn_never_touches_another() -> None:
    backend = failing("follow")
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        failed = rooms.turn("a", "x")
        with pytest.raises(BackendLost):
            async with failed:
                await wait_all_tasks_blocked()
                backend.follow = Act()
                other, waiting = rooms.turn("b", "y"), rooms.turn("a", "z", turn_id="z")
                nursery.start_soon(occupy, other)
                nursery.start_soon(occupy, waiting)
                await trio.sleep_forever()
        await trio.sleep(10)
        assert other.settlement is None
        assert waiting.settlement is None
        assert backend.at("start", "z") == [1]
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("where", ["start", "follow", "cancel", "kill", "leftovers", "sweep"])
@pytest.mark.parametrize("kind", [SystemExit, KeyboardInterrupt])
async def test_a_base_exception_of_adapter_code_leaves_open_rooms(
    where: str, kind: type[BaseException]
) -> None:
    act = Act(raises=kind("from the adapter"))
    acts: dict[str, Any] = {"cancel": Act(), "kill": ending(), "leftovers": Act(returns=["sh"])}
    backend = Recorder(**{**acts, where: act})
    turns: list[Any] = []
    with pytest.raises(kind, match="from the adapter"):
        async with open_rooms(backend, budget=StopBudget(1, 1)) as rooms:
            turns.append(rooms.turn("a", "x"))
            async with turns[0]:
                await trio.sleep(1)
    assert turns[0].settlement is not None


@pytest.mark.parametrize("where", ["start", "follow"])
async def test_a_base_exception_of_adapter_code_is_not_given_to_the_reader(where: str) -> None:
    act = Act(takes=1, raises=SystemExit("from the adapter"))
    backend = Recorder(start=act) if where == "start" else Recorder(follow=act)
    with pytest.raises(SystemExit, match="from the adapter"):
        async with open_rooms(backend) as rooms:
            async with rooms.turn("a", "x") as turn:
                async for _ in turn:
                    pass


async def test_a_base_exception_of_adapter_code_stops_every_other_turn() -> None:
    backend = Recorder(follow=Act(takes=2, raises=SystemExit(3)), cancel=ending(takes=1))
    with pytest.raises(SystemExit) as caught:
        async with open_rooms(backend) as rooms:
            async with rooms.turn("a", "x") as failing_turn:
                await wait_all_tasks_blocked()
                backend.follow = Act()
                async with rooms.turn("b", "y") as other:
                    await trio.sleep_forever()
    assert caught.value.code == 3
    assert (other.ending, failing_turn.ending) == (Ending.STOPPED, Ending.FAILED)
    assert failing_turn.settlement is not None
    # Its own backend is told as well: an exception is no end.
    assert backend.at("cancel", failing_turn.turn_id) == [2]


@pytest.mark.parametrize("gone", [False, True])
async def test_a_lost_backend_before_anybody_asked(gone: bool) -> None:
    backend = Recorder(follow=Act(takes=1, raises=BackendLost("exited", gone=gone)))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendLost):
            async with turn:
                await trio.sleep_forever()
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.gone) == (Ending.FAILED, gone)
    assert turn.settlement.proof is (Proof.PROCESS if gone else None)
    # Where the work went with the process there is nobody to tell.
    assert len(backend.at("cancel")) == (not gone)


async def test_a_refusal_before_anybody_asked_is_raised_and_gone() -> None:
    backend = Recorder(start=Act(raises=BackendRefused("busy")))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendRefused, match="busy"):
            async with turn:
                async for _ in turn:
                    pass
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.gone, turn.settlement.proof) == (Ending.FAILED, True, None)


async def test_start_that_raises_before_it_can_be_awaited_is_the_same_failure() -> None:
    backend = Recorder(start=Act(sync=LOST))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendLost) as caught:
            async with turn:
                await trio.sleep_forever()
    assert caught.value is LOST
    assert turn.ending is Ending.FAILED


async def test_a_failure_that_life_has_not_seen_when_the_block_is_left_is_after_the_asking() -> (
    None
):
    backend = Recorder(cancel=Act())
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        async with turn:
            await wait_all_tasks_blocked()
            backend.remote.finish(LOST)
        assert turn.settlement is not None
        assert turn.settlement.errors == (LOST,)
        assert turn.ending is Ending.UNCONFIRMED


async def test_a_failure_under_a_body_that_swallows_its_cancellation_is_raised_by_the_exit() -> (
    None
):
    async with open_rooms(failing("end")) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendError, match="it broke"):
            async with turn:
                try:
                    await trio.sleep_forever()
                except trio.Cancelled:
                    pass


async def test_errors_of_the_contract_are_backend_errors_and_tell_whether_it_is_gone() -> None:
    for kind in (BackendRefused, BackendLost, BackendMisbehaved):
        assert issubclass(kind, BackendError)
    assert BackendLost("x").gone is False
    assert BackendLost("x", gone=True).gone is True
    assert str(BackendLost("x", gone=True)) == "x"


async def test_a_group_that_an_adapter_raises_stays_whole() -> None:
    group = ExceptionGroup("two lines", [LOST])
    backend = Recorder(follow=Act(takes=1, raises=group))
    async with open_rooms(backend) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(ExceptionGroup) as caught:
            async with turn:
                async for _ in turn:
                    pass
        assert caught.value is group
        assert turn.settlement is not None
        assert turn.settlement.errors == (group,)
        assert (turn.ending, turn.settlement.gone) == (Ending.FAILED, False)


async def test_an_error_that_a_reader_is_given_in_the_step_of_a_stop_is_raised_all_the_same() -> (
    None
):
    backend = Recorder(cancel=Act())
    caught: list[BaseException] = []
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        async def body() -> None:
            try:
                async with turn:
                    async for _ in turn:
                        pass
            except BackendLost as error:
                caught.append(error)

        nursery.start_soon(body)
        await wait_all_tasks_blocked()
        backend.remote.finish(LOST)
        while turn.state == "live":
            await trio.lowlevel.checkpoint()
        turn.stop()
    assert caught == [LOST]
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.request) == (Ending.FAILED, None)


async def test_a_failed_end_without_words_still_says_something() -> None:
    backend = Recorder(follow=Act(takes=1, returns=End(How.FAILED)))
    async with open_rooms(backend) as rooms:
        with pytest.raises(BackendError, match="failed"):
            async with rooms.turn("a", "x"):
                await trio.sleep_forever()


async def test_an_error_of_a_hanging_cancel_that_is_given_up_is_not_lost() -> None:
    class Grumpy(Remote):
        async def cancel(self, sent: Any) -> None:
            self.backend.log.append(("cancel", self.turn_id, trio.current_time()))
            try:
                await trio.sleep_forever()
            finally:
                raise ValueError("interrupted")

    backend = Recorder(make=Grumpy, kill=hang())
    async with open_rooms(backend, budget=StopBudget(1, 1)) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        assert turn.settlement is not None
        assert [str(error) for error in turn.settlement.errors] == ["interrupted"]
