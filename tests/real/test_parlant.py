"""The adapter against the real Parlant engine, whose model waits where it is told to."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import pytest
import trio

import turnstop
from turnstop import Ending, Proof, Settlement, StopBudget
from turnstop.abc import Backend
from turnstop.events import Text

from .parlant_env import need_parlant

need_parlant()

from turnstop.adapters.parlant import open_parlant  # noqa: E402
from turnstop.lab.parlant import ParkedModel  # noqa: E402

PATIENCE = 60.0
# Parlant's own, and those of what it imports.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")

MOMENTS = ("hook", "matching", "preamble", "generation", "tool")
every_moment = pytest.mark.parametrize("moment", MOMENTS)


@attrs.frozen
class Kitchen:
    model: ParkedModel
    backend: Backend[str]
    rooms: turnstop.Rooms[str]

    async def ask(self, room: str, words: str) -> tuple[str, turnstop.Turn]:
        """A turn to its end: what it said."""
        _, message = self.model.write(words)
        said = ""
        async with self.rooms.turn(room, message) as turn:
            async for event in turn:
                said += event.delta if isinstance(event, Text) else ""
        return said, turn

    async def stop(self, room: str, moment: str) -> tuple[str, Settlement]:
        """A turn that is stopped where it waits."""
        token, message = self.model.write(f"park {moment}")
        async with self.rooms.turn(room, message) as turn:
            await self.model.parked(token)
            turn.stop()
        assert turn.settlement is not None
        return token, turn.settlement

    async def expect_answer(self, room: str) -> None:
        token, message = self.model.write("answer")
        async with self.rooms.turn(room, message) as turn:
            texts = [event.delta async for event in turn if isinstance(event, Text)]
        assert "".join(texts) == f"answer to {token}"
        assert turn.settlement.ending is Ending.FINISHED


@asynccontextmanager
async def open_kitchen(
    budget: StopBudget | None = None, *, thread: bool = False
) -> AsyncGenerator[Kitchen, None]:
    model = ParkedModel()
    with trio.fail_after(PATIENCE):
        async with open_parlant(model.prepare, thread=thread, **model.options()) as backend:
            async with turnstop.open_rooms(backend, budget=budget or StopBudget(10, 2)) as rooms:
                yield Kitchen(model, backend, rooms)
                # What was to be stopped has ended by itself by now, or has to.
                model.linger(0.0)
                for piece in model.pieces:
                    model.release(piece.token)


def ended_at(model: ParkedModel, token: str, what: str) -> float:
    (piece,) = [one for one in model.work(token) if one.what == what]
    assert piece.ended_at is not None
    return piece.ended_at


async def test_a_turn_is_answered_and_the_next_one_too() -> None:
    async with open_kitchen() as kitchen:
        said, turn = await kitchen.ask("a", "greet")
        assert said.startswith("on it: ")
        assert "answer to " in said
        assert (turn.settlement.ending, turn.settlement.proof) == (Ending.FINISHED, Proof.EVENT)
        await kitchen.expect_answer("a")
        said, turn = await kitchen.ask("a", "mute")
        assert said == ""
        assert turn.settlement.ending is Ending.FINISHED


@every_moment
async def test_a_stop_ends_all_of_its_turn_and_nothing_else(moment: str) -> None:
    async with open_kitchen() as kitchen, trio.open_nursery() as nursery:
        model = kitchen.model
        neighbour, message = model.write(f"park {moment}")

        async def live_next_door() -> None:
            async with kitchen.rooms.turn("next door", message) as turn:
                async for _ in turn:
                    pass
            assert turn.settlement.ending is Ending.FINISHED

        nursery.start_soon(live_next_door)
        await model.parked(neighbour)
        # What only watches over the preamble ends by itself.
        await trio.sleep(0.3)
        theirs = model.alive(neighbour)
        assert theirs
        token, settlement = await kitchen.stop("a", moment)
        assert model.alive(token) == []
        assert (settlement.ending, settlement.gone) == (Ending.STOPPED, True)
        assert settlement.survivors == ()
        assert settlement.errors == ()
        assert len(model.told(token)) == 1
        assert model.alive(neighbour) == theirs
        assert model.told(neighbour) == []
        await kitchen.expect_answer("a")
        model.release(neighbour)


async def test_the_preamble_is_ended_after_what_has_started_it() -> None:
    async with open_kitchen() as kitchen:
        token, settlement = await kitchen.stop("a", "preamble")
        process = ended_at(kitchen.model, token, "process")
        preamble = ended_at(kitchen.model, token, "preamble")
        assert settlement.asked_at <= process <= preamble <= settlement.settled_at


async def test_a_message_that_is_being_emitted_is_emitted_and_the_turn_finished() -> None:
    async with open_kitchen() as kitchen, trio.open_nursery() as nursery:
        model = kitchen.model
        token, message = model.write("park emission")

        async def go_on() -> None:
            await trio.sleep(0.3)
            assert model.alive(token)
            model.order(token, "end")

        async with kitchen.rooms.turn("a", message) as turn:
            await model.parked(token)
            nursery.start_soon(go_on)
            turn.stop()
        assert (turn.settlement.ending, turn.settlement.gone) == (Ending.FINISHED, True)
        assert turn.settlement.settled_at - turn.settlement.asked_at > 0.25
        assert model.alive(token) == []
        assert model.told(token) == []
        await kitchen.expect_answer("a")


async def test_timeouts_are_stops_and_leave_no_tasks() -> None:
    async with open_kitchen() as kitchen:
        await kitchen.expect_answer("a")
        before = kitchen.backend.aio.statistics()
        for number in range(5):
            for moment in MOMENTS:
                token, message = kitchen.model.write(f"park {moment}")
                with trio.move_on_after(0.25) as timeout:
                    async with kitchen.rooms.turn(f"room {number}", message) as turn:
                        async for _ in turn:
                            pass
                assert timeout.cancelled_caught
                assert turn.settlement.ending is Ending.STOPPED
                assert kitchen.model.alive(token) == []
        after = kitchen.backend.aio.statistics()
        assert (after.turns, after.abandoned, after.errors) == (0, 0, 0)
        assert after.tasks <= before.tasks + 2  # the tool server keeps its connections


async def test_a_stop_while_it_starts_is_never_lost() -> None:
    async with open_kitchen() as kitchen:
        for delay in (0.0, 0.001, 0.002, 0.004, 0.008, 0.016):
            token, message = kitchen.model.write("park preamble")
            async with kitchen.rooms.turn("a", message) as turn:
                await trio.sleep(delay)
                turn.stop()
            assert turn.settlement.ending in (Ending.STOPPED, Ending.UNSTARTED)
            assert kitchen.model.alive(token) == []
            if turn.settlement.ending is Ending.UNSTARTED:
                assert kitchen.model.work(token) == []
            await kitchen.expect_answer("a")


@pytest.mark.parametrize("moment", ["hook", "preamble"])
async def test_what_refuses_to_end_is_named_and_never_called_gone(moment: str) -> None:
    async with open_kitchen(StopBudget(0.3, 0.2)) as kitchen:
        model = kitchen.model
        model.linger(None)
        token, settlement = await kitchen.stop("a", moment)
        assert model.alive(token)
        assert not settlement.clean
        assert not settlement.gone
        assert settlement.ending is Ending.UNCONFIRMED
        assert settlement.survivors
        assert settlement.settled_at - settlement.asked_at < 0.9
        model.linger(0.0)
        await kitchen.expect_answer("a")
        assert len({model.session(one.token) for one in model.pieces}) == 2
        model.release(token)


async def test_a_tool_that_refuses_to_end_is_named_as_left() -> None:
    async with open_kitchen(StopBudget(0.3, 0.2)) as kitchen:
        kitchen.model.linger(None)
        token, settlement = await kitchen.stop("a", "tool")
        assert kitchen.model.alive(token) == ["bake"]
        assert (settlement.ending, settlement.clean) == (Ending.STOPPED, False)
        assert any("bake" in named for named in settlement.survivors)
        kitchen.model.linger(0.0)
        await kitchen.expect_answer("a")
        kitchen.model.release(token)


async def test_a_failure_is_raised_in_its_block_and_leaves_nothing() -> None:
    async with open_kitchen() as kitchen:
        with pytest.raises(turnstop.BackendError, match="no flour left"):
            await kitchen.ask("a", "fail")
        await kitchen.expect_answer("a")
        assert [kitchen.model.alive(one.token) for one in kitchen.model.pieces] == [[], []]


async def test_an_application_that_is_cancelled_ends_its_turns() -> None:
    async with open_kitchen() as kitchen:
        tokens = {}
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:

                async def live(moment: str) -> None:
                    tokens[moment], message = kitchen.model.write(f"park {moment}")
                    async with kitchen.rooms.turn(moment, message) as turn:
                        async for _ in turn:
                            pass

                for moment in MOMENTS:
                    nursery.start_soon(live, moment)
                await kitchen.model.until(lambda: len(tokens) == len(MOMENTS))
                for token in tokens.values():
                    await kitchen.model.parked(token)
                scope.cancel()
        for token in tokens.values():
            assert kitchen.model.alive(token) == []


async def test_another_message_in_its_session_fails_a_turn_and_is_left_alone() -> None:
    from parlant.core.app_modules.sessions import Moderation
    from parlant.core.application import Application
    from parlant.core.sessions import EventSource

    async with open_kitchen() as kitchen:
        model, backend = kitchen.model, kitchen.backend
        sessions = backend.engine.server.container[Application].sessions
        token, message = model.write("park preamble")
        others, other_message = model.write("park preamble")

        async def send() -> None:
            await sessions.create_customer_message(
                session_id=model.session(token),
                moderation=Moderation.NONE,
                message=other_message,
                source=EventSource.CUSTOMER,
                trigger_processing=True,
                metadata=None,
            )

        with pytest.raises(turnstop.BackendLost, match="another message came"):
            async with kitchen.rooms.turn("a", message) as turn:
                await model.parked(token)
                await backend.aio.call_unowned(send)
                async for _ in turn:
                    pass
        await model.parked(others)
        assert model.alive(token) == []
        assert "SessionModule._process_session" in model.alive(others)
        model.release(others)
        await model.gone(others)
        await kitchen.expect_answer("a")


@pytest.mark.parametrize("which", ["port", "tool_service_port"])
async def test_a_port_that_is_taken_is_said_and_harms_nobody(which: str) -> None:
    model = ParkedModel()
    options = model.options()
    with socket.socket() as taken, trio.fail_after(PATIENCE):
        taken.bind(("127.0.0.1", options[which]))
        taken.listen()
        with pytest.raises(turnstop.BackendRefused, match="a port that is taken"):
            async with open_parlant(model.prepare, **options):
                pytest.fail("it cannot have come up")
    async with open_kitchen() as kitchen:
        await kitchen.expect_answer("a")


CTRL_C = """import os, signal, threading, trio, turnstop
from turnstop.adapters.parlant import open_parlant
from turnstop.lab.parlant import ParkedModel

async def main():
    model = ParkedModel()
    async with open_parlant(model.prepare, **model.options()) as parlant:
        async with turnstop.open_rooms(parlant) as rooms:
            token, message = model.write("park preamble")
            try:
                async with rooms.turn("a", message) as turn:
                    await model.parked(token)
                    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
                    async for event in turn:
                        pass
            finally:
                print("turn:", turn.settlement.ending.value, model.alive(token), flush=True)

trio.run(main)
"""


def test_ctrl_c_stops_the_turns_first_and_then_ends_the_program() -> None:
    command = [sys.executable, "-W", "ignore", "-c", CTRL_C]
    done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE)
    assert "turn: stopped []" in done.stdout
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
    assert done.returncode != 0


async def test_on_a_loop_in_a_thread_of_its_own_it_is_the_same() -> None:
    async with open_kitchen(thread=True) as kitchen:
        for moment in MOMENTS:
            token, settlement = await kitchen.stop("a", moment)
            assert kitchen.model.alive(token) == []
            assert settlement.ending is Ending.STOPPED
        await kitchen.expect_answer("a")
