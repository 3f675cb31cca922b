"""The golden wire is what the real a2a-sdk server says, in the version that is here."""

from __future__ import annotations

import attrs
import pytest

from turnstop.lab import MissingProgram
from turnstop.testing.golden import WireFrame

from . import REQUIRED

try:
    from turnstop.testing.recording.a2a.scenes import SCENES

    from .golden_a2a import RECORDINGS, record
except ImportError as absent:
    if REQUIRED:
        raise
    pytest.skip(str(absent), allow_module_level=True)


async def recorded(name: str) -> list[WireFrame]:
    try:
        return await record(name)
    except MissingProgram as missing:
        if REQUIRED:
            raise
        pytest.skip(str(missing))


@pytest.mark.parametrize("name", SCENES)
async def test_the_real_server_says_what_is_golden(name: str) -> None:
    assert RECORDINGS.differences(name, await recorded(name)) == []


async def test_a_server_that_says_something_else_is_seen() -> None:
    found = await recorded("two_turns")
    ends = [place for place, one in enumerate(found) if one.body.get("end")]
    without = [one for place, one in enumerate(found) if place != ends[0]]
    lines = RECORDINGS.differences("two_turns", without)
    assert len(lines) == 1
    assert "SendStreamingMessage = end: does not come" in lines[0]
    mixed = [attrs.evolve(one, body=_renamed(one.body)) for one in found]
    assert any("elsewhere" in line for line in RECORDINGS.differences("two_turns", mixed))


def _renamed(body: dict[str, object]) -> dict[str, object]:
    """All tasks by one name."""
    result = body.get("result")
    if isinstance(result, dict) and "task" in result:
        return {**body, "result": {"task": {**result["task"], "id": "one"}}}
    return body
