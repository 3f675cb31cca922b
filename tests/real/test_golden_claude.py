"""The real Claude still speaks as it was recorded: in each scene, in all that the adapter reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnstop.testing.recording.claude.rules import rules_for
from turnstop.testing.recording.claude.scenes import SCENES

from . import real_program
from .golden_claude import RECORDINGS, record
from .recorder import expect_recorded, renamed

PROGRAM = real_program("claude")


async def test_it_is_the_version_that_was_recorded() -> None:
    await expect_recorded(PROGRAM, RECORDINGS)


@pytest.mark.parametrize("name", SCENES)
async def test_it_speaks_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    found = await record(name, tmp_path)
    assert RECORDINGS.differences(name, found, rules_for(name)) == []


async def test_one_that_speaks_otherwise_is_told_of(tmp_path: Path) -> None:
    name = "stop_while_running"
    found = RECORDINGS.matter(await record(name, tmp_path))
    kept = [frame for frame, called in found if called != "interrupt = success"]
    assert RECORDINGS.differences(name, renamed(kept, "aborted_", "ended_")) == [
        "<- interrupt = success: does not come after <- stream_event text_delta",
        '<- result: terminal_reason is "ended_streaming", and not "aborted_streaming"',
    ]
