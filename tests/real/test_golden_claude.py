"""The real Claude still speaks as it was recorded: in each scene, in all that the adapter reads."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from turnstop.testing.golden import Wire, WireFrame, differences, read_wire
from turnstop.testing.recording.claude.rules import RULES, claude_names, rules_for
from turnstop.testing.recording.claude.scenes import SCENES

from . import real_program
from .golden_claude import FOLDER, record

PROGRAM = real_program("claude")


def read(name: str) -> Wire:
    return read_wire(FOLDER / f"{name}.jsonl")


async def test_it_is_the_version_that_was_recorded() -> None:
    """Another version may do as well: this one says why a scene differs, if one does."""
    version = await PROGRAM.version()
    if version != read("finish").version:
        pytest.skip(f"recorded of {read('finish').version}, and here is {version}")


@pytest.mark.parametrize("name", SCENES)
async def test_it_speaks_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    found = await record(SCENES[name], tmp_path)
    assert differences(read(name).frames, found, rules_for(name), claude_names) == []


async def test_a_recording_of_something_else_is_told(tmp_path: Path) -> None:
    found = await record(SCENES["stop_while_running"], tmp_path)
    golden = [
        attrs.evolve(frame, body=json.loads(json.dumps(frame.body).replace("aborted_", "ended_")))
        for frame, name in zip(*named("stop_while_running"), strict=True)
        if name != "interrupt = success"
    ]
    assert differences(golden, found, RULES, claude_names) == [
        "<- interrupt = success: comes, and is not due after <- stream_event text_delta",
        '<- result: terminal_reason is "aborted_streaming", and not "ended_streaming"',
    ]


def named(scene: str) -> tuple[tuple[WireFrame, ...], list[str]]:
    frames = read(scene).frames
    return frames, claude_names(frames)
