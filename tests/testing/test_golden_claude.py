"""The Claude in memory is honest: in each scene it speaks as the real program did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from worlds import RecordedWorld

from turnstop.testing import Work, run_in_virtual_time
from turnstop.testing.golden import Recordings, WireFrame
from turnstop.testing.recording.claude import Cli, RecordingClaude, open_recorded
from turnstop.testing.recording.claude.rules import RULES, claude_names
from turnstop.testing.recording.claude.scenes import SCENES, Scene

FOLDER = Path(__file__).parents[1] / "golden" / "claude"
GOLDEN = Recordings(FOLDER, "claude", RULES, claude_names)


@attrs.define
class World(RecordedWorld):
    claude: RecordingClaude

    async def said(self, *texts: str) -> None:
        def found() -> bool:
            said = [one for one in self.claude.wire if one.direction == "<-"]
            lines = [json.dumps(frame.body) for frame in said]
            return any(all(text in line for text in texts) for line in lines)

        while not found():  # noqa: ASYNC110 - a record gives no event
            await trio.sleep(0.01)

    def call(self, name: str, what: str) -> None:
        self.silent[name] = trio.Event()
        self.nursery.start_soon(self.use, name, what)

    async def use(self, name: str, what: str) -> None:
        work = await self.begun(name)
        if what == "agent":
            await self.claude.set_to_work(work)
            return
        if what == "task":
            await self.claude.run_behind(work)
        else:
            await self.claude.want_permission(work, "AskUserQuestion")
            await self.answered(work)
        await self.park(name, work)

    async def end_tasks(self) -> None:
        await self.claude.end_tasks()

    async def play(self, name: str, words: str) -> None:
        work = await self.begun(name)
        word, _, then = words.partition(" ")
        if word == "tool" and then == "park":
            await self.claude.use(work)
            self.silent[name].set()
            return
        if word == "tool":
            await self.claude.want_permission(work)
            await self.answered(work)
        if word == "fail":
            await self.claude.fail(work)
        elif word == "park":
            await self.park(name, work)
        elif work.runs:
            await self.claude.answer(work, "the answer")
            await self.claude.finish(work)

    async def begun(self, name: str) -> Work:
        while True:
            for work in self.claude.works:
                if name in work.text and work.began_at is not None:
                    return work
            await trio.sleep(0.01)

    async def answered(self, work: Work) -> None:
        while not work.replies and work.runs:  # noqa: ASYNC110 - a record gives no event
            await trio.sleep(0.01)

    async def park(self, name: str, work: Work) -> None:
        for number in range(3):
            if work.runs:
                await self.claude.answer(work, f"piece {number} ")
        said = self.silent[name]
        said.set()
        await self.released[name].wait()
        if work.runs and said is self.silent[name]:
            await self.claude.answer(work, "the answer")
            await self.claude.finish(work)


async def played(scene: Scene, claude: RecordingClaude) -> list[WireFrame]:
    async with trio.open_nursery() as nursery:
        async with open_recorded(claude) as backend:
            # One that speaks otherwise may never come to the scene's end.
            with trio.move_on_after(20):
                await scene.play(backend, World(nursery, claude))
        nursery.cancel_scope.cancel()
    return claude.wire


def unlike(name: str, claude: RecordingClaude) -> list[str]:
    found = run_in_virtual_time(played, SCENES[name], claude)
    return GOLDEN.differences(name, found)


@pytest.mark.parametrize("name", SCENES)
def test_it_speaks_as_the_real_program_did(name: str) -> None:
    assert unlike(name, RecordingClaude()) == []


class Mild(RecordingClaude):
    """Completes what was interrupted, and what has failed."""

    def _over(self, work: Work, reason: str, **more: object) -> None:
        super()._over(work, "completed", **more)


class Nameless(RecordingClaude):
    """Names no message in its results."""

    def begin(self, session: str, later: trio.Nursery) -> Cli:
        cli = super().begin(session, later)
        cli.old = True
        return cli


class Hasty(RecordingClaude):
    """Ends an interrupted turn, and acknowledges the interrupt then."""

    def _told(self, cli: Cli, frame: Any) -> None:
        self._abort_all(cli)
        super()._told(cli, frame)


class Silent(RecordingClaude):
    """Asks nobody, and tells of no tools."""

    async def use(self, work: Work, tool: str = "Bash", **given: object) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        (Mild, "stop_while_running", 'terminal_reason is "completed", and not "aborted_streaming"'),
        (Mild, "fail", 'terminal_reason is "completed", and not "api_error"'),
        (Nameless, "finish", "<- command_lifecycle started: does not come"),
        (
            Hasty,
            "stop_while_running",
            "<- interrupt = success: does not come after <- stream_event",
        ),
        (Silent, "allow", "<- assistant tool_use: does not come after"),
        (Silent, "stop_while_a_task_runs_behind", "-> stop_task: does not come after"),
    ],
)
def test_one_that_speaks_otherwise_is_told_of(
    kind: type[RecordingClaude], name: str, line: str
) -> None:
    found = unlike(name, kind())
    assert any(line in one for one in found), found


def test_every_recording_is_of_a_scene() -> None:
    assert GOLDEN.misfits(SCENES) == []
