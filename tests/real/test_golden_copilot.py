"""The real Copilot still speaks as recorded: in each scene, in all that the adapter reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnstop.testing.recording.copilot.rules import rules_for
from turnstop.testing.recording.copilot.scenes import SCENES

from . import REQUIRED, real_program
from .recorder import expect_recorded, renamed

try:
    from .golden_copilot import RECORDINGS, record
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

PROGRAM = real_program("copilot")


async def test_it_is_the_version_that_was_recorded() -> None:
    await expect_recorded(PROGRAM, RECORDINGS)


@pytest.mark.parametrize("name", SCENES)
async def test_it_speaks_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    found = await record(name, tmp_path)
    assert RECORDINGS.differences(name, found, rules_for(name)) == []


async def test_one_that_speaks_otherwise_is_told_of(tmp_path: Path) -> None:
    name = "stop_while_running"
    found = RECORDINGS.matter(await record(name, tmp_path))
    kept = [frame for frame, called in found if called != "abort"]
    assert RECORDINGS.differences(name, renamed(kept, "aborted", "ended")) == [
        "<- abort: does not come after <- assistant.message_delta",
        "<- session.idle: params.event.data.aborted is absent, and not true",
    ]
