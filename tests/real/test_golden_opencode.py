"""The golden wire is what the real opencode says, in the version that is here."""

from __future__ import annotations

import pytest

from turnstop.testing.golden import differences, read_wire

from . import REQUIRED, real_program

try:
    from turnstop.testing.recording.opencode.rules import RULES, opencode_names
    from turnstop.testing.recording.opencode.scenes import SCENES

    from .golden_opencode import FOLDER, record
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

real_program("opencode")


@pytest.mark.parametrize("name", SCENES)
async def test_the_real_program_says_what_is_golden(name: str) -> None:
    golden = read_wire(FOLDER / f"{name}.jsonl")
    assert differences(golden.frames, await record(name), RULES, opencode_names) == []
