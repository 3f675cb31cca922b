"""The real Parlant still says what was recorded: in each scene, in all that the adapter reads."""

from __future__ import annotations

import importlib.metadata

import pytest

from turnstop.testing.recording.parlant.scenes import SCENES

from .parlant_env import need_parlant

need_parlant()

from .golden_parlant import RECORDINGS, record  # noqa: E402
from .recorder import renamed  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning")


def test_it_is_the_version_that_was_recorded() -> None:
    assert importlib.metadata.version("parlant") == RECORDINGS.read("finish").version


@pytest.mark.parametrize("name", SCENES)
async def test_it_speaks_as_it_was_recorded(name: str) -> None:
    assert RECORDINGS.differences(name, await record(name)) == []


async def test_one_that_speaks_otherwise_is_told_of() -> None:
    found = renamed(await record("stop_while_matching"), '"cancelled"', '"stopped"')
    assert RECORDINGS.differences("stop_while_matching", found) != []
