"""The Letta server in memory is honest: in each scene it speaks as the real one did."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import ClassVar

import attrs
import pytest
import trio
from worlds import MessagedWorld

from turnstop import BackendError
from turnstop.testing import Work, run_in_virtual_time
from turnstop.testing.golden import Recordings, WireFrame

try:
    from turnstop.adapters.letta import open_letta
    from turnstop.testing.recording.letta import URL, RecordingLetta
    from turnstop.testing.recording.letta.rules import RULES, letta_names
    from turnstop.testing.recording.letta.scenes import SCENES
    from turnstop.testing.recording.letta.tap import WireTap
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

FOLDER = Path(__file__).parents[1] / "golden" / "letta"
GOLDEN = Recordings(FOLDER, "letta", RULES, letta_names)
Disturb = Callable[[RecordingLetta], object]


@attrs.define
class World(MessagedWorld):
    server: RecordingLetta
    prompts: ClassVar = {"answer": "answer", "park": "drip 20", "ask": "park 0", "fail": "refuse"}

    @property
    def works(self) -> list[Work]:
        return self.server.works

    async def play(self, work: Work, name: str, word: str) -> None:
        if word == "park":
            while work.runs:
                self.server.say(work, "drop ")
                await trio.sleep(0.05)
        elif word == "fail":
            self.server.end(work, "llm_api_error", "INTERNAL_SERVER_ERROR")
        else:
            if word == "ask":
                await self.call(work)
            self.server.say(work, f"answer to {name}")
            self.server.end(work)

    async def call(self, work: Work) -> None:
        """Call the tool, and have it done once that was approved."""
        self.server.ask(work, "ring_bell")
        while not work.replies:  # noqa: ASYNC110
            await trio.sleep(0.001)
        await trio.sleep(0.001)
        self.server.return_tool(work, "ding ding ")


async def played(name: str, disturb: Disturb) -> list[WireFrame]:
    scene = SCENES[name]
    async with trio.open_nursery() as nursery:
        server = RecordingLetta(nursery)
        server.ends_after, server.drops_after = 0.3, 0.5
        disturb(server)
        tap = WireTap(server)
        async with open_letta(URL, agent_id="agent-1", transport=tap, **scene.settings) as backend:
            # Only a dishonest server fails where its scene does not say so.
            with suppress(BackendError):
                await scene.play(backend, World(nursery, server))
        nursery.cancel_scope.cancel()
    return tap.frames


def unlike(name: str, disturb: Disturb = lambda server: None) -> list[str]:
    return GOLDEN.differences(name, run_in_virtual_time(played, name, disturb))


@pytest.mark.parametrize("name", SCENES)
def test_it_speaks_as_the_real_server_did(name: str) -> None:
    assert unlike(name) == []


def test_every_recording_is_of_a_scene() -> None:
    assert GOLDEN.misfits(SCENES) == []


def no_end(server: RecordingLetta) -> None:
    server.cancels = "ignored"


def no_words(server: RecordingLetta) -> None:
    server.say = lambda work, text: None  # type: ignore[method-assign]


def another_end(server: RecordingLetta) -> None:
    end = server.end
    server.end = lambda work, *_: end(work, "max_steps")  # type: ignore[method-assign]


def another_tool(server: RecordingLetta) -> None:
    ask = server.ask
    server.ask = lambda work, tool="": ask(work, "bake")  # type: ignore[method-assign]


def no_marks(server: RecordingLetta) -> None:
    begin = server._begin
    server._begin = lambda *about: begin(*about[:3], None)  # type: ignore[method-assign]


DISHONEST = [
    ("stop_while_running", no_end, "<- stop_reason cancelled: does not come"),
    ("two_turns", no_words, "<- assistant_message: does not come"),
    ("fail", another_end, "<- error: does not come"),
    ("approve", another_tool, "said.tool_call.name is"),
    ("agent_stop", no_end, "<- end: does not come"),
    ("left_unnamed", no_marks, "body.0.request_id is"),
    ("left_finished", another_end, "body.stop_reason is"),
]


@pytest.mark.parametrize(("name", "disturb", "text"), DISHONEST)
def test_a_server_that_is_not_honest_is_seen(name: str, disturb: Disturb, text: str) -> None:
    assert any(text in line for line in unlike(name, disturb))
