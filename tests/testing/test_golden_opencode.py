"""The opencode in memory is honest: in each scene it speaks as the real one did."""

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
    from turnstop.adapters.opencode import open_opencode
    from turnstop.testing.recording.opencode import URL, RecordingOpenCode
    from turnstop.testing.recording.opencode.rules import RULES, opencode_names
    from turnstop.testing.recording.opencode.scenes import SCENES
    from turnstop.testing.recording.opencode.tap import WireTap
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

FOLDER = Path(__file__).parents[1] / "golden" / "opencode"
GOLDEN = Recordings(FOLDER, "opencode", RULES, opencode_names)
Disturb = Callable[[RecordingOpenCode], object]


@attrs.define
class World(MessagedWorld):
    server: RecordingOpenCode
    prompts: ClassVar = {"answer": "answer", "park": "park 1", "ask": "tool answer $ true"}

    @property
    def works(self) -> list[Work]:
        return self.server.works

    async def play(self, work: Work, name: str, word: str) -> None:
        if word == "ask":
            self.server.rejecting_ends = True
            self.server.ask(work)
        else:
            self.server.say(work, f"answer to {name}" if word == "answer" else "piece 0 ")
        if word == "answer":
            self.server.finish(work)


async def played(name: str, disturb: Disturb) -> list[WireFrame]:
    async with trio.open_nursery() as nursery:
        server = RecordingOpenCode(nursery)
        disturb(server)
        tap = WireTap(server)
        async with open_opencode(URL, transport=tap) as backend:
            # Only a dishonest server fails where its scene does not say so.
            with suppress(BackendError):
                await SCENES[name].play(backend, World(nursery, server))
            await trio.sleep(0.3)
        nursery.cancel_scope.cancel()
    return tap.frames


def unlike(name: str, disturb: Disturb = lambda server: None) -> list[str]:
    found = run_in_virtual_time(played, name, disturb)
    return GOLDEN.differences(name, found)


@pytest.mark.parametrize("name", SCENES)
def test_it_speaks_as_the_real_one_did(name: str) -> None:
    assert unlike(name) == []


def test_every_recording_is_of_a_scene() -> None:
    assert GOLDEN.misfits(SCENES) == []


def no_end(server: RecordingOpenCode) -> None:
    server.cancels = "ignored"


def no_words(server: RecordingOpenCode) -> None:
    server.say = lambda work, text: None  # type: ignore[method-assign]


def another_end(server: RecordingOpenCode) -> None:
    server.finish = server.fail  # type: ignore[method-assign]


DISHONEST = [
    ("stop_while_running", no_end, "message.updated assistant error: does not come"),
    ("finish", no_words, "message.part.delta: does not come"),
    ("finish", another_end, "message.updated assistant error: comes"),
]


@pytest.mark.parametrize(("name", "disturb", "text"), DISHONEST)
def test_a_server_that_is_not_honest_is_seen(name: str, disturb: Disturb, text: str) -> None:
    assert any(text in line for line in unlike(name, disturb))
