"""The adapter against a real a2a-sdk server, in a process of its own."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
import trio

import turnstop
from turnstop import Ending, Proof, StopBudget
from turnstop.abc import End, How, RemoteTurn, Request
from turnstop.events import Event, Text
from turnstop.lab import MissingProgram
from turnstop.lab.a2a import A2AServer, open_a2a_server

from . import REQUIRED

try:
    import httpx

    from turnstop.adapters.a2a import A2ASession, open_a2a
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

PATIENCE = 30.0
STREAMING, POLLING, PLAIN = "streaming", "polling", "plain"
KINDS = {
    STREAMING: {},
    POLLING: {"streaming": False},
    PLAIN: {"streaming": False, "blocking": True},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


@asynccontextmanager
async def open_server(kind: str = STREAMING) -> AsyncGenerator[A2AServer, None]:
    with trio.fail_after(4 * PATIENCE):
        try:
            async with open_a2a_server(**KINDS[kind]) as server:
                yield server
        except MissingProgram as missing:
            if REQUIRED:
                raise
            pytest.skip(str(missing))


@asynccontextmanager
async def open_all(
    kind: str = STREAMING, budget: StopBudget | None = None, **options: float
) -> AsyncGenerator[tuple[A2AServer, turnstop.Rooms[str]], None]:
    async with open_server(kind) as server, open_a2a(server.url, **options) as agent:
        async with turnstop.open_rooms(agent, budget=budget or StopBudget(10.0, 2.0)) as rooms:
            yield server, rooms


async def ask(rooms: turnstop.Rooms[str], room: str, content: str) -> tuple[str, turnstop.Turn]:
    said = ""
    async with rooms.turn(room, content) as turn:
        async for event in turn:
            said += event.delta if isinstance(event, Text) else ""
    return said, turn


async def read(
    turn: turnstop.Turn, server: A2AServer, disturb: Callable[[], Awaitable[None] | None]
) -> None:
    async with turn:
        await server.began("one")
        if (disturbed := disturb()) is not None:
            await disturbed
        async for _ in turn:
            pass


@every_kind
async def test_a_turn_is_answered(kind: str) -> None:
    async with open_all(kind) as (_, rooms):
        said, turn = await ask(rooms, "a", "stream token=one seconds=0.01 count=4")
    assert said == "piece 0 piece 1 piece 2 piece 3 "
    assert turn.settlement.ending is Ending.FINISHED
    assert turn.settlement.proof is (Proof.STREAM if kind == STREAMING else Proof.CLAIMED)


@every_kind
async def test_a_stop_while_it_starts_is_never_lost(kind: str) -> None:
    async with open_all(kind) as (server, rooms):
        for delay in (0.0, 0.001, 0.003, 0.006, 0.012):
            token = f"s{delay * 1000:.0f}"
            async with rooms.turn("a", f"park token={token}") as turn:
                await trio.sleep(delay)
            settled = turn.settlement
            told_a_lie = settled.gone and server.alive(token)
            said, _ = await ask(rooms, "a", f"answer token=after-{token}")
            with trio.fail_after(PATIENCE):
                await server.gone(token)
            assert not told_a_lie
            assert said == f"answer to after-{token}"
            if settled.ending is Ending.UNSTARTED:
                assert not server.work(token)
            else:
                assert settled.ending is (
                    Ending.STOPPED if kind == STREAMING else Ending.UNCONFIRMED
                )
                assert len(server.told(token)) == 1


@every_kind
async def test_a_stop_while_it_runs_ends_that_room_only(kind: str) -> None:
    async with open_all(kind) as (server, rooms), trio.open_nursery() as nursery:

        async def stop(number: int) -> None:
            async with rooms.turn(f"room {number}", f"park token={number}") as turn:
                await server.began(str(number))
            assert turn.settlement.gone is (kind == STREAMING)
            with trio.fail_after(PATIENCE):
                await server.gone(str(number))

        async with rooms.turn("other", "park token=other") as other:
            await server.began("other")
            async with trio.open_nursery() as stoppers:
                for number in range(4):
                    stoppers.start_soon(stop, number)
            assert server.alive("other")
            assert other.settlement is None
            assert not server.told("other")
        await server.gone("other")
        nursery.cancel_scope.cancel()


@every_kind
async def test_no_settlement_says_gone_while_the_executor_works(kind: str) -> None:
    async with open_all(kind) as (server, rooms):
        for mode in ("swallow", "late"):
            async with rooms.turn("a", f"{mode} token={mode} seconds=0.6") as turn:
                await server.began(mode)
            alive = server.alive(mode)
            await server.gone(mode)
            (work,) = server.work(mode)
            settled = turn.settlement
            assert settled.settled_at is not None
            assert work.ended_at is not None
            if kind == STREAMING:
                assert (settled.ending, settled.proof) == (Ending.STOPPED, Proof.STREAM)
                assert not alive
                assert settled.acked_at < work.ended_at < settled.settled_at
            else:
                assert (settled.ending, settled.proof) == (Ending.UNCONFIRMED, Proof.CLAIMED)
                assert alive
                assert not settled.gone


async def test_a_failure_is_settled_when_the_work_has_ended() -> None:
    async with open_all() as (server, rooms):
        turn = rooms.turn("a", "linger token=one seconds=0.5")
        with pytest.raises(turnstop.BackendError, match="no flour left"):
            await read(turn, server, lambda: None)
        assert not server.alive("one")
    assert (turn.settlement.ending, turn.settlement.proof) == (Ending.FAILED, Proof.STREAM)


async def test_an_agent_that_breaks_its_protocol_is_not_called_gone() -> None:
    async with open_all() as (server, rooms):
        turn = rooms.turn("a", "muddle token=one seconds=0.5")
        with pytest.raises(turnstop.BackendMisbehaved, match="its work may go on"):
            await read(turn, server, lambda: None)
        assert server.alive("one")
        assert not turn.settlement.gone


async def test_an_executor_that_outlives_the_budget_is_unconfirmed() -> None:
    async with open_all(budget=StopBudget(0.4, 0.2)) as (server, rooms):
        async with rooms.turn("a", "swallow token=one seconds=2") as turn:
            await server.began("one")
        assert turn.settlement.ending is Ending.UNCONFIRMED
        assert server.alive("one")
        said, _ = await ask(rooms, "a", "answer token=two")
        assert said == "answer to two"


@every_kind
async def test_a_task_that_asks_is_continued_by_the_next_turn(kind: str) -> None:
    async with open_server(kind) as server, open_a2a(server.url) as agent:
        first = await agent.start(Request("a", "1", "ask token=one"))
        end = await first.follow(Heard())
        assert end.how is How.COMPLETED
        assert isinstance(first.session, A2ASession)
        assert first.session.task_id in str(first.session)

        heard = Heard()
        second = await agent.start(Request("a", "2", "answer token=two", first.session))
        assert (await second.follow(heard)).how is How.COMPLETED
        assert heard.text == "answer to two"
        assert second.session == A2ASession(first.session.context_id)


@every_kind
async def test_a_continued_task_is_stopped_and_never_continued(kind: str) -> None:
    async with open_all(kind) as (server, rooms):
        await ask(rooms, "a", "ask token=one")
        async with rooms.turn("a", "park token=two") as turn:
            await server.began("two")
        await server.gone("two")
        assert turn.settlement.ending in (Ending.STOPPED, Ending.UNCONFIRMED)
        said, _ = await ask(rooms, "a", "answer token=three")
        assert said == "answer to three"


async def test_a_waiting_task_that_is_over_is_begun_anew_and_not_stuck() -> None:
    async with open_server() as server, open_a2a(server.url) as agent:
        first = await agent.start(Request("a", "1", "ask token=one"))
        await first.follow(Heard())
        await agent.forget(first.session)
        second = await agent.start(Request("a", "2", "answer token=two", first.session))
        heard = Heard()
        assert (await second.follow(heard)).how is How.COMPLETED
        assert heard.text == "answer to two"


@every_kind
async def test_cancelling_what_is_over_or_unknown(kind: str) -> None:
    async with open_server(kind) as server, open_a2a(server.url) as agent:
        done = await agent.start(Request("a", "1", "answer token=one"))
        await done.follow(Heard())
        await done.cancel(lambda: None)
        parked = await agent.start(Request("b", "2", "park token=two"))
        await server.began("two")
        sent: list[float] = []
        end = await follow_and_cancel(parked, sent)
        assert end.how is How.CANCELLED
        assert sent
        await parked.cancel(lambda: None)
        await agent.forget(A2ASession("nowhere", "no such task"))
        assert len(server.told("two")) == 1
        assert not server.told("one")


@every_kind
async def test_a_message_without_a_task_finishes_though_it_was_stopped(kind: str) -> None:
    async with open_all(kind) as (server, rooms):
        async with rooms.turn("a", "message token=one seconds=0.3") as turn:
            await server.began("one")
    assert turn.settlement.ending is Ending.FINISHED
    assert turn.settlement.gone


@every_kind
async def test_what_is_never_published_cannot_be_stopped_and_is_not_called_gone(kind: str) -> None:
    async with open_all(kind, StopBudget(0.3, 0.2)) as (server, rooms):
        async with rooms.turn("a", "unpublished token=one seconds=1.5") as turn:
            await server.began("one")
        assert turn.settlement.ending is Ending.UNCONFIRMED
        assert not turn.settlement.gone
        said, _ = await ask(rooms, "a", "answer token=two")
        assert said == "answer to two"


@every_kind
async def test_a_failure_is_raised_in_its_block(kind: str) -> None:
    async with open_all(kind) as (_, rooms):
        for content, text in (("fail token=one", "no flour"), ("crash token=one", "exploded")):
            with pytest.raises(turnstop.BackendError) as caught:
                await ask(rooms, "a", content)
            if (kind, text) != (POLLING, "exploded"):  # there the state comes without a word
                assert text in str(caught.value)
            said, _ = await ask(rooms, "a", "answer token=two")
            assert said == "answer to two"


NONSENSE = [
    ("status token=one", turnstop.BackendMisbehaved, "HTTP 500: the kitchen is on fire"),
    ("garbage token=one", turnstop.BackendMisbehaved, "no A2A agent answers"),
    ("silence token=one", turnstop.BackendLost, "said nothing for too long"),
]


@every_kind
async def test_nonsense_is_an_error_in_the_block_that_asked(kind: str) -> None:
    async with open_all(kind, StopBudget(0.5, 0.2), read_gap=1.0) as (_, rooms):
        for content, error, text in NONSENSE:
            with pytest.raises(error, match=text):
                await ask(rooms, "a", content)
            said, _ = await ask(rooms, "b", "answer token=two")
            assert said == "answer to two"


@every_kind
async def test_a_stop_of_a_silent_agent_raises_nothing(kind: str) -> None:
    async with open_all(kind, StopBudget(0.5, 0.2)) as (_, rooms):
        async with rooms.turn("a", "silence token=one") as turn:
            await trio.sleep(0.1)
        assert turn.settlement.ending is Ending.UNCONFIRMED


@every_kind
async def test_an_agent_that_dies_fails_its_turns_and_nothing_else(kind: str) -> None:
    async with open_all(kind, StopBudget(0.5, 0.2)) as (server, rooms):
        turn = rooms.turn("a", "park token=one")
        with pytest.raises(turnstop.BackendLost, match=r"look at the agent|start the agent"):
            await read(turn, server, server.kill)
        # Refused, unless a connection that was kept open says it later than a new one would.
        with pytest.raises((turnstop.BackendRefused, turnstop.BackendLost), match="the agent"):
            await ask(rooms, "b", "answer token=two")
        assert not turn.settlement.gone


async def test_an_agent_that_is_down_is_said_at_once() -> None:
    async with open_server() as server:
        url = server.url
        await server.kill()
        with pytest.raises(turnstop.BackendRefused, match="start the agent, or correct the url"):
            async with open_a2a(url):
                pytest.fail("nobody is there")


async def test_a_frozen_agent_is_lost_and_its_stop_is_bounded() -> None:
    async with open_all(budget=StopBudget(0.5, 0.2), read_gap=0.4) as (server, rooms):
        turn = rooms.turn("a", "park token=one")
        with pytest.raises(turnstop.BackendLost):
            await read(turn, server, server.freeze)
        assert turn.settlement.ending is Ending.FAILED
        assert not turn.settlement.gone


async def test_a_broken_connection_is_taken_up_again() -> None:
    breaks = Breaks(chunks=4)
    async with open_server() as server, open_a2a(server.url, transport=breaks) as agent:
        async with turnstop.open_rooms(agent) as rooms:
            said, turn = await ask(rooms, "a", "stream token=one seconds=0.05 count=8")
    assert said == "".join(f"piece {number} " for number in range(8))
    assert turn.settlement.ending is Ending.FINISHED
    assert breaks.chunks is None


async def test_a_turn_whose_connection_broke_is_stopped_all_the_same() -> None:
    breaks = Breaks(chunks=2)
    async with open_server() as server, open_a2a(server.url, transport=breaks) as agent:
        async with turnstop.open_rooms(agent) as rooms:
            async with rooms.turn("a", "swallow token=one seconds=0.3") as turn:
                await server.began("one")
                await trio.sleep(0.2)
            assert not server.alive("one")
    assert (turn.settlement.ending, turn.settlement.proof) == (Ending.STOPPED, Proof.STREAM)


async def test_a_connection_that_breaks_after_canceled_proves_nothing() -> None:
    breaks = Breaks(chunks=3)
    async with open_server() as server, open_a2a(server.url, transport=breaks) as agent:
        async with turnstop.open_rooms(agent) as rooms:
            async with rooms.turn("a", "swallow token=one seconds=0.5") as turn:
                await server.began("one")
            assert server.alive("one")
    assert (turn.settlement.ending, turn.settlement.proof) == (Ending.UNCONFIRMED, Proof.CLAIMED)


async def test_an_application_that_is_cancelled_ends_its_turns() -> None:
    async with open_server() as server:
        with trio.CancelScope() as scope:
            async with open_a2a(server.url) as agent, turnstop.open_rooms(agent) as rooms:
                async with rooms.turn("a", "park token=one") as turn:
                    await server.began("one")
                    scope.cancel()
                    await trio.sleep_forever()
        assert turn.settlement.ending is Ending.STOPPED
        assert not server.alive("one")


class Heard:
    """An `Emit` that keeps what it is given."""

    def __init__(self) -> None:
        self.text = ""

    def __call__(self, event: Event, /) -> None:
        self.text += event.delta if isinstance(event, Text) else ""

    async def ask(self, ask: object, /) -> object:
        raise AssertionError(f"A2A asks nothing inside a turn: {ask}")


async def follow_and_cancel(turn: RemoteTurn, sent: list[float]) -> End:
    async with trio.open_nursery() as nursery:
        nursery.start_soon(turn.cancel, lambda: sent.append(trio.current_time()))
        return await turn.follow(Heard())
    raise AssertionError("unreachable")


class Breaks(httpx.AsyncBaseTransport):
    """The real transport; the connection of the next message's stream breaks after some chunks."""

    def __init__(self, chunks: int) -> None:
        self.chunks: int | None = chunks
        self._real = httpx.AsyncHTTPTransport()

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        response = await self._real.handle_async_request(request)
        if self.chunks and b"SendStreamingMessage" in request.content:
            response.stream = Broken(response, self.chunks)
            self.chunks = None
        return response

    async def aclose(self) -> None:
        await self._real.aclose()


class Broken(httpx.AsyncByteStream):
    def __init__(self, response: httpx.Response, chunks: int) -> None:
        assert isinstance(response.stream, httpx.AsyncByteStream)
        self._stream = response.stream
        self._network = response.extensions["network_stream"]
        self._chunks = chunks

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        async for chunk in self._stream:
            yield chunk
            self._chunks -= 1
            if self._chunks == 0:
                await self._network.aclose()

    async def aclose(self) -> None:
        await self._stream.aclose()
