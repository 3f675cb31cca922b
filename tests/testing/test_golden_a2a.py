"""The agent in memory is honest: in each scene it speaks as the real a2a-sdk server did."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import attrs
import pytest
import trio

from turnstop import BackendError
from turnstop.testing import Work, run_in_virtual_time
from turnstop.testing.golden import Recordings, WireFrame

try:
    from turnstop.adapters.a2a import open_a2a
    from turnstop.testing.recording.a2a import URL, RecordingAgent
    from turnstop.testing.recording.a2a.rules import RULES, a2a_names
    from turnstop.testing.recording.a2a.scenes import SCENES, Scene
    from turnstop.testing.recording.a2a.tap import WireTap
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

FOLDER = Path(__file__).parents[1] / "golden" / "a2a"
GOLDEN = Recordings(FOLDER, "a2a-sdk", RULES, a2a_names)
Disturb = Callable[[RecordingAgent], object]


@attrs.define
class RecordedWorld:
    """Does what the messages say, as the lab's executor does in the real server."""

    agent: RecordingAgent
    nursery: trio.Nursery
    names: list[str] = attrs.field(factory=list)

    def message(self, words: str) -> tuple[str, str]:
        name = f"message-{len(self.names) + 1}"
        self.names.append(name)
        self.nursery.start_soon(self.play, name, words)
        return name, f"{words} token={name}"

    async def began(self, name: str) -> None:
        await self.work(name)

    def cut(self) -> None:
        self.agent.cut()

    async def work(self, name: str) -> Work:
        while True:
            for work in self.agent.works:
                if work.text.endswith(name):
                    return work
            await trio.sleep(0.001)

    async def play(self, name: str, words: str) -> None:
        work = await self.work(name)
        await trio.sleep(0.001)
        if words.startswith("stream"):
            for number in range(2):
                self.agent.say(work, f"piece {number} ")
                await trio.sleep(0.2)
            self.agent.end(work, "COMPLETED")
        elif words == "answer":
            self.agent.say(work, f"answer to {name}")
            self.agent.end(work, "COMPLETED")
        elif words == "fail":
            self.agent.end(work, "FAILED", "no flour left")
        elif words == "ask":
            self.agent.end(work, "INPUT_REQUIRED", "which one?")


async def played(scene: Scene, disturb: Disturb) -> list[WireFrame]:
    async with trio.open_nursery() as nursery:
        agent = RecordingAgent(scene.settings["kind"], nursery)
        disturb(agent)
        tap = WireTap(agent)
        async with open_a2a(URL, transport=tap) as backend:
            # Only a dishonest agent fails where its scene does not say so.
            with suppress(BackendError):
                await scene.play(backend, RecordedWorld(agent, nursery))
        nursery.cancel_scope.cancel()
    return tap.frames


def unlike(name: str, disturb: Disturb = lambda agent: None) -> list[str]:
    found = run_in_virtual_time(played, SCENES[name], disturb)
    return GOLDEN.differences(name, found)


@pytest.mark.parametrize("name", SCENES)
def test_it_speaks_as_the_real_server_did(name: str) -> None:
    assert unlike(name) == []


def test_every_recording_is_of_a_scene() -> None:
    assert GOLDEN.misfits(SCENES) == []


def no_end(agent: RecordingAgent) -> None:
    agent.cancels = "ignored"


def no_words(agent: RecordingAgent) -> None:
    agent.say = lambda work, text: None  # type: ignore[method-assign]


def another_card(agent: RecordingAgent) -> None:
    assert isinstance(agent.card, dict)
    agent.card["supportedInterfaces"][0]["protocolVersion"] = "1.1"


def another_end(agent: RecordingAgent) -> None:
    end = agent.end
    agent.end = lambda work, state, text="": end(work, "FAILED", text)  # type: ignore[method-assign]


DISHONEST = [
    ("stop_while_running", no_end, "<- SendStreamingMessage = end: does not come"),
    ("finish", no_words, "artifactUpdate: does not come"),
    ("finish", another_end, "statusUpdate COMPLETED: does not come"),
    ("polled_finish", no_words, "result.artifacts.0.parts is absent"),
    ("plain_finish", another_card, "protocolVersion is"),
    ("answer_a_question", another_end, "statusUpdate INPUT_REQUIRED: does not come"),
]


@pytest.mark.parametrize(("name", "disturb", "text"), DISHONEST)
def test_an_agent_that_is_not_honest_is_seen(name: str, disturb: Disturb, text: str) -> None:
    assert any(text in line for line in unlike(name, disturb))
