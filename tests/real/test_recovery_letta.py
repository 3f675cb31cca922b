"""The process that began turns of a Letta agent is killed; the next one ends them.

Against a server that records, on loopback; and against the real one, where that is asked for.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal, TypeAlias

import attrs
import pytest
import trio

from turnstop import Ending, Proof, Rooms, Settlement, StopBudget, open_rooms
from turnstop.events import Text
from turnstop.journal import open_journal
from turnstop.lab import Behaviour, Lab, open_lab, write_prompt
from turnstop.lab.behaviours import Word

from . import REQUIRED, real_letta
from .labworld import PATIENCE

try:
    from turnstop.adapters.letta import open_letta
    from turnstop.lab.letta import make_agent, start_letta, stop_letta
    from turnstop.testing import Work
    from turnstop.testing.recording.letta import RecordingLetta
    from turnstop.testing.recording.letta.served import open_served
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

Dies: TypeAlias = Literal["", "before it is sent", "when it is sent"]
BUDGET = StopBudget(8.0, 1.0)
AGENT = "agent-1"
SEEN_WITHIN = 0.1
LETTA_WITHIN = 300.0
PLACES = pytest.mark.parametrize("conversations", [True, False], ids=["conversation", "agent"])
OWNER = """
import json, os, signal, sys, httpx, trio, turnstop
from turnstop.adapters.letta import open_letta
from turnstop.journal import open_journal

class Deadly(httpx.AsyncHTTPTransport):
    async def handle_async_request(self, request):
        if request.url.path.endswith("/messages") and dies:
            if dies == "before it is sent":
                os.kill(os.getpid(), signal.SIGKILL)
            tell = request.extensions["trace"]
            async def trace(name, info):
                await tell(name, info)
                if name.endswith(".send_request_body.complete"):
                    os.kill(os.getpid(), signal.SIGKILL)
            request.extensions["trace"] = trace
        return await super().handle_async_request(request)

async def main(path, options, *prompts):
    global dies
    dies = ""
    options = json.loads(options)
    dying = options.pop("dies")
    async with (
        open_journal(path) as journal,
        open_letta(**options, transport=Deadly()) as letta,
        turnstop.open_rooms(letta, journal=journal) as rooms,
    ):
        for number, prompt in enumerate(prompts, 1):
            dies = dying if number == len(prompts) else ""
            async with rooms.turn("kitchen", prompt) as turn:
                async for _ in turn: pass

trio.run(main, *sys.argv[1:])
"""


@attrs.define
class Far:
    """A server, and the journal of the processes that use it."""

    path: Path
    options: dict[str, Any]

    @asynccontextmanager
    async def owner(self, *prompts: str, dies: Dies = "") -> AsyncGenerator[trio.Process, None]:
        """A process that takes these turns in one room; it is killed at the end of this."""
        options = json.dumps({**self.options, "dies": dies})
        command = [sys.executable, "-c", OWNER, str(self.path), options, *prompts]
        here = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
        process = await trio.lowlevel.open_process(command, env=here)
        try:
            with trio.fail_after(2 * PATIENCE):
                yield process
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGKILL)
            with trio.CancelScope(shield=True):
                assert await process.wait() == -signal.SIGKILL

    async def recover(
        self, after: Callable[[Rooms[Any]], Awaitable[None]] | None = None
    ) -> list[Settlement]:
        """What the next process finds; then it goes on."""
        found: list[Settlement] = []
        async with (
            open_journal(self.path) as journal,
            open_letta(**self.options) as letta,
            open_rooms(letta, journal=journal, budget=BUDGET, observers=[found.append]) as rooms,
        ):
            await until(lambda: not rooms.statistics().live)
            if after is not None:
                await after(rooms)
        return [one for one in found if one.request and one.request.kind == "recovery"]


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 - what is waited for has no event
        await trio.sleep(0.01)


def told(settlement: Settlement) -> tuple[Ending, Proof | None, bool]:
    return settlement.ending, settlement.proof, settlement.gone


# A server that records.


@attrs.define
class Recorded(Far):
    server: RecordingLetta

    async def work(self, number: int = 0) -> Work:
        """The work of that number, once it is there."""
        await until(lambda: len(self.server.works) > number)
        return self.server.works[number]

    async def goes_on(self, rooms: Rooms[Any]) -> None:
        """The room's next turn answers."""
        number = len(self.server.works)
        async with rooms.turn("kitchen", "next") as turn:
            self.server.end(await self.work(number))
            async for _ in turn:
                pass
        assert turn.ending is Ending.FINISHED


@asynccontextmanager
async def open_recorded(path: Path, conversations: bool = True) -> AsyncGenerator[Recorded, None]:
    with trio.fail_after(4 * PATIENCE):
        async with trio.open_nursery() as nursery:
            server = RecordingLetta(nursery)
            server.ends_after, server.drops_after = 0.05, 0.1
            async with open_served(server) as url:
                options = {"url": url, "agent_id": AGENT, "conversations": conversations}
                yield Recorded(path / "turns.db", options, server)
            nursery.cancel_scope.cancel()


@PLACES
async def test_a_turn_that_goes_on_is_stopped(conversations: bool, tmp_path: Path) -> None:
    async with open_recorded(tmp_path, conversations) as far:
        async with far.owner("bake"):
            work = await far.work()
            await trio.sleep(SEEN_WITHIN)
        assert work.runs
        (found,) = await far.recover(far.goes_on)
        assert told(found) == (Ending.STOPPED, Proof.EVENT, True)
        assert not work.runs
        assert len(work.told_at) == 1
        assert {one.session for one in far.server.works} == {work.session}
        assert await far.recover() == []


@PLACES
async def test_a_turn_that_has_just_been_sent_is_found(conversations: bool, tmp_path: Path) -> None:
    async with open_recorded(tmp_path, conversations) as far:
        far.server.arrives_after = 0.5
        async with far.owner("bake", dies="when it is sent") as process:
            await process.wait()
        assert far.server.works == []
        (found,) = await far.recover()
        assert told(found) == (Ending.STOPPED, Proof.EVENT, True)
        (work,) = far.server.works
        assert not work.runs
        assert len(work.told_at) == 1


async def test_a_turn_that_was_not_sent_never_begins(tmp_path: Path) -> None:
    async with open_recorded(tmp_path) as far:
        async with far.owner("bake", dies="before it is sent") as process:
            await process.wait()
        (found,) = await far.recover(far.goes_on)
        assert told(found) == (Ending.UNSTARTED, None, True)
        assert [one.text for one in far.server.works] == ["next"]


async def test_a_later_turn_that_was_not_sent_is_not_said_to_be_gone(tmp_path: Path) -> None:
    async with open_recorded(tmp_path) as far:
        async with far.owner("first", "second", dies="before it is sent") as process:
            far.server.end(await far.work())
            await process.wait()
        (found,) = await far.recover(far.goes_on)
        assert told(found) == (Ending.UNCONFIRMED, None, False)
        # The room goes on in a history that holds what was said, and that this would not reach.
        assert [path for _, path, _ in far.server.calls if path.endswith("/fork")] != []


async def test_a_turn_that_has_ended_since_is_finished(tmp_path: Path) -> None:
    async with open_recorded(tmp_path) as far:
        async with far.owner("bake"):
            work = await far.work()
            await trio.sleep(SEEN_WITHIN)
        far.server.end(work)
        (found,) = await far.recover(far.goes_on)
        assert told(found) == (Ending.FINISHED, Proof.EVENT, True)
        assert work.told_at == []


async def test_a_model_that_is_silent_is_not_said_to_be_stopped(tmp_path: Path) -> None:
    async with open_recorded(tmp_path) as far:
        far.server.cancels = "ignored"
        async with far.owner("bake"):
            work = await far.work()
            await trio.sleep(SEEN_WITHIN)
        (found,) = await far.recover()
        assert told(found) == (Ending.UNCONFIRMED, Proof.CLAIMED, False)
        assert work.runs
        assert len(work.told_at) == 1
        assert await far.recover() == []


# The real server.


@attrs.define
class Real(Far):
    lab: Lab

    async def goes_on(self, rooms: Rooms[Any]) -> None:
        """The room's next turn answers, and every history the model was given is valid."""
        token, prompt = write_prompt(Behaviour("answer"))
        async with rooms.turn("kitchen", prompt) as turn:
            said = "".join([one.delta async for one in turn if isinstance(one, Text)])
        assert said == f"answer to {token}"
        assert turn.ending is Ending.FINISHED
        assert self.lab.faults == []

    async def is_honest(self, settlement: Settlement, token: str) -> None:
        """What is called gone is gone."""
        with trio.move_on_after(SEEN_WITHIN):
            await self.lab.gone(token)
        assert not (settlement.gone and self.lab.alive(token))


@asynccontextmanager
async def open_real(
    path: Path, conversations: bool = True, asks: bool = False
) -> AsyncGenerator[Real, None]:
    real_letta()
    with trio.fail_after(LETTA_WITHIN):
        url = await start_letta()
    with trio.fail_after(LETTA_WITHIN):
        async with open_lab() as lab:
            agent = await make_agent(url, lab.url, asks=asks)
            options = {"url": url, "agent_id": agent, "conversations": conversations}
            yield Real(path / "turns.db", options, lab)


@pytest.fixture(scope="session", autouse=True)
def server_of_the_session() -> Iterator[None]:
    yield
    stop_letta()


@PLACES
@pytest.mark.parametrize("word", ["drip", "park", "hold"])
async def test_really_a_run_that_goes_on_is_cancelled(
    conversations: bool, word: Word, tmp_path: Path
) -> None:
    async with open_real(tmp_path, conversations) as far:
        answered, prompt = write_prompt(Behaviour("answer"))
        token, theirs = write_prompt(Behaviour(word, 10 if word == "drip" else None))
        async with far.owner(prompt, theirs):
            await far.lab.parked(token)
        assert far.lab.alive(token)

        async def goes_on(rooms: Rooms[Any]) -> None:
            await far.goes_on(rooms)
            # It remembers what was said before its process was killed.
            assert answered.encode() in far.lab.exchanges[-1].body

        (found,) = await far.recover(goes_on)
        assert found.acked_at is not None
        if word == "drip":
            assert found.ending in (Ending.STOPPED, Ending.UNCONFIRMED)
        else:
            assert (found.ending, found.gone) == (Ending.UNCONFIRMED, False)
        await far.is_honest(found, token)
        far.lab.release(token)
        assert await far.recover() == []


@PLACES
async def test_really_a_run_that_its_process_never_heard_of_is_found(
    conversations: bool, tmp_path: Path
) -> None:
    async with open_real(tmp_path, conversations) as far:
        token, prompt = write_prompt(Behaviour("drip", 10))
        async with far.owner(prompt, dies="when it is sent") as process:
            await process.wait()
        (found,) = await far.recover(far.goes_on)
        assert found.sent_at is not None
        assert found.acked_at is not None
        assert found.ending in (Ending.STOPPED, Ending.UNCONFIRMED)
        await far.is_honest(found, token)
        far.lab.release(token)


async def test_really_a_message_that_was_not_sent_begins_nothing(tmp_path: Path) -> None:
    async with open_real(tmp_path) as far:
        token, prompt = write_prompt(Behaviour("drip", 10))
        async with far.owner(prompt, dies="before it is sent") as process:
            await process.wait()
        (found,) = await far.recover(far.goes_on)
        assert told(found) == (Ending.UNSTARTED, None, True)
        assert far.lab.requests(token) == []


@PLACES
async def test_really_a_run_that_has_ended_since_is_finished(
    conversations: bool, tmp_path: Path
) -> None:
    async with open_real(tmp_path, conversations) as far:
        token, prompt = write_prompt(Behaviour("park"))
        async with far.owner(prompt):
            await far.lab.parked(token)
        far.lab.release(token)
        await far.lab.gone(token)
        # The server writes it down some time later.
        await trio.sleep(1.0)
        (found,) = await far.recover(far.goes_on)
        assert told(found) == (Ending.FINISHED, Proof.EVENT, True)


@PLACES
async def test_really_a_question_that_was_left_is_denied_by_the_next_turn(
    conversations: bool, tmp_path: Path
) -> None:
    async with open_real(tmp_path, conversations, asks=True) as far:
        token, prompt = write_prompt(Behaviour("park", 1))
        async with far.owner(prompt):
            await far.lab.parked(token)
            far.lab.order(token, "call", "ring_bell", {"times": 2})
            await far.lab.gone(token)
            await trio.sleep(1.0)
        (found,) = await far.recover(far.goes_on)
        assert told(found) == (Ending.STOPPED, Proof.EVENT, True)
