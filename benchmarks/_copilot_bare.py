"""Replacement turns by the bare SDK, in plain asyncio: `abort()`, and `send_and_wait()` behind it.

Run by `copilot_replacements.py`, in a process of its own: the program, its folder, its environment
and a session's keywords come as JSON on stdin, with pairs of prompts; how many of the replacements
were answered with anything but their own words goes to stdout.
"""

from __future__ import annotations

import asyncio
import json
import sys

from copilot import CopilotClient, RuntimeConnection
from copilot.session import PermissionHandler

SPEAKS_WITHIN = 30.0


async def main() -> None:
    given = json.load(sys.stdin)
    client = CopilotClient(
        connection=RuntimeConnection.for_stdio(path=given["program"]),
        working_directory=given["cwd"],
        env=given["env"],
        log_level="error",
        use_logged_in_user=False,
    )
    await client.start()
    session = await client.create_session(
        on_permission_request=PermissionHandler.approve_all, streaming=True, **given["session"]
    )
    wrong = 0
    for parked, prompt, words in given["pairs"]:
        speaks = asyncio.Event()
        loop = asyncio.get_running_loop()
        leave = session.on(lambda event: _note(event, loop, speaks))  # noqa: B023
        await session.send(parked)
        await asyncio.wait_for(speaks.wait(), SPEAKS_WITHIN)
        leave()
        await session.abort()
        try:
            answer = await session.send_and_wait(prompt, timeout=SPEAKS_WITHIN)
        except Exception:
            answer = None
        said = getattr(getattr(answer, "data", None), "content", "")
        wrong += words not in said
        # Whatever is left of it, the next pair begins with a quiet session.
        await asyncio.sleep(0.3)
    await client.force_stop()
    print(json.dumps({"wrong": wrong}))


def _note(event: object, loop: asyncio.AbstractEventLoop, speaks: asyncio.Event) -> None:
    if "message_delta" in str(getattr(event, "type", "")).lower():
        loop.call_soon_threadsafe(speaks.set)


if __name__ == "__main__":
    asyncio.run(main())
