"""Turns of codex whose owner is gone: what is announced, and how they are taken up."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from reading import follow, request
from trio.testing import MockClock

from turnstop import BackendError, BackendLost, BackendRefused
from turnstop.abc import End, How, Proof
from turnstop.adapters.codex import open_codex
from turnstop.adapters.codex._asks import decline
from turnstop.adapters.codex._open import _Backend, _Settings, _topic_of
from turnstop.testing.recording.codex import AppServer
from turnstop.transports.dialect import JsonRpc
from turnstop.transports.jsonrpc import Connection, open_connection
from turnstop.transports.orphans import ProcessAddress, new_mark
from turnstop.transports.proctable import ticks_now

Frame = dict[str, Any]
THREAD = "T1"
LEFT = attrs.evolve(ProcessAddress.ahead(new_mark()), session=THREAD, turn="U1")


@attrs.define(eq=False)
class Once:
    """Stands for the restarting process: one connection, and it stays."""

    rpc: Connection
    address: ProcessAddress = attrs.field(factory=lambda: ProcessAddress.ahead(new_mark()))
    lost: BackendLost | None = None

    @property
    def process(self) -> Once:
        return self

    async def get(self) -> Once:
        if self.lost is not None:
            raise self.lost
        return self


@asynccontextmanager
async def codex(*turns: Frame) -> AsyncGenerator[tuple[Any, AppServer], None]:
    """The next process's codex, whose record of the thread has these turns."""
    server = AppServer()
    server.on_disk.add(THREAD)

    async def listed(params: Frame) -> Frame:
        return {"result": {"data": list(turns)}}

    server.handlers["thread/turns/list"] = listed
    near = server.connect()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.serve)
        async with open_connection(
            near, near, topic_of=_topic_of, fallback=decline, dialect=JsonRpc(version=False)
        ) as rpc:
            settings = _Settings(None, None, None, None, ())
            yield _Backend(Once(rpc), settings), server  # type: ignore[arg-type]
        nursery.cancel_scope.cancel()


def row(status: str, turn: str = "U1", **more: Any) -> Frame:
    return {"id": turn, "status": status, "error": None, **more}


@pytest.mark.parametrize(
    ("turns", "end"),
    [
        ([row("completed")], End(How.COMPLETED, Proof.PROCESS)),
        ([row("interrupted")], End(How.CANCELLED, Proof.PROCESS)),
        # Somebody took the thread up before codex had seen that its process was killed.
        ([row("inProgress")], End(How.CANCELLED, Proof.PROCESS)),
        (
            [row("failed", error={"message": "no model"})],
            End(How.FAILED, Proof.PROCESS, detail="no model"),
        ),
        # An earlier turn of the thread is not this one.
        ([row("completed", "U0")], End(How.CANCELLED, Proof.PROCESS)),
        ([], End(How.CANCELLED, Proof.PROCESS)),
    ],
)
async def test_the_record_says_how_it_ended(turns: list[Frame], end: End) -> None:
    async with codex(*turns) as (backend, server):
        turn = await backend.attach(str(LEFT))
        # It is known by now, and nobody is told to stop.
        asked = len(server.told())
        assert await follow(turn) == end
        assert len(server.told()) == asked
        assert turn.session == THREAD


async def test_one_that_was_announced_only_is_not_taken_for_an_earlier_one() -> None:
    async with codex(row("completed")) as (backend, _):
        turn = await backend.attach(str(attrs.evolve(LEFT, turn="")))
        assert await follow(turn) == End(How.CANCELLED, Proof.PROCESS)
        assert turn.session == THREAD


async def test_a_thread_of_which_nothing_was_written_is_not_continued() -> None:
    async with codex(row("completed")) as (backend, server):
        server.on_disk.clear()
        turn = await backend.attach(str(LEFT))
        assert await follow(turn) == End(How.CANCELLED, Proof.PROCESS)
        assert turn.session is None


async def test_a_codex_that_lists_no_turns_goes_on_in_the_thread() -> None:
    async with codex() as (backend, server):

        async def unknown(params: Frame) -> Frame:
            return {"error": {"code": -32601, "message": "unknown method"}}

        server.handlers["thread/turns/list"] = unknown
        turn = await backend.attach(str(LEFT))
        assert await follow(turn) == End(How.CANCELLED, Proof.PROCESS)
        assert turn.session == THREAD


async def test_where_codex_does_not_come_back_only_the_end_is_known() -> None:
    async with codex() as (backend, _):
        backend._codex.lost = BackendLost("too often")
        turn = await backend.attach(str(LEFT))
        with pytest.raises(BackendLost, match="was not told: too often") as caught:
            await follow(turn)
        assert caught.value.gone
        assert turn.session == THREAD


async def test_another_backends_address_is_refused() -> None:
    async with codex() as (backend, _):
        with pytest.raises(BackendLost, match="no address of a process"):
            await backend.attach('["ses", "msg"]')


@pytest.fixture
def app_server() -> Iterator[tuple[subprocess.Popen[bytes], ProcessAddress]]:
    mark = new_mark()
    process = subprocess.Popen(["sleep", "300"], env=dict([mark]), start_new_session=True)
    yield process, ProcessAddress.of(process.pid, mark)
    process.kill()
    process.wait()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
async def test_the_app_server_is_ended_before_anything_is_asked(
    app_server: tuple[subprocess.Popen[bytes], ProcessAddress],
) -> None:
    process, address = app_server
    async with codex(row("interrupted")) as (backend, server):
        turn = await backend.attach(str(attrs.evolve(address, session=THREAD, turn="U1")))
        assert server.told() == []
        with trio.fail_after(30):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(turn.cancel, lambda: None)
                await trio.to_thread.run_sync(process.wait)
                assert (await follow(turn)).how is How.CANCELLED
        assert server.methods() == ["thread/read", "thread/turns/list"]


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
async def test_only_the_turns_own_commands_are_its_leftovers() -> None:
    def command(thread: str, root: str, **more: str) -> subprocess.Popen[bytes]:
        env = {"CODEX_THREAD_ID": thread, "CODEX_SESSION_ID": root, **more}
        return subprocess.Popen(["sleep", "300"], env=env, start_new_session=True)

    mark = dict([LEFT.mark])
    earlier = command("T-left", "T-left", **mark)
    await trio.sleep(0.05)  # The process table counts in hundredths.
    since = ticks_now()
    mine, agents, others, persons = (
        command("T-left", "T-left", **mark),
        command("T-agent", "T-left", **mark),
        command("T-other", "T-other", **mark),
        # Of somebody who goes on in the thread by hand; or codex was told to drop the mark.
        command("T-left", "T-left"),
    )
    try:
        async with codex() as (backend, _):
            tool = {"CODEX_SESSION_ID": "T-left"}
            left = attrs.evolve(LEFT, session="T-left", tool=tool, since=since)
            turn = await backend.attach(str(left))
            found = await turn.leftovers()
            assert {one.pid for one in found} == {mine.pid, agents.pid, persons.pid}
            assert [one.pid for one in await turn.sweep(found)] == [persons.pid]
            mine.wait()
            agents.wait()
            assert earlier.poll() is None
            assert others.poll() is None
            assert persons.poll() is None
            machine, _, container = left.host.split()
            mine = command("T-left", "T-left", **mark)
            before = attrs.evolve(left, host=f"{machine} another-boot {container}")
            assert await (await backend.attach(str(before))).leftovers() == []
    finally:
        for one in (earlier, mine, agents, others, persons):
            one.kill()
            one.wait()


# What is announced.


@attrs.define
class Noted:
    """What a turn was announced with; a stop comes meanwhile if it is refused."""

    refused: bool = False
    addresses: list[ProcessAddress] = attrs.field(factory=list)

    async def announce(self, address: str) -> None:
        self.addresses.append(ProcessAddress.parse(address))
        if self.refused:
            raise BackendRefused("stopped")


async def test_a_turn_is_announced_in_its_thread_and_named_when_it_is_revealed() -> None:
    noted = Noted()
    async with codex() as (backend, server):
        seen = []

        async def announce(address: str) -> None:
            seen.append(server.params("turn/start"))
            await noted.announce(address)

        turn = await backend.start(attrs.evolve(request(), announce=announce))
        assert seen == [[]]
        (ahead,) = noted.addresses
        assert (ahead.session, ahead.turn) == (turn.session, "")
        assert ahead.mark == backend._codex.address.mark
        assert ahead.tool == {"CODEX_SESSION_ID": turn.session}
        assert 0 < ahead.since <= ticks_now()
        assert ProcessAddress.parse(turn.address) == attrs.evolve(ahead, turn=turn._turn)
        assert backend.name == "codex"
        assert backend.announces


@pytest.mark.parametrize("continued", [True, False])
async def test_one_that_is_stopped_while_it_is_announced_leaves_nothing(continued: bool) -> None:
    noted = Noted(refused=True)
    async with codex() as (backend, server):
        server.loaded.add(THREAD)
        given = attrs.evolve(request(THREAD if continued else None), announce=noted.announce)
        with pytest.raises(BackendRefused, match="stopped"):
            await backend.start(given)
        assert server.params("turn/start") == []
        made = [] if continued else [{"threadId": noted.addresses[0].session}]
        assert server.params("thread/unsubscribe") == made
        # The thread is free for whoever comes next.
        await backend.start(request(THREAD))


@pytest.mark.parametrize("answer", [None, {"error": {"code": -1, "message": "no"}}])
async def test_a_codex_that_does_not_let_go_of_the_thread_holds_up_no_refusal(
    autojump_clock: MockClock, answer: Frame | None
) -> None:
    async with codex() as (backend, server):

        async def reply(params: Frame) -> Frame | None:
            return answer

        server.handlers["thread/unsubscribe"] = reply
        begun = trio.current_time()
        with pytest.raises(BackendRefused, match="stopped"):
            await backend.start(attrs.evolve(request(), announce=Noted(refused=True).announce))
        assert trio.current_time() - begun < 0.2


async def test_the_marks_of_another_codex_around_us_are_not_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("CODEX_THREAD_ID", "CODEX_SESSION_ID", "CODEX_TOOL_CALL_ID"):
        monkeypatch.setenv(name, "outer")
    code = "import os, sys; sys.exit(str(['outer' in os.environ.values()]))"
    with pytest.raises(BackendError, match=r"\[False\]"):
        async with open_codex([sys.executable, "-c", code]):
            raise AssertionError
