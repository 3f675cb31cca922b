"""KeyboardInterrupt: what is protected from it, and where it goes."""

from __future__ import annotations

import signal
import sys
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

from turnstop import Ending, Settlement, StopBudget, Turn, open_rooms
from turnstop._gate import MAX_EVENTS
from turnstop._house import House
from turnstop._life import Life
from turnstop._rooms import Rooms
from turnstop.abc import End, Request
from turnstop.events import Other

from .backend import CANCELLED, Act, Recorder, Remote, ending, hang, occupy
from .test_recovery import Far, Notebook


@pytest.fixture(autouse=True)
def _default_handler() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    return trio.run(main, clock=MockClock(autojump_threshold=0))


def ctrl_c() -> None:
    """Ctrl-C in the running frame, where that is not protected."""
    signal.raise_signal(signal.SIGINT)


@trio.lowlevel.enable_ki_protection
def ctrl_c_of_the_main_task() -> None:
    """Ctrl-C that arrives while nothing of the user's runs: the main task gets it."""
    signal.raise_signal(signal.SIGINT)


@contextmanager
def ctrl_c_in(code: CodeType) -> Iterator[list[str]]:
    """Ctrl-C comes in the first step of the next call of a function."""
    hit: list[str] = []

    def profile(frame: FrameType, event: str, arg: object) -> None:
        if event == "call" and frame.f_code is code and not hit:
            hit.append(code.co_name)
            ctrl_c()

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        yield hit
    finally:
        sys.setprofile(before)


def code_of(function: Any) -> CodeType:
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code: CodeType = function.__code__
    return code


@pytest.mark.parametrize("way", ["turn", "room", "all", "leave", "closing", "backlog", "enter"])
def test_a_stop_is_whole_or_not_at_all(way: str) -> None:
    """Ctrl-C in the middle of a stop never leaves half of one."""
    backend = Recorder(cancel=ending(takes=1))
    turns: list[Turn] = []

    async def main() -> None:
        with ctrl_c_in(code_of(Life.stop)) as hit:
            try:
                app = trio.CancelScope()
                with app:
                    async with open_rooms(backend) as rooms:
                        turn = rooms.turn("a", "x")
                        turns.append(turn)
                        if way == "enter":
                            async with rooms.turn("a", "y"):
                                with trio.CancelScope() as scope:
                                    async with trio.open_nursery() as nursery:
                                        nursery.start_soon(occupy, turn)
                                        await wait_all_tasks_blocked()
                                        scope.cancel()
                            return
                        async with turn:
                            await wait_all_tasks_blocked()
                            if way == "turn":
                                turn.stop()
                            elif way == "room":
                                rooms.stop("a")
                            elif way == "all":
                                rooms.stop_all()
                            elif way == "closing":
                                app.cancel()
                            elif way == "backlog":
                                for _ in range(MAX_EVENTS + 1):
                                    backend.remote.say(Other("x"))
                            if way != "leave":
                                await trio.sleep_forever()
            finally:
                assert hit == ["stop"]

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(main)
    assert "KeyboardInterrupt" in repr(caught.value)
    settlement = turns[0].settlement
    assert settlement is not None
    assert settlement.request is not None
    if way == "closing" and settlement.request.kind == "cancelled":
        return  # the block may run before the watcher, in the same pass
    kinds = {"all": "stop_all", "leave": "left", "enter": "cancelled"}
    expected = kinds.get(way, "stop" if way in ("turn", "room") else way)
    assert settlement.request.kind == expected


def test_a_stop_by_a_backlog_that_an_adapter_meets_is_whole() -> None:
    """The overflow happens under adapter code, which is not protected; the stop is."""
    backend = Recorder()
    turns: list[Turn] = []

    class Flood(Recorder):
        async def start(self, request: Any) -> Any:
            remote = self._reveal(request.turn_id)
            original = remote.follow

            async def follow(emit: Any) -> Any:
                await trio.sleep(1)
                for _ in range(MAX_EVENTS + 1):
                    emit(Other("x"))
                return await original(emit)

            remote.follow = follow
            return remote

    backend = Flood()

    async def main() -> None:
        with ctrl_c_in(code_of(Life.stop)) as hit:
            async with open_rooms(backend) as rooms:
                turns.append(rooms.turn("a", "x"))
                async with turns[0]:
                    await trio.sleep_forever()
        assert hit == ["stop"]

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(main)
    assert caught.type in (KeyboardInterrupt, BaseExceptionGroup) or "slow" in str(caught.value)
    settlement = turns[0].settlement
    assert settlement is not None
    assert settlement.request is not None
    assert settlement.request.kind == "backlog"
    assert settlement.settled_at == 1
    assert backend.at("cancel") == [1]


def test_ctrl_c_while_a_block_settles_is_held_until_it_has() -> None:
    backend = Recorder(cancel=ending(takes=3))
    happened: list[tuple[str, float]] = []

    async def main() -> None:
        async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:

            async def interrupt() -> None:
                await trio.sleep(2)
                ctrl_c_of_the_main_task()
                happened.append(("ctrl-c", trio.current_time()))

            turn = rooms.turn("a", "x")
            nursery.start_soon(interrupt)
            try:
                async with turn:
                    await trio.sleep(1)
            except KeyboardInterrupt:
                happened.append(("raised", trio.current_time()))
                assert turn.ending is Ending.STOPPED
                assert rooms.statistics().rooms == 0
                raise

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(main)
    assert "KeyboardInterrupt" in repr(caught.value)
    assert happened == [("ctrl-c", 2), ("raised", 4)]


def test_ctrl_c_while_a_block_settles_does_not_take_the_place_of_the_bodys_error() -> None:
    backend = Recorder(cancel=ending(takes=3))
    mine = ValueError("mine")
    happened: list[float] = []

    async def main() -> None:
        async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:

            async def interrupt() -> None:
                await trio.sleep(2)
                ctrl_c_of_the_main_task()

            nursery.start_soon(interrupt)
            try:
                async with rooms.turn("a", "x"):
                    await trio.sleep(1)
                    raise mine
            except ValueError as error:
                assert error is mine
                happened.append(trio.current_time())
            await trio.sleep(1)
            raise AssertionError("the interrupt was lost")

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(main)
    assert "KeyboardInterrupt" in repr(caught.value)
    assert happened == [4]


def test_ctrl_c_while_open_rooms_closes_waits_for_every_block() -> None:
    backend = Recorder(cancel=ending(takes=3))
    turns: list[Turn] = []
    happened: list[float] = []

    async def main() -> None:
        async with trio.open_nursery() as nursery:

            async def interrupt() -> None:
                await trio.sleep(2)
                ctrl_c_of_the_main_task()

            nursery.start_soon(interrupt)
            try:
                async with open_rooms(backend) as rooms:
                    turns.append(rooms.turn("a", "x"))
                    nursery.start_soon(occupy, turns[0])
                    await trio.sleep(1)
            finally:
                happened.append(trio.current_time())
                assert turns[0].ending is Ending.STOPPED

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(main)
    assert "KeyboardInterrupt" in repr(caught.value)
    assert happened == [4]


def test_ctrl_c_in_a_body_is_an_error_of_the_body() -> None:
    backend = Recorder(cancel=ending(takes=3))
    turns: list[Turn] = []

    async def main() -> None:
        async with open_rooms(backend) as rooms:
            turns.append(rooms.turn("a", "x"))
            async with turns[0]:
                await trio.sleep(1)
                ctrl_c()

    with pytest.raises(KeyboardInterrupt):
        run(main)
    assert turns[0].ending is Ending.STOPPED
    assert backend.at("cancel") == [1]


def test_ctrl_c_while_the_main_task_sleeps_stops_everything_and_leaves() -> None:
    backend = Recorder(cancel=ending(takes=3))
    turns: list[Turn] = []

    async def main() -> None:
        async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
            turns.extend(rooms.turn(room, "x") for room in "ab")
            for turn in turns:
                nursery.start_soon(occupy, turn)

            async def interrupt() -> None:
                await trio.sleep(1)
                ctrl_c_of_the_main_task()

            nursery.start_soon(interrupt)
            await trio.sleep_forever()

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(main)
    assert "KeyboardInterrupt" in repr(caught.value)
    assert [turn.ending for turn in turns] == [Ending.STOPPED] * 2


@pytest.mark.parametrize("function", [Rooms._take_over, Rooms._end])
def test_ctrl_c_while_turns_of_the_dead_are_looked_for_is_the_main_tasks(function: Any) -> None:
    notebook, caught = Notebook(), list[float]()
    notebook.left = [[], [notebook.orphan("a", "a-1")]]

    async def main() -> None:
        async with open_rooms(Far(), journal=notebook):
            with ctrl_c_in(code_of(function)) as hit:
                with pytest.raises(KeyboardInterrupt):
                    await trio.sleep(15)
            assert hit
            caught.append(trio.current_time())
            await trio.sleep(15)

    try:
        run(main)
    except KeyboardInterrupt:
        pytest.fail("it has ended the rooms")
    assert caught == [10]
    # Nor does it end the looking, or let go of what was found.
    assert [when for _, _, when in notebook.looks] == [0, 10, 20]
    assert ("a-1", "settled", Ending.STOPPED) in notebook.log


def test_ctrl_c_while_the_main_task_waits_for_its_room_leaves_the_queue() -> None:
    backend = Recorder()
    turns: list[Turn] = []

    async def main() -> None:
        async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
            nursery.start_soon(occupy, rooms.turn("a", "x"))
            await wait_all_tasks_blocked()

            async def interrupt() -> None:
                await trio.sleep(1)
                ctrl_c_of_the_main_task()

            nursery.start_soon(interrupt)
            turns.append(rooms.turn("a", "y"))
            try:
                async with turns[0]:
                    raise AssertionError("entered")
            finally:
                assert rooms.statistics().waiting == 0
                nursery.cancel_scope.cancel()

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(main)
    assert "KeyboardInterrupt" in repr(caught.value)
    assert turns[0].ending is Ending.UNSTARTED


@pytest.mark.parametrize("call", ["start", "follow", "cancel", "kill", "leftovers", "sweep"])
def test_adapter_code_is_not_protected_and_its_interrupt_leaves_open_rooms(call: str) -> None:
    acts: dict[str, Any] = {"cancel": Act(), "kill": ending(), "leftovers": Act(returns=["sh"])}
    act = acts.get(call, Act(returns=()) if call == "sweep" else Act())
    act.notify = ctrl_c
    acts[call] = act
    backend = Recorder(**acts)
    turns: list[Turn] = []

    async def main() -> None:
        async with open_rooms(backend, budget=StopBudget(2, 1)) as rooms:
            turns.append(rooms.turn("a", "x"))
            async with turns[0]:
                await trio.sleep(1)

    with pytest.raises(KeyboardInterrupt):
        run(main)
    assert turns[0].settlement is not None


def test_observers_are_not_protected() -> None:
    protected: list[bool] = []

    def observe(_: Settlement) -> None:
        protected.append(trio.lowlevel.currently_ki_protected())

    async def main() -> None:
        async with open_rooms(Recorder(), observers=[observe]) as rooms:
            async with rooms.turn("a", "x"):
                await wait_all_tasks_blocked()

    run(main)
    assert protected == [False]


@pytest.mark.parametrize(
    "function",
    [
        House.leave,
        Life._advance,
        Life._conclude,
        Life._settle,
        Life._note_end,
        Life.begin,
        House.door,
        Rooms._shut,
        Turn.note_settled,
    ],
)
def test_ctrl_c_in_any_step_of_the_kernel_leaves_it_whole(function: Any) -> None:
    backend = Recorder(cancel=hang(), kill=ending(takes=0.5), leftovers=Act(returns=["sh"]))
    turns: list[Turn] = []
    entered: list[float] = []

    async def second(rooms: Any) -> None:
        async with turns[1]:
            entered.append(trio.current_time())

    async def main() -> None:
        with ctrl_c_in(code_of(function)) as hit:
            try:
                async with open_rooms(backend, budget=StopBudget(2, 1)) as rooms:
                    async with trio.open_nursery() as nursery:
                        turns.extend(rooms.turn("a", "x") for _ in range(2))
                        async with turns[0]:
                            nursery.start_soon(second, rooms)
                            await trio.sleep(1)
            finally:
                assert len(hit) == 1

    with pytest.raises(BaseException) as caught:  # noqa: PT011
        run(main)
    assert "KeyboardInterrupt" in repr(caught.value)
    for turn in turns:
        assert turn.settlement is not None or turn.state == "new"
    if turns and turns[0].settlement is not None and turns[0].settlement.asked_at == 1:
        assert turns[0].settlement.settled_at == 3.5


async def test_adapter_code_and_observers_may_be_interrupted_and_kernel_code_may_not() -> None:
    seen: dict[str, bool] = {}

    def look(name: str) -> None:
        seen[name] = trio.lowlevel.currently_ki_protected()

    class Looking(Remote):
        async def follow(self, emit: Any) -> End:
            look("follow")
            await self._over.wait()
            return CANCELLED

        async def cancel(self, sent: Any) -> None:
            look("cancel")
            sent()

        async def kill(self) -> None:
            look("kill")
            self.finish(CANCELLED)

        async def leftovers(self) -> list[object]:
            look("leftovers")
            return ["one"]

        async def sweep(self, found: object) -> list[object]:
            look("sweep")
            return []

    class Backend:
        async def start(self, request: Request[Any]) -> Any:
            look("start")
            return Looking(Recorder(), request.turn_id, session="s")

        async def forget(self, session: object) -> None:
            look("forget")

    async with open_rooms(Backend(), observers=[lambda _: look("observer")]) as rooms:
        async with rooms.turn("a", "x"):
            await trio.sleep(1)
            look("body")
        await rooms.retire("a")
    names = [
        "start",
        "follow",
        "body",
        "cancel",
        "kill",
        "leftovers",
        "sweep",
        "observer",
        "forget",
    ]
    assert seen == dict.fromkeys(names, False)
