"""The golden wire is what the real Letta server says, in the version that is here."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from . import REQUIRED, real_letta

try:
    from turnstop.lab.letta import VERSION, stop_letta
    from turnstop.testing.recording.letta.scenes import SCENES

    from .golden_letta import RECORDINGS, record
    from .recorder import renamed
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)

real_letta()


@pytest.fixture(scope="session", autouse=True)
def server_of_the_session() -> Iterator[None]:
    yield
    stop_letta()


def test_it_is_the_version_that_was_recorded() -> None:
    assert {RECORDINGS.read(name).version for name in SCENES} == {VERSION}


@pytest.mark.parametrize("name", SCENES)
async def test_it_speaks_as_it_was_recorded(name: str, tmp_path: Path) -> None:
    assert RECORDINGS.differences(name, await record(name, tmp_path)) == []


async def test_one_that_speaks_otherwise_is_told_of(tmp_path: Path) -> None:
    found = renamed(await record("agent_finish", tmp_path), "end_turn", "max_steps")
    assert RECORDINGS.differences("agent_finish", found) != []
