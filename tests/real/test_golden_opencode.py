"""The golden wire is what the real opencode says, in the version that is here."""

from __future__ import annotations

from pathlib import Path

import pytest

from . import REQUIRED, real_program

try:
    from turnstop.testing.recording.opencode.scenes import SCENES

    from .golden_opencode import RECORDINGS, record
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

real_program("opencode")


@pytest.mark.parametrize("name", SCENES)
async def test_the_real_program_says_what_is_golden(name: str, tmp_path: Path) -> None:
    assert RECORDINGS.differences(name, await record(name, tmp_path)) == []
