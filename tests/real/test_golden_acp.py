"""The real agents still speak as they were recorded, in all that the adapter reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnstop.testing.golden import differences, read_wire
from turnstop.testing.recording.acp.rules import acp_names, rules_for

from . import real_program
from .golden_acp import FOLDER, PROFILES, record

# What the others show is shown by these as well.
SCENES = ("stop_while_a_permission_is_open", "go_on_after_a_loss")


@pytest.mark.parametrize("name", PROFILES)
async def test_it_is_the_version_that_was_recorded(name: str) -> None:
    """Another version may do as well: this one says why a scene differs, if one does."""
    version, golden = await real_program(name).version(), read_wire(FOLDER / name / "finish.jsonl")
    if version != golden.version:
        pytest.skip(f"recorded of {golden.version}, and here is {version}")


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("name", PROFILES)
async def test_it_speaks_as_it_was_recorded(name: str, scene: str, tmp_path: Path) -> None:
    real_program(name)
    found = await record(name, scene, tmp_path)
    golden = read_wire(FOLDER / name / f"{scene}.jsonl")
    assert differences(golden.frames, found, rules_for(name), acp_names) == []
