"""What `letta` does with turns of a process that is gone, against a recording server."""

from __future__ import annotations

import json
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, wait_all_tasks_blocked

import turnstop
from turnstop import BackendLost, BackendRefused, Ending, Proof, Settlement
from turnstop._house import Orphan
from turnstop.abc import RemoteTurn, Request
from turnstop.events import Ask
from turnstop.testing import Work

try:
    import httpx

    from turnstop.adapters.letta import LettaSession, open_letta
    from turnstop.adapters.letta._address import Address
    from turnstop.testing.recording.letta import URL, RecordingLetta
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

BUDGET = turnstop.StopBudget(6.0, 1.0)
AGENT = "agent-1"
MARK = "x-api-request-log-id"


@attrs.define(eq=False)
class Entry:
    notes: list[Any] = attrs.field(factory=list)
    saves: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    def note_address(self, address: str) -> None:
        self.notes.append(Address.parse(address))

    def note_asked(self, request: Any) -> None:
        self.notes.append("asked")

    def note_settled(self, settlement: Settlement) -> None:
        self.notes.append(settlement)

    async def saved(self) -> None:
        await self.saves()


@attrs.define(eq=False)
class Journal:
    """A journal of one turn that was left, and of those that follow."""

    left: str | None = None
    entries: list[Entry] = attrs.field(factory=list)
    saves: Callable[[], Awaitable[None]] = trio.lowlevel.checkpoint

    def admit(self, backend: str, room: str, turn_id: str) -> Entry:
        self.entries.append(Entry(saves=self.saves))
        return self.entries[-1]

    async def take_over(self, backend: str, *, again: bool = False) -> Sequence[Orphan]:
        if self.left is None or again:
            return []
        return [Orphan("kitchen", "left", self.left, self.admit("", "", ""))]


@attrs.define(eq=False)
class World:
    server: RecordingLetta
    nursery: trio.Nursery
    options: dict[str, Any]
    journal: Journal = attrs.field(factory=Journal)

    def open(self) -> Any:
        return open_letta(URL, agent_id=AGENT, transport=self.server, **self.options)

    def sent(self, last: str) -> list[Any]:
        return [body for _, path, body in self.server.calls if path.endswith(f"/{last}")]

    def deleted(self) -> list[str]:
        return [path for method, path, _ in self.server.calls if method == "DELETE"]

    async def leave(self, session: object = None) -> tuple[RemoteTurn, Work, list[Address]]:
        """A turn that was begun, and that nobody follows."""
        said: list[Address] = []

        async def announce(address: str) -> None:
            said.append(Address.parse(address))
            assert self.sent("messages") == before

        backend = await self._owner()
        before = self.sent("messages")
        request = Request("kitchen", "left", "bake", session, announce=announce)
        return await backend.start(request), self.server.works[-1], said

    async def _owner(self) -> Any:
        async def own(task_status: trio.TaskStatus[Any]) -> None:
            async with self.open() as backend:
                task_status.started(backend)
                await trio.sleep_forever()

        return await self.nursery.start(own)

    async def answered(self, session: object = None) -> LettaSession:
        """A turn of the owner that ended: what the next one continues."""
        remote, work, _ = await self.leave(session)
        self.server.end(work)
        await remote.follow(Unheard())
        assert isinstance(remote.session, LettaSession)
        return remote.session

    async def recover(
        self,
        address: Address | str,
        after: Callable[[turnstop.Rooms[Any]], Awaitable[None]] | None = None,
    ) -> Settlement:
        """What becomes of a turn that was left, when the next process opens."""
        self.journal, found = Journal(str(address)), list[Settlement]()
        async with (
            self.open() as backend,
            turnstop.open_rooms(
                backend, budget=BUDGET, journal=self.journal, observers=[found.append]
            ) as rooms,
        ):
            await until(lambda: found)
            if after is not None:
                await after(rooms)
        assert found[0].request is not None
        assert found[0].request.kind == "recovery"
        assert self.journal.entries[0].notes[-1] is found[0]
        return found[0]

    async def goes_on(self, rooms: turnstop.Rooms[Any]) -> None:
        """The room's next turn answers."""
        number = len(self.server.works)
        async with rooms.turn("kitchen", "next") as turn:
            await until(lambda: len(self.server.works) > number)
            self.server.end(self.server.works[-1])
            async for _ in turn:
                pass
        assert turn.ending is Ending.FINISHED


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await trio.sleep(0.01)


class Unheard:
    def __call__(self, event: object) -> None:
        pass

    async def ask(self, ask: Ask) -> object:
        return await trio.sleep_forever()


@asynccontextmanager
async def open_world(**options: Any) -> AsyncGenerator[World, None]:
    async with trio.open_nursery() as nursery:
        server = RecordingLetta(nursery)
        yield World(server, nursery, options)
        nursery.cancel_scope.cancel()


def told(settlement: Settlement) -> tuple[Ending, Proof | None, bool]:
    return settlement.ending, settlement.proof, settlement.gone


# What is told of a turn before and after it has begun.


async def test_where_a_turn_goes_is_told_before_it_is_sent(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        remote, work, (said,) = await world.leave()
        assert said == Address(AGENT, "conv-1", "made", said.mark, "", "")
        assert Address.parse(remote.address) == attrs.evolve(said, run_id=work.name)
        session = remote.session
        world.server.end(work)
        await remote.follow(Unheard())
        _, _, (second,) = await world.leave(session)
        assert second == Address(AGENT, "conv-1", "room", second.mark, work.name, "")
        assert second.mark != said.mark


async def test_the_server_is_told_the_mark(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        heard, handle = [], world.server.handle_async_request

        async def tapped(request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/messages"):
                heard.append(request.headers.get(MARK))
            return await handle(request)

        world.server.handle_async_request = tapped  # type: ignore[method-assign]
        _, _, (said,) = await world.leave()
        assert heard == [said.mark]


async def test_what_is_stopped_while_it_is_announced_is_not_sent(
    autojump_clock: MockClock,
) -> None:
    async def refuse(address: str) -> None:
        raise BackendRefused("stopped")

    async with open_world() as world, world.open() as backend:
        with pytest.raises(BackendRefused, match="stopped"):
            await backend.start(Request("kitchen", "1", "bake", announce=refuse))
        await wait_all_tasks_blocked()
        assert world.server.works == []
        assert world.deleted() == ["/v1/conversations/conv-1"]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        (URL, "letta http://letta.test"),
        ("http://cook:s3cret@letta.test/", "letta http://letta.test"),
    ],
)
async def test_its_name_says_where_it_is_and_no_password(
    url: str, name: str, autojump_clock: MockClock
) -> None:
    async with trio.open_nursery() as nursery:
        async with open_letta(url, agent_id=AGENT, transport=RecordingLetta(nursery)) as backend:
            assert getattr(backend, "name", None) == name
            assert getattr(backend, "announces", None) is True


# A run that goes on.


@pytest.mark.parametrize("known", [True, False], ids=["its name is known", "it is not"])
@pytest.mark.parametrize("conversations", [True, False], ids=["conversation", "agent"])
async def test_a_run_that_was_left_is_cancelled_and_its_room_goes_on(
    known: bool, conversations: bool, autojump_clock: MockClock
) -> None:
    async with open_world(conversations=conversations) as world:
        world.server.ends_after, world.server.drops_after = 0.3, 0.4
        remote, work, (said,) = await world.leave()
        settlement = await world.recover(remote.address if known else said, world.goes_on)
        assert told(settlement) == (Ending.STOPPED, Proof.EVENT, True)
        assert settlement.errors == ()
        assert settlement.sent_at is not None
        assert work.ended_at is not None
        assert settlement.settled_at >= work.ended_at
        assert world.sent("cancel") == [{"run_ids": [work.name]}]
        # What comes after it is of the next turn.
        assert world.journal.entries[1].notes[0].since == work.name
        where = "conv-1" if conversations else AGENT
        assert [one.session for one in world.server.works] == [where, where]


async def test_a_run_that_comes_late_is_found(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        remote, _, (said,) = await world.leave()
        world.server.end(world.server.works[0])
        await remote.follow(Unheard())
        world.server.arrives_after = 0.9
        late = attrs.evolve(said, place="room", mark="m", since=world.server.works[0].name)
        world.nursery.start_soon(send, world.server, "conv-1", "m")
        settlement = await world.recover(late)
        assert told(settlement) == (Ending.STOPPED, Proof.EVENT, True)
        assert not world.server.works[1].runs
        assert world.deleted() == []


async def send(server: RecordingLetta, conversation: str, mark: str) -> httpx.Response:
    """The message of a process that is gone."""
    url = f"{URL}/v1/conversations/{conversation}/messages"
    body = {"messages": [{"role": "user", "content": "late"}]}
    headers = {"x-stainless-package-version": "1.12.1", MARK: mark}
    return await server.handle_async_request(httpx.Request("POST", url, json=body, headers=headers))


async def test_of_a_room_only_what_came_after_is_touched(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        session = await world.answered()
        _, work, (said,) = await world.leave(session)
        assert told(await world.recover(said))[0] is Ending.STOPPED
        assert world.sent("cancel") == [{"run_ids": [work.name]}]
        assert world.server.works[0].told_at == []


async def test_in_a_history_that_is_shared_the_mark_alone_tells(
    autojump_clock: MockClock,
) -> None:
    async with open_world(conversations=False) as world:
        _, other, (theirs,) = await world.leave()
        mine = attrs.evolve(theirs, mark="mine")
        settlement = await world.recover(mine)
        assert told(settlement) == (Ending.UNCONFIRMED, None, False)
        assert other.runs
        assert other.told_at == []


async def test_in_a_room_a_stranger_with_a_mark_of_its_own_is_none_of_its_runs(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        session = await world.answered()
        _, other, (theirs,) = await world.leave(session)
        settlement = await world.recover(attrs.evolve(theirs, mark="mine"))
        assert told(settlement) == (Ending.UNCONFIRMED, None, False)
        assert other.told_at == []


async def test_a_server_that_keeps_no_marks_is_believed_the_order(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.server.locks = False
        session = await world.answered()
        _, work, (said,) = await world.leave(session)
        _, later, _ = await world.leave(session)
        for one in world.server.works:
            world.server.run_of(one).mark = None
        assert told(await world.recover(said))[0] is Ending.STOPPED
        assert world.sent("cancel") == [{"run_ids": [work.name]}]
        assert later.runs


async def test_a_history_that_is_shared_is_not_enough(autojump_clock: MockClock) -> None:
    async with open_world(conversations=False) as world:
        _, work, (said,) = await world.leave()
        world.server.run_of(work).mark = None
        settlement = await world.recover(said)
        assert told(settlement) == (Ending.UNCONFIRMED, None, False)
        assert work.told_at == []


async def test_the_first_run_of_a_conversation_is_of_whoever_made_it(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        remote, work, (said,) = await world.leave()
        world.server.end(work)
        await remote.follow(Unheard())
        _, later, _ = await world.leave(remote.session)
        for one in world.server.works:
            world.server.run_of(one).mark = "a gateway's"
        settlement = await world.recover(said)
        assert told(settlement) == (Ending.FINISHED, Proof.EVENT, True)
        assert later.told_at == []


async def test_an_answer_in_an_agents_history_is_none_of_its_conversations_runs(
    autojump_clock: MockClock,
) -> None:
    async with open_world(conversations=False) as world:
        _, work, (said,) = await world.leave()
        world.server.ask(work)
        world.nursery.start_soon(send_in_a_new_conversation, world.server)
        await until(lambda: len(world.server.works) == 2)
        world.server.run_of(world.server.works[1]).mark = None
        answer = attrs.evolve(said, place="answer", mark="m", since=work.name)
        assert told(await world.recover(answer))[0] is Ending.UNCONFIRMED
        assert world.server.works[1].told_at == []


async def send_in_a_new_conversation(server: RecordingLetta) -> None:
    made = httpx.Request("POST", f"{URL}/v1/conversations?agent_id={AGENT}")
    number = (await server.handle_async_request(made)).json()["id"]
    await send(server, number, "another's")


# A message that began nothing.


async def test_a_message_that_never_left_cannot_come_any_more(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        _, work, (said,) = await world.leave()
        world.server.end(work)
        response = await world.server.handle_async_request(
            httpx.Request("POST", f"{URL}/v1/conversations?agent_id={AGENT}")
        )
        assert response.json()["id"] == "conv-2"
        never = attrs.evolve(said, conversation_id="conv-2", mark="never")
        settlement = await world.recover(never, world.goes_on)
        assert told(settlement) == (Ending.UNSTARTED, None, True)
        assert world.deleted() == ["/v1/conversations/conv-2"]
        assert (await send(world.server, "conv-2", "never")).status_code == 404
        assert len(world.server.works) == 2
        assert told(await world.recover(never)) == (Ending.UNSTARTED, None, True)


@pytest.mark.parametrize("fails", [False, True])
async def test_what_comes_as_its_conversation_is_deleted_is_found(
    fails: bool, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        _, work, (said,) = await world.leave()
        handle = world.server.handle_async_request

        async def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path.rstrip("/").endswith("/runs"):
                if not world.deleted():
                    return httpx.Response(200, json=[])
                if fails:
                    return httpx.Response(503, json={"detail": "no database"})
            return await handle(request)

        world.server.handle_async_request = answer  # type: ignore[method-assign]
        settlement = await world.recover(said, world.goes_on)
        if fails:
            assert told(settlement) == (Ending.UNCONFIRMED, None, False)
        else:
            assert told(settlement) == (Ending.STOPPED, Proof.EVENT, True)
            assert not work.runs
        # Nothing goes on in a conversation that is not there.
        assert world.server.works[-1].session == "conv-2"
        assert world.sent("fork") == []


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("conv-2", httpx.Response(503, json={"detail": "no database"})),
        ("runs", httpx.Response(503, json={"detail": "no database"})),
        ("runs", httpx.Response(200, text="null", headers={"content-type": "application/json"})),
        ("runs", httpx.ConnectError("refused")),
    ],
)
async def test_where_that_is_not_sure_it_is_not_said(
    path: str, answer: Any, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        _, _, (said,) = await world.leave()
        world.server.instead[path] = answer
        settlement = await world.recover(attrs.evolve(said, conversation_id="conv-2"))
        assert told(settlement) == (Ending.UNCONFIRMED, None, False)
        assert isinstance(settlement.errors[0], BackendLost)
        # Where it cannot be looked at, nothing is deleted.
        assert (world.deleted() == []) is (path == "runs")


async def test_a_conversation_with_a_history_is_not_deleted(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        session = await world.answered()
        never = Address(AGENT, "conv-1", "room", "never", session.run_id or "")
        settlement = await world.recover(never, world.goes_on)
        assert told(settlement) == (Ending.UNCONFIRMED, None, False)
        assert "may never have been sent" in str(settlement.errors[0])
        assert world.deleted() == []
        # What it knows is not lost to the room.
        assert world.sent("fork") != []


# A run that has ended.


@pytest.mark.parametrize(
    ("reason", "ending", "proof"),
    [
        ("end_turn", Ending.FINISHED, Proof.EVENT),
        ("max_steps", Ending.FINISHED, Proof.EVENT),
        ("llm_api_error", Ending.FAILED, Proof.EVENT),
        ("no_tool_call", Ending.FAILED, Proof.EVENT),
    ],
)
async def test_how_a_run_has_ended_is_told(
    reason: str, ending: Ending, proof: Proof, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        remote, work, _ = await world.leave()
        world.server.end(work, reason)
        settlement = await world.recover(remote.address, world.goes_on)
        assert told(settlement) == (ending, proof, True)
        assert world.sent("cancel") == []
        assert {one.session for one in world.server.works} == {"conv-1"}


async def test_a_cancelled_run_is_over_when_its_model_call_is(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        world.server.drops_after = None
        remote, work, _ = await world.leave()
        settlement = await world.recover(remote.address)
        assert told(settlement) == (Ending.UNCONFIRMED, Proof.CLAIMED, False)
        # Its owner has cancelled it, and was gone before it had seen the end.
        world.server.drop(work)
        settlement = await world.recover(remote.address)
        assert told(settlement) == (Ending.STOPPED, Proof.EVENT, True)


@pytest.mark.parametrize(
    ("part", "answer"),
    [
        ("steps", httpx.Response(200, json=[])),
        ("trace", httpx.Response(200, text="null", headers={"content-type": "application/json"})),
    ],
    ids=["it has come to no step", "no call is traced"],
)
async def test_what_is_called_cancelled_and_shows_nothing_is_not_said_to_be_over(
    part: str, answer: httpx.Response, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        remote, _, _ = await world.leave()
        world.server.instead[part] = answer
        settlement = await world.recover(remote.address)
        assert told(settlement) == (Ending.UNCONFIRMED, Proof.CLAIMED, False)


async def test_a_step_that_begins_as_the_run_is_cancelled_is_waited_for(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        remote, work, _ = await world.leave()
        run = world.server.run_of(work)
        run.reason, run.told, run.traced = "cancelled", True, True
        step = {"id": "step-1", "status": "success", "request_id": run.mark}
        later = {"id": "step-2", "status": "pending", "request_id": run.mark}
        looks = iter([step, later])
        handle = world.server.handle_async_request

        async def answer(request: httpx.Request) -> httpx.Response:
            if request.url.path.endswith("/steps"):
                return httpx.Response(200, json=[next(looks, later)])
            return await handle(request)

        world.server.handle_async_request = answer  # type: ignore[method-assign]
        settlement = await world.recover(remote.address)
        assert told(settlement) == (Ending.UNCONFIRMED, Proof.CLAIMED, False)


async def test_a_model_that_is_silent_is_not_said_to_be_stopped(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        world.server.cancels = "ignored"
        remote, work, _ = await world.leave()
        settlement = await world.recover(remote.address)
        assert told(settlement) == (Ending.UNCONFIRMED, Proof.CLAIMED, False)
        assert work.runs


# Approvals.


async def test_a_question_that_was_left_open_is_denied_by_the_next_turn(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        remote, work, _ = await world.leave()
        world.server.ask(work)
        settlement = await world.recover(remote.address, world.goes_on)
        assert told(settlement) == (Ending.STOPPED, Proof.EVENT, True)
        assert world.sent("cancel") == []
        denial, said = world.sent("messages")[-1]["messages"]
        assert denial["approvals"] == [
            {"type": "approval", "tool_call_id": "call-1", "approve": False}
        ]
        assert said["content"] == "next"


async def test_the_run_that_an_answer_began_is_cancelled(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        journal = Journal()
        async with world.open() as backend, turnstop.open_rooms(backend, journal=journal) as rooms:
            async with rooms.turn("kitchen", "bake") as turn:
                await until(lambda: world.server.works)
                (work,) = world.server.works
                world.server.ask(work)
                async for event in turn:
                    if isinstance(event, Ask):
                        turn.answer(event, "approve")
                        await wait_all_tasks_blocked()
                        break
                *_, said = journal.entries[0].notes
                assert said == Address(AGENT, "conv-1", "answer", said.mark, "run-1")
                # As the next process meets it.
                world.server.run_of(work).mark = None
                settlement = await world.recover(said)
        assert told(settlement) == (Ending.STOPPED, Proof.EVENT, True)
        assert {"run_ids": ["run-2"]} in world.sent("cancel")
        assert {"run_ids": ["run-1"]} not in world.sent("cancel")


async def test_an_answer_that_may_have_been_sent_leaves_the_question_open(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        _, work, (said,) = await world.leave()
        world.server.ask(work)
        answer = attrs.evolve(said, place="answer", mark="m", since=work.name)
        settlement = await world.recover(answer, world.goes_on)
        assert told(settlement) == (Ending.UNCONFIRMED, None, False)
        denial, said_next = world.sent("messages")[-1]["messages"]
        assert [one["approve"] for one in denial["approvals"]] == [False]
        assert said_next["content"] == "next"


@pytest.mark.parametrize("time", range(4))  # The order of two tasks is luck.
@pytest.mark.parametrize("tells", [True, False])
async def test_no_approval_leaves_that_was_stopped_while_it_was_announced(
    tells: bool, time: int, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        handle = world.server.handle_async_request

        async def answer(request: httpx.Request) -> httpx.Response:
            if not tells:
                # Whether a request has left is not known of each transport.
                request.extensions.pop("trace", None)
            return await handle(request)

        world.server.handle_async_request = answer  # type: ignore[method-assign]
        journal = Journal()
        async with world.open() as backend, turnstop.open_rooms(backend, journal=journal) as rooms:
            async with rooms.turn("kitchen", "bake") as turn:
                await until(lambda: world.server.works)
                world.server.ask(world.server.works[0])
                async for event in turn:
                    if not isinstance(event, Ask):
                        continue
                    journal.entries[0].saves = trio.sleep_forever
                    turn.answer(event, "approve")
                    await trio.sleep(0.1)
                    assert len(world.sent("messages")) == 1
                    turn.stop()
        assert turn.ending is Ending.STOPPED
        (denial,) = world.sent("messages")[1]["messages"]
        assert [one["approve"] for one in denial["approvals"]] == [False]


# A server that does not tell.


@pytest.mark.parametrize(
    "address", ["", "nobody's", "null", "[]", '["a"]', '{"a": 1}', json.dumps(["a"] * 6)]
)
async def test_an_address_of_another_kind_is_not_believed(
    address: str, autojump_clock: MockClock
) -> None:
    async with open_world() as world, world.open() as backend:
        with pytest.raises(BackendLost, match="no address of a turn of Letta"):
            await backend.attach(address)
        assert world.server.calls == [("GET", "/v1/health", None)]


async def test_a_run_that_the_server_does_not_know_is_out_of_sight(
    autojump_clock: MockClock,
) -> None:
    async with open_world() as world:
        address = Address(AGENT, "conv-1", "room", "m", "", "run-99")
        settlement = await world.recover(address)
        assert told(settlement) == (Ending.UNCONFIRMED, None, False)
        assert any("out of sight" in str(one) for one in settlement.errors)


@pytest.mark.parametrize("known", [True, False])
async def test_a_server_that_stumbles_is_asked_again(
    known: bool, autojump_clock: MockClock
) -> None:
    async with open_world() as world:
        remote, work, (said,) = await world.leave()
        no = httpx.Response(503, json={"detail": "no database"})
        world.server.instead |= {"runs": no, work.name: no}

        async def mend() -> None:
            await trio.sleep(0.2)
            world.server.instead.clear()

        world.nursery.start_soon(mend)
        settlement = await world.recover(remote.address if known else said)
        assert told(settlement) == (Ending.STOPPED, Proof.EVENT, True)
        assert settlement.errors == ()


async def test_a_cancel_that_is_refused_is_told(autojump_clock: MockClock) -> None:
    async with open_world() as world:
        remote, work, _ = await world.leave()
        world.server.cancels = "refused"
        settlement = await world.recover(remote.address)
        assert told(settlement)[0] is Ending.UNCONFIRMED
        assert "HTTP 500" in str(settlement.errors[0])
        assert work.runs
