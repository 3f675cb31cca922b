"""Questions: a person answers, or the turn is over."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop import open_rooms
from turnstop.abc import End, Silenced
from turnstop.events import Ask

from .backend import COMPLETED, Act, Recorder, hang, occupy

ASK = Ask("1", "approval", "may it?", ("yes", "no"))


ASK = Ask("1", "approval", "may it?", ("yes", "no"))


class Asking(Recorder):
    """Its turn asks at 1, in a task beside the one that reads the terminal frame."""

    async def ask(self, emit: Any) -> None:
        try:
            self.log.append(("answered", str(await emit.ask(ASK)), trio.current_time()))
        except Silenced:
            self.log.append(("silenced", "", trio.current_time()))

    async def start(self, request: Any) -> Any:
        remote = self._reveal(request.turn_id)
        original = remote.follow

        async def follow(emit: Any) -> End:
            remote.emit = emit
            async with trio.open_nursery() as nursery:

                async def ask() -> None:
                    await trio.sleep(1)
                    await self.ask(emit)

                nursery.start_soon(ask)
                end: End = await original(emit)
                return end

        remote.follow = follow
        return remote


async def test_an_ask_waits_for_a_persons_answer() -> None:
    backend = Asking()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            ask = await turn.__anext__()
            assert ask == ASK
            assert isinstance(ask, Ask)
            await trio.sleep(4)
            assert turn.answer(ask, "yes") is True
            await wait_all_tasks_blocked()
            assert ("answered", "yes", 5) in backend.log
            # Nobody waits for it any more.
            assert turn.answer(ask, "no") is False


@pytest.mark.parametrize("way", ["stop", "end"])
async def test_an_ask_is_silenced_when_the_turn_is_stopped_or_over(way: str) -> None:
    backend = Asking(cancel=hang())
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        turn = rooms.turn("a", "x")
        nursery.start_soon(occupy, turn)
        await trio.sleep(3)
        if way == "stop":
            turn.stop()
        else:
            # The asks are open until the terminal frame has been followed to its end.
            backend.remote.finish(COMPLETED)
            turn.stop()
        await trio.sleep(1)
        assert ("silenced", "", 3) in backend.log
        assert turn.answer(ASK, "yes") is False


async def test_an_ask_of_a_turn_that_is_over_is_silenced_by_its_end() -> None:
    silenced = []
    backend = Recorder(follow=Act(takes=3, returns=COMPLETED))
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:

        async def serve() -> None:
            await trio.sleep(1)
            try:
                await backend.remote.emit.ask(ASK)  # type: ignore[union-attr]
            except Silenced:
                silenced.append(trio.current_time())

        async with rooms.turn("a", "x"):
            nursery.start_soon(serve)
            await trio.sleep(5)
    assert silenced == [3]


async def test_an_ask_after_the_stop_or_the_end_is_silenced_at_once_and_counted() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
        emit = backend.remote.emit
        assert emit is not None
        with pytest.raises(Silenced):
            await emit.ask(ASK)
        assert turn.answer(ASK, "yes") is False
        assert rooms.statistics().dropped == 1


async def test_a_stop_in_the_step_of_an_answer_comes_before_it() -> None:
    """An allowance that went out now would have a tool begun after the stop."""
    backend = Asking(cancel=hang())
    async with open_rooms(backend) as rooms:
        async with rooms.turn("a", "x") as turn:
            await trio.sleep(2)
            assert turn.answer(ASK, "yes") is True
            turn.stop()
            assert turn.answer(ASK, "no") is False
        assert [name for name, _, _ in backend.log if name in ("answered", "silenced")] == [
            "silenced"
        ]


async def test_an_ask_that_is_cancelled_is_withdrawn() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            emit = backend.remote.emit
            assert emit is not None
            with trio.move_on_after(1):
                await emit.ask(ASK)
            assert turn.answer(ASK, "yes") is False
            # And may be asked again.
            nursery.start_soon(emit.ask, ASK)
            await wait_all_tasks_blocked()
            assert turn.answer(ASK, "yes") is True
            await wait_all_tasks_blocked()


async def test_an_ask_whose_id_is_open_is_refused_and_the_first_stays_open() -> None:
    backend = Recorder()
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()
            emit = backend.remote.emit
            assert emit is not None
            nursery.start_soon(emit.ask, ASK)
            await wait_all_tasks_blocked()
            with pytest.raises(ValueError, match="'1'"):
                await emit.ask(ASK)
            assert await turn.__anext__() == ASK
            assert turn.answer(ASK, "yes") is True
            await wait_all_tasks_blocked()


async def test_two_asks_are_answered_apart() -> None:
    backend = Recorder()
    found = {}
    async with open_rooms(backend) as rooms, trio.open_nursery() as nursery:
        async with rooms.turn("a", "x") as turn:
            await wait_all_tasks_blocked()

            async def serve(ask: Ask) -> None:
                found[ask.id] = await backend.remote.emit.ask(ask)  # type: ignore[union-attr]

            one, two = Ask("1", "question", "a?"), Ask("2", "question", "b?")
            nursery.start_soon(serve, one)
            nursery.start_soon(serve, two)
            await wait_all_tasks_blocked()
            turn.answer(two, "second")
            turn.answer(one, "first")
            await wait_all_tasks_blocked()
    assert found == {"1": "first", "2": "second"}
