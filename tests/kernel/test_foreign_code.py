"""Foreign code in the kernel's own steps: attributes, log handlers, waits of bodies, tracers.

Whatever it raises or looks at: a turn is settled, and whoever waits for it is told.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import BackendError, Ending, Settlement, StopBudget, Turn, open_rooms
from turnstop._gate import MAX_EVENTS
from turnstop._watch import Watch
from turnstop.abc import Silenced
from turnstop.events import Ask, Other

from .backend import CLAIMED, COMPLETED, Act, Recorder, Remote, drain, ending, hang, occupy

BUDGET = StopBudget(2, 1)


class Grumpy(Remote):
    """A remote turn with an attribute that raises, once it has been revealed."""

    broken = ""
    error: BaseException = ValueError("grumpy")

    def __getattribute__(self, name: str) -> Any:
        if name != "broken" and name == self.broken:
            raise self.error
        return super().__getattribute__(name)


def remote_of(backend: Recorder, turn: Turn) -> Any:
    return next(remote for remote in backend.remotes if remote.turn_id == turn.turn_id)


async def stop_with_a_broken(attribute: str, backend: Recorder) -> Turn:
    """Stop one of two turns; the other one must not notice."""
    backend.make = Grumpy
    async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
        other = rooms.turn("b", "x")
        nursery.start_soon(occupy, other)
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(1)
            remote_of(backend, turn).broken = attribute
        assert other.state == "live"
        other.stop()
    return turn


@pytest.mark.parametrize("attribute", ["session", "acknowledges", "leftovers", "sweep"])
async def test_an_attribute_that_raises_is_an_error_of_the_turn_and_of_no_other(
    attribute: str,
) -> None:
    backend = Recorder(leftovers=Act(returns=["sh"]))
    turn = await stop_with_a_broken(attribute, backend)
    assert turn.settlement is not None
    assert turn.ending is Ending.STOPPED
    assert turn.settlement.errors == (Grumpy.error,)
    assert turn.settlement.settled_at == 1
    # What the others say is read all the same.
    assert turn.settlement.acked_at == (None if attribute == "acknowledges" else 1)


async def test_a_kill_that_raises_when_it_is_looked_for_is_an_error_of_the_turn() -> None:
    turn = await stop_with_a_broken("kill", Recorder(cancel=hang(), kill=ending()))
    assert turn.settlement is not None
    assert (turn.ending, turn.settlement.settled_at) == (Ending.UNCONFIRMED, 4)
    assert turn.settlement.errors == (Grumpy.error,)


async def test_a_late_turns_kill_that_raises_when_it_is_looked_for_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    def make(recorder: Recorder, turn_id: str) -> Remote:
        remote = Grumpy(recorder, turn_id)
        remote.broken = "kill"
        return remote

    backend = Recorder(start=Act(stubborn=8), make=make)
    async with open_rooms(backend, budget=BUDGET) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(1)
        assert turn.ending is Ending.UNCONFIRMED
    assert backend.calls == ["start", "cancel"]
    assert f"late kill() of turn {turn.turn_id} failed" in caplog.text


async def test_an_exit_that_an_attribute_asks_for_leaves_open_rooms_when_all_is_settled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(Grumpy, "error", SystemExit("asked for"))
    backend = Recorder(make=Grumpy)
    turns: list[Turn] = []
    # The one error, that two tasks raise, leaves as itself.
    with pytest.raises(SystemExit, match="asked for"):
        async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
            turns += [rooms.turn("a", "x"), rooms.turn("b", "x")]
            nursery.start_soon(occupy, turns[1])
            async with turns[0]:
                await trio.sleep(1)
                backend.remotes[0].broken = backend.remotes[1].broken = "session"
    for turn in turns:
        assert turn.settlement is not None
        assert (turn.ending, turn.settlement.settled_at) == (Ending.STOPPED, 1)


class Handler(logging.Handler):
    def __init__(self, handle: Callable[[], object]) -> None:
        super().__init__()
        self.react = handle

    def emit(self, record: logging.LogRecord) -> None:
        self.react()


@contextmanager
def handler(react: Callable[[], object]) -> Iterator[None]:
    logger, mine = logging.getLogger("turnstop"), Handler(react)
    logger.addHandler(mine)
    try:
        yield
    finally:
        logger.removeHandler(mine)


@pytest.mark.parametrize("straggler", [False, True])
async def test_a_log_handler_that_raises_keeps_nobody_waiting(straggler: bool) -> None:
    def broken() -> None:
        raise OSError("disk full")

    backend = Recorder(cancel=Act(stubborn=50) if straggler else Act())
    turns: list[Turn] = []
    with handler(broken), pytest.raises(OSError, match="disk full"):
        async with open_rooms(backend, budget=BUDGET) as rooms:
            turns.append(rooms.turn("a", "x"))
            async with turns[0]:
                await trio.sleep(1)
    assert turns[0].settlement is not None
    assert (turns[0].ending, turns[0].settlement.settled_at) == (Ending.UNCONFIRMED, 4)


async def test_a_log_handler_finds_the_turn_settled() -> None:
    seen: list[Settlement | None] = []
    backend = Recorder(cancel=Act(stubborn=50))
    async with open_rooms(backend, budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x")
        with handler(lambda: seen.append(turn.settlement)):
            async with turn:
                await trio.sleep(1)
    assert seen == [turn.settlement] * 2


async def test_what_is_gone_is_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    async with open_rooms(Recorder()) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(1)
    assert turn.ending is Ending.STOPPED
    assert caplog.records == []


async def test_an_error_that_cannot_be_shown_keeps_nobody_waiting(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    class Unshowable(Exception):
        def __repr__(self) -> str:
            raise ValueError("no words")

    # The logging module's own way of dealing with what a record holds; pytest's raises instead.
    monkeypatch.setattr(logging.getLogger("turnstop"), "propagate", False)
    monkeypatch.setattr(logging, "raiseExceptions", False)
    error = Unshowable()
    async with open_rooms(Recorder(cancel=ending(CLAIMED, raises=error)), budget=BUDGET) as rooms:
        with handler(lambda: None):
            async with rooms.turn("a", "x") as turn:
                await trio.sleep(1)
        assert turn.settlement is not None
        assert turn.settlement.errors == (error,)


async def wait_looking(look: Callable[[], object]) -> None:
    """Wait for ever, and look around in the very step in which that is cancelled."""

    def abort(_: object) -> trio.lowlevel.Abort:
        look()
        return trio.lowlevel.Abort.SUCCEEDED

    await trio.lowlevel.wait_task_rescheduled(abort)


async def test_a_body_that_is_cancelled_by_a_stop_finds_it_done() -> None:
    backend, seen = Recorder(cancel=hang()), []
    async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")

        def look() -> None:
            seen.append(turn.state)
            backend.remote.say(Other("of the abort"))
            seen.append(turn._gate.dropped)

        nursery.start_soon(lambda: occupy(turn, inside=lambda: wait_looking(look)))
        await wait_all_tasks_blocked()
        turn.stop()
        assert seen == ["stopping", 1]


async def test_a_call_that_is_cancelled_for_its_bound_finds_itself_named() -> None:
    seen: list[int] = []

    class Looking(Recorder):
        async def forget(self, session: object) -> None:
            await wait_looking(lambda: seen.append(rooms.statistics().stragglers))

    async with open_rooms(Looking(session="s"), budget=BUDGET) as rooms:
        async with rooms.turn("a", "x"):
            await wait_all_tasks_blocked()
        with pytest.raises(BackendError, match="took longer"):
            await rooms.retire("a")
        await wait_all_tasks_blocked()
        assert rooms.statistics().stragglers == 0
    assert seen == [1]


@pytest.mark.parametrize("how", ["exit", "cancelled"])
async def test_a_body_that_is_cancelled_by_the_closing_finds_the_rooms_closing(how: str) -> None:
    seen: list[str] = []
    app = trio.CancelScope()

    def look() -> None:
        seen.append(repr(rooms))

    async with trio.open_nursery() as nursery:
        with app:
            async with open_rooms(Recorder()) as rooms:
                turn = rooms.turn("a", "x")
                nursery.start_soon(lambda: occupy(turn, inside=lambda: wait_looking(look)))
                await wait_all_tasks_blocked()
                if how == "cancelled":
                    app.cancel()
                    await trio.sleep_forever()
    assert len(seen) == 1
    assert "closing" in seen[0]


async def test_a_backlog_is_told_whatever_the_bodys_wait_raises_when_it_is_cancelled() -> None:
    broken = RuntimeError("a wait that cannot be cancelled")

    async def wait() -> None:
        task = trio.lowlevel.current_task()

        def abort(_: object) -> trio.lowlevel.Abort:
            trio.lowlevel.reschedule(task)
            raise broken

        await trio.lowlevel.wait_task_rescheduled(abort)
        await trio.lowlevel.checkpoint()

    class Flood(Remote):
        async def follow(self, emit: Any) -> Any:
            await trio.sleep(1)
            for _ in range(MAX_EVENTS + 1):
                emit(Other("x"))
            return await super().follow(emit)

    async with open_rooms(Recorder(make=Flood), budget=BUDGET) as rooms:
        turn = rooms.turn("a", "x")
        with pytest.raises(BackendError, match="too slow"):
            await occupy(turn, inside=wait)
    assert turn.settlement is not None
    assert turn.ending is Ending.FAILED
    assert "too slow" in str(turn.settlement.errors[0])
    assert turn.settlement.errors[1:] == (broken,)


async def test_what_an_alarm_settles_is_told_to_the_observers_at_once() -> None:
    told: list[tuple[Any, float]] = []

    class Bell:
        due: float | None = None

        def ring(self) -> None:
            watch.report("settled")  # type: ignore[arg-type]

    async with trio.open_nursery() as nursery:
        watch = Watch([lambda found: told.append((found, trio.current_time()))])
        nursery.start_soon(watch.run, lambda: None)
        watch.set_first(Bell(), 3)
        await trio.sleep(10)
        watch.close()
    assert told == [("settled", 3)]


class Tracer(trio.abc.Instrument):
    """Looks around whenever a task is woken, in the middle of the step that wakes it."""

    def __init__(self, look: Callable[[], object]) -> None:
        self.look = look
        self.seen: list[tuple[str, Any]] = []

    def task_scheduled(self, task: trio.lowlevel.Task) -> None:
        self.seen.append((task.name, self.look()))

    def __enter__(self) -> Tracer:
        trio.lowlevel.add_instrument(self)
        return self

    def __exit__(self, *_: object) -> None:
        trio.lowlevel.remove_instrument(self)


async def test_whoever_is_woken_by_a_stop_is_woken_in_its_name() -> None:
    backend = Recorder(cancel=hang())
    async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn, name="body")
        await wait_all_tasks_blocked()

        async def serve() -> None:
            with suppress(Silenced):
                await backend.remote.emit.ask(Ask("1", "question", "what?"))  # type: ignore[union-attr]

        nursery.start_soon(serve, name="question")
        await wait_all_tasks_blocked()
        with Tracer(lambda: turn.state) as tracer:
            turn.stop()
        assert {name for name, _ in tracer.seen} >= {"turnstop watch", "question", "body"}
        assert {state for _, state in tracer.seen} == {"stopping"}


async def test_whoever_is_woken_by_a_settlement_finds_it() -> None:
    backend = Recorder(cancel=hang(), follow=Act(stubborn=50))
    async with open_rooms(backend, budget=BUDGET) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn, name="body")
        await wait_all_tasks_blocked()
        nursery.start_soon(drain, turn, name="reader")
        nursery.start_soon(turn.wait_settled, name="waiter")
        await wait_all_tasks_blocked()
        turn.stop()
        await trio.sleep(1)
        with Tracer(lambda: turn.settlement is not None) as tracer:
            await turn.wait_settled()
            await wait_all_tasks_blocked()
        woken = dict(reversed(tracer.seen))
        assert {name: woken[name] for name in ("body", "reader", "waiter")} == {
            "body": True,
            "reader": True,
            "waiter": True,
        }


async def test_whoever_is_handed_the_room_finds_the_turn_before_it_accounted_for() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            nursery.start_soon(occupy, rooms.turn("a", "y"), name="next")
            await wait_all_tasks_blocked()
            for number in range(3):
                backend.remote.say(Other(str(number)))
            backend.remote.finish(COMPLETED)
            await turn.wait_settled()
            tracer = Tracer(lambda: turn.settlement is not None and turn.settlement.dropped)
            trio.lowlevel.add_instrument(tracer)
        trio.lowlevel.remove_instrument(tracer)
        rooms.stop("a")
        assert dict(reversed(tracer.seen))["next"] == 3
