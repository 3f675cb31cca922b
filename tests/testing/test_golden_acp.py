"""The agents in memory are honest: in each scene they speak as the real ones did."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
import trio.testing
from worlds import RecordedWorld

from turnstop.testing import Work, run_in_virtual_time
from turnstop.testing.golden import Recordings, WireFrame
from turnstop.testing.recording.acp import QUIRKS, Quirks, RecordingAcp, open_recorded
from turnstop.testing.recording.acp.rules import acp_names, rules_for
from turnstop.testing.recording.acp.scenes import SCENES

FOLDER = Path(__file__).parents[1] / "golden" / "acp"
PROFILES = {
    "claude-agent-acp": "claude",
    "zed-codex-acp": "codex",
    "codex-acp": "codex",
    "copilot": "copilot",
    "gemini": "gemini",
    "qwen": "qwen",
    "opencode": "opencode",
    "omp": "omp",
}
MODES = {"codex-acp": "read-only"}


def golden(program: str) -> Recordings:
    return Recordings(FOLDER / program, program, rules_for(program), acp_names)


def quirks_of(program: str) -> Quirks:
    return QUIRKS["codex-2" if program == "codex-acp" else PROFILES[program]]


@attrs.define
class World(RecordedWorld):
    acp: RecordingAcp

    async def lose(self) -> None:
        self.acp.end_all()
        await trio.testing.wait_all_tasks_blocked()

    async def play(self, name: str, words: str) -> None:
        work = await self.begun(name)
        if words == "permission":
            self.acp.want_approval(work)
            while not work.replies:  # noqa: ASYNC110 - a record gives no event
                await trio.sleep(0.01)
        elif words == "park":
            for number in range(3):
                self.acp.say(work, f"piece {number} ")
            self.silent[name].set()
            await self.released[name].wait()
        if work.runs:
            self.acp.say(work, "the answer")
            self.acp.finish(work)

    async def begun(self, name: str) -> Work:
        while True:
            for work in self.acp.works:
                if name in work.text and work.began_at is not None:
                    await trio.sleep(0.02)
                    return work
            await trio.sleep(0.01)


async def played(program: str, scene: str, acp: RecordingAcp) -> list[WireFrame]:
    mode = MODES.get(program) if "permission" in scene or scene == "approve" else None
    async with trio.open_nursery() as nursery:
        async with open_recorded(acp, PROFILES[program], mode=mode) as backend:
            await SCENES[scene].play(backend, World(nursery, acp))
        nursery.cancel_scope.cancel()
    return acp.wire


def unlike(program: str, scene: str, acp: RecordingAcp) -> list[str]:
    found = run_in_virtual_time(played, program, scene, acp)
    return golden(program).differences(scene, found)


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("program", PROFILES)
def test_it_speaks_as_the_real_program_did(program: str, scene: str) -> None:
    assert unlike(program, scene, RecordingAcp(quirks_of(program))) == []


@pytest.mark.parametrize(
    ("program", "scene", "change", "line"),
    [
        (
            "copilot",
            "go_on_after_a_loss",
            {"capabilities": {"sessionCapabilities": {"close": {}}}},
            "loadSession is absent, and not true",
        ),
        ("claude-agent-acp", "stop_while_running", {"ahead": 0.0}, "usage_update cost: does not"),
        ("omp", "finish", {"names_messages": False}, "messageId is absent, and not text"),
        ("copilot", "finish", {"name": "Pilot"}, 'agentInfo.name is "Pilot", and not "Copilot"'),
        (
            "qwen",
            "go_on_after_a_loss",
            {"capabilities": {"loadSession": True}},
            "sessionCapabilities.resume is absent, and not object",
        ),
    ],
)
def test_one_that_speaks_otherwise_is_told_of(
    program: str, scene: str, change: dict[str, Any], line: str
) -> None:
    found = unlike(program, scene, RecordingAcp(attrs.evolve(quirks_of(program), **change)))
    assert any(line in one for one in found), found


def test_an_adapter_that_says_more_is_told_of() -> None:
    acp = RecordingAcp(quirks_of("omp"))
    run_in_virtual_time(played, "omp", "finish", acp)
    more = WireFrame("->", {"method": "session/cancel", "params": {"sessionId": "session-1"}})
    assert golden("omp").differences("finish", [*acp.wire, more]) == [
        "-> session/cancel: comes, and is not due after -> session/prompt"
    ]


def test_every_recording_is_of_a_program_and_a_scene() -> None:
    assert {path.name for path in FOLDER.iterdir()} == {*PROFILES}
    for program in PROFILES:
        assert golden(program).misfits(SCENES) == []
