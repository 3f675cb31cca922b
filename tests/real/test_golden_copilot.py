"""The real Copilot still speaks as recorded: in each scene, in all that the adapter reads."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from turnstop.testing.golden import Wire, differences, read_wire
from turnstop.testing.recording.copilot.rules import RULES, copilot_names, rules_for
from turnstop.testing.recording.copilot.scenes import SCENES

from . import REQUIRED, real_program

try:
    from .golden_copilot import FOLDER, record
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

PROGRAM = real_program("copilot")


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
    assert differences(read(name).frames, found, rules_for(name), copilot_names) == []


async def test_a_recording_of_something_else_is_told(tmp_path: Path) -> None:
    found = await record(SCENES["stop_while_running"], tmp_path)
    frames = read("stop_while_running").frames
    golden = [
        attrs.evolve(frame, body=json.loads(json.dumps(frame.body).replace("aborted", "ended")))
        for frame, name in zip(frames, copilot_names(frames), strict=True)
        if name != "abort"
    ]
    assert differences(golden, found, RULES, copilot_names) == [
        "<- abort: comes, and is not due after <- assistant.message_delta",
        "<- session.idle: params.event.data.aborted is true, and not absent",
    ]
