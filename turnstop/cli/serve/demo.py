"""An agent to try the page and the commands with: it needs no model, and no account.

It streams an answer, runs a tool, and asks before it goes on. It does as much as it is told to:
"count to 500" counts for longer than anybody wants to wait.
"""

from __future__ import annotations

import re
from contextlib import AbstractAsyncContextManager

import trio

from ...abc import Backend
from ...adapters.local import Work, open_local
from ...events import Ask, Text, Thought, ToolCall, Usage

__all__ = ["open_demo"]

_PAUSE = 0.08
_MOST = 100_000


async def _say(work: Work, text: str) -> None:
    for word in re.findall(r"\S+\s*", text):
        work.emit(Text(word))
        await trio.sleep(_PAUSE)


async def _run_tool(work: Work, call_id: str, name: str, lines: list[str]) -> None:
    work.emit(ToolCall(call_id, name, "started", lines[0]))
    for line in lines[1:]:
        await trio.sleep(4 * _PAUSE)
        work.emit(ToolCall(call_id, name, "running", line))
    await trio.sleep(4 * _PAUSE)
    work.emit(ToolCall(call_id, name, "completed", "done"))


async def demonstrate(work: Work) -> None:
    """Work on a message as an agent would."""
    content = str(work.content)
    count = re.search(r"\bcount to (\d{1,6})\b", content, re.IGNORECASE)
    if count is not None:
        for number in range(1, min(int(count[1]), _MOST) + 1):
            work.emit(Text(f"{number} "))
            await trio.sleep(_PAUSE)
        return
    work.emit(Thought("I look at what was said, run a tool, and ask before I change anything. "))
    await trio.sleep(4 * _PAUSE)
    await _say(work, f'You said: "{content}". Let me look at the files first.\n')
    await _run_tool(work, "look", "list_files", ["ls", "README.md", "agent.py"])
    ask = Ask("change", "approval", "May I change agent.py?", ("allow", "deny"))
    reply = await work.ask(ask)
    if reply != "allow":
        await _say(work, "Then I leave it as it is.")
    else:
        await _run_tool(work, "edit", "edit_file", ["agent.py", "line 1", "line 2"])
        await _say(work, "That is done. Say: count to 500, and press STOP before I am through.")
    work.emit(Usage(len(content), 60))


def open_demo() -> AbstractAsyncContextManager[Backend[object]]:
    """Open the demonstration agent."""
    return open_local(demonstrate)
