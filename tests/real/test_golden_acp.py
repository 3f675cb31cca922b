"""The real agents still speak as they were recorded, in all that the adapter reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import real_program
from .golden_acp import PROFILES, record, recordings_of
from .recorder import expect_recorded

# What the others show is shown by these as well.
SCENES = ("stop_while_a_permission_is_open", "go_on_after_a_loss")


@pytest.mark.parametrize("name", PROFILES)
async def test_it_is_the_version_that_was_recorded(name: str) -> None:
    await expect_recorded(real_program(name), recordings_of(name))


@pytest.mark.parametrize("scene", SCENES)
@pytest.mark.parametrize("name", PROFILES)
async def test_it_speaks_as_it_was_recorded(name: str, scene: str, tmp_path: Path) -> None:
    real_program(name)
    found = await record(name, scene, tmp_path)
    assert recordings_of(name).differences(scene, found) == []
