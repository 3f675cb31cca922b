"""What a server logs: how it goes, and nothing of what is said."""

from __future__ import annotations

import logging

import pytest
import trio
from servers import serving

from turnstop.adapters.local import Work
from turnstop.events import Text


async def talk(work: Work) -> None:
    work.emit(Text("a secret answer"))
    await trio.sleep_forever()


async def test_what_happens_is_logged_without_what_is_said(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO, "turnstop.server")
    async with serving(talk) as served:
        await served.say("kitchen", "a secret question", id="m\n1")
        turn = (await served.until("/events", "text"))["turn_id"]
        await served.press("kitchen", "stop", reason="a secret reason")
        await served.until("/events", "settlement")
        await served.until("/events", "message", state="waiting", attempt=0)
        await served.press("kitchen", "play")
        await served.until("/events", "resumed")
    lines = [one.getMessage() for one in caplog.records if one.name == "turnstop.server"]
    for line in (
        r"'kitchen': message 'm\n1' is waiting",
        rf"'kitchen': turn {turn} works on message 'm\n1'",
        f"'kitchen': stop: turn {turn} is asked to stop",
        "'kitchen': paused",
        f"'kitchen': turn {turn} has settled: stopped",
        "'kitchen': goes on",
    ):
        assert line in lines
    assert "secret" not in "".join(lines)
    assert "\n" not in "".join(lines)
