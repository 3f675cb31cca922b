"""The real codex still speaks as it was recorded: in each scene, in all that the adapter reads."""

from __future__ import annotations

import json
from pathlib import Path

import attrs
import pytest

from turnstop.testing.golden import Wire, WireFrame, differences, read_wire
from turnstop.testing.recording.codex.rules import RULES, codex_names, rules_for
from turnstop.testing.recording.codex.scenes import SCENES

from . import real_program
from .golden_codex import FOLDER, record

PROGRAM = real_program("codex")


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
    assert differences(read(name).frames, found, rules_for(name), codex_names) == []


async def test_a_recording_of_something_else_is_told(tmp_path: Path) -> None:
    found = await record(SCENES["stop_while_running"], tmp_path)
    golden = [
        attrs.evolve(frame, body=json.loads(json.dumps(frame.body).replace("interrupted", "ended")))
        for frame in read("stop_while_running").frames
        if not is_answer(frame, 4)
    ]
    assert differences(golden, found, RULES, codex_names) == [
        "<- turn/interrupt = result: comes, and is not due after <- item/agentMessage/delta",
        '<- turn/completed: params.turn.status is "interrupted", and not "ended"',
    ]


def is_answer(frame: WireFrame, number: int) -> bool:
    return frame.direction == "<-" and frame.body.get("id") == number
