"""The CLI in memory is honest: in each scene it speaks as the real program did."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from worlds import RecordedWorld

from turnstop.testing import Work, run_in_virtual_time
from turnstop.testing.golden import Recordings, WireFrame

try:
    from copilot.session import PermissionHandler

    from turnstop.testing.recording.copilot import FarCli, RecordingCopilot, open_recorded
    from turnstop.testing.recording.copilot.rules import RULES, copilot_names
    from turnstop.testing.recording.copilot.scenes import SCENES, Scene
except ImportError as absent:
    if os.environ.get("TURNSTOP_REAL") == "require":
        raise
    pytest.skip(str(absent), allow_module_level=True)

FOLDER = Path(__file__).parents[1] / "golden" / "copilot"
GOLDEN = Recordings(FOLDER, "copilot", RULES, copilot_names)
YES = {"on_permission_request": PermissionHandler.approve_all}


@attrs.define
class World(RecordedWorld):
    copilot: RecordingCopilot

    async def play(self, name: str, words: str) -> None:
        work = await self.begun(name)
        word, _, then = words.partition(" ")
        if word == "tool":
            await self.copilot.want_permission(work, to_end=then != "park")
            while work.runs and not work.replies:  # noqa: ASYNC110 - a record gives no event
                await trio.sleep(0.01)
            if then == "park":
                self.silent[name].set()
                return
        if word == "fail":
            await self.copilot.fail(work)
        elif word == "park":
            for number in range(3):
                if work.runs:
                    await self.copilot.answer(work, f"piece {number} ")
            self.silent[name].set()
            await self.released[name].wait()
        if work.runs:
            await self.copilot.answer(work, "the answer")
            await self.copilot.finish(work)

    async def begun(self, name: str) -> Work:
        while True:
            for work in self.copilot.works:
                if name in work.text and work.began_at is not None:
                    return work
            await trio.sleep(0.01)


async def played(scene: Scene, copilot: RecordingCopilot) -> list[WireFrame]:
    async with trio.open_nursery() as nursery:
        options = YES if scene.settings["approve_all"] else {}
        async with open_recorded(copilot, **options) as backend:
            # One that speaks otherwise may never come to the scene's end.
            with trio.move_on_after(30):
                await scene.play(backend, World(nursery, copilot))
            found = list(copilot.wire)
        nursery.cancel_scope.cancel()
    return found


def unlike(name: str, copilot: RecordingCopilot) -> list[str]:
    found = run_in_virtual_time(played, SCENES[name], copilot)
    return GOLDEN.differences(name, found)


@pytest.mark.parametrize("name", SCENES)
def test_it_speaks_as_the_real_program_did(name: str) -> None:
    assert unlike(name, RecordingCopilot()) == []


class Mild(RecordingCopilot):
    """Says of no idle that it was aborted."""

    def _over(self, work: Work, **how: Any) -> None:
        super()._over(work)


class Nameless(RecordingCopilot):
    """Says of no message whose it is, as old ones do."""

    def begin(self) -> FarCli:
        cli = super().begin()
        cli.old = True
        return cli


class Quiet(RecordingCopilot):
    """Tells of no abort."""

    def _stop(self, cli: FarCli, work: Work) -> None:
        self._interrupt(work)


class Hasty(RecordingCopilot):
    """Asks nobody."""

    async def want_permission(self, work: Work, *, to_end: bool = True) -> None:
        await self.use_to_end(work)
        work.replies.append("nobody was asked")


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        (Mild, "stop_while_running", "<- session.idle: params.event.data.aborted is absent"),
        (Nameless, "finish", "<- user.message: params.event.data.messageId is absent"),
        (Quiet, "stop_while_running", "<- abort: does not come after"),
        (Hasty, "allow", "<- permission.requested: does not come after"),
    ],
)
def test_one_that_speaks_otherwise_is_told_of(
    kind: type[RecordingCopilot], name: str, line: str
) -> None:
    found = unlike(name, kind())
    assert any(line in one for one in found), found


def test_every_recording_is_of_a_scene() -> None:
    assert GOLDEN.misfits(SCENES) == []
