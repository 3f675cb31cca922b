"""Agents for the tests of the ACP adapter, in memory and small programs, and what drives them."""

from __future__ import annotations

import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import trio
from trio.testing import wait_all_tasks_blocked

import turnstop
from turnstop import Ending
from turnstop.events import Text
from turnstop.testing import Work
from turnstop.testing.recording.acp import QUIRKS, RecordingAcp
from turnstop.transports.proctable import find_marked

__all__ = [
    "LEAVES",
    "agent",
    "answered",
    "asked",
    "end_all",
    "finished",
    "lose",
    "sleepers",
    "write",
]

# In memory.


def agent(profile: str = "generic") -> RecordingAcp:
    return RecordingAcp(QUIRKS[profile])


async def asked(acp: RecordingAcp, number: int = 1) -> Work:
    """Wait until this many prompts were asked; the last of them."""
    while len(acp.works) < number:  # noqa: ASYNC110 - a record gives no event
        await trio.sleep(0.001)
    await trio.sleep(0.02)
    return acp.works[number - 1]


async def lose(acp: RecordingAcp) -> None:
    """Its processes end, and that was seen."""
    acp.end_all()
    await wait_all_tasks_blocked()


async def finished(acp: RecordingAcp, rooms: turnstop.Rooms[Any]) -> list[object]:
    """A turn that is answered; what was heard of it."""
    number = len(acp.works) + 1
    heard: list[object] = []
    async with trio.open_nursery() as nursery:

        async def answer() -> None:
            work = await asked(acp, number)
            acp.say(work, "own")
            acp.finish(work)

        nursery.start_soon(answer)
        async with rooms.turn("kitchen", "next") as turn:
            async for event in turn:
                heard.append(event)
    assert turn.settlement is not None
    assert turn.settlement.ending is Ending.FINISHED
    return heard


# Programs.

# A whole agent. What stands in the place of `on_prompt` is what each test is about.
AGENT = """
import json, os, subprocess, sys, time

def say(**frame):
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **frame}) + "\\n")
    sys.stdout.flush()

def chunk(text):
    update = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": text}}
    say(method="session/update", params={"sessionId": session, "update": update})

def on_start(): pass
def on_hello(number): say(id=number, result={"protocolVersion": 1, "agentCapabilities": {}})
def on_prompt(text): pass
def on_new(number): say(id=number, result={"sessionId": f"S{sessions}"})
def on_other(frame): say(id=frame["id"], result={})

PATCH

on_start()
prompts, sessions = {}, 0
for line in sys.stdin:
    frame = json.loads(line)
    method = frame.get("method")
    if method == "initialize":
        on_hello(frame["id"])
    elif method == "session/new":
        sessions += 1
        on_new(frame["id"])
    elif method == "session/prompt":
        session, prompt = frame["params"]["sessionId"], frame["id"]
        prompts[session] = prompt
        text = frame["params"]["prompt"][0]["text"]
        if text == "answer":
            chunk("the answer")
            say(id=prompt, result={"stopReason": "end_turn"})
        else:
            chunk("begun")
            on_prompt(text)
    elif method in ("authenticate", "session/set_mode", "session/load"):
        on_other(frame)
    elif method == "session/cancel":
        say(id=prompts[frame["params"]["sessionId"]], result={"stopReason": "cancelled"})
"""
LEAVES = """
def on_prompt(text):
    command = [sys.executable, "-c", "import time; time.sleep(300)"]
    mine = {"QWEN_CODE": "1", "CODEX_THREAD_ID": session}
    env = {**os.environ, **(mine if text.startswith(("tool", "done")) else {})}
    subprocess.Popen(command, start_new_session=True, env=env, stdout=subprocess.DEVNULL)
    if "killed" in text:
        time.sleep(300)
    chunk("left")
    if text == "done":
        say(id=prompt, result={"stopReason": "end_turn"})
"""


def write(folder: Path, patch: str) -> list[str]:
    script = folder / "agent.py"
    script.write_text(AGENT.replace("PATCH", textwrap.dedent(patch)))
    return [sys.executable, str(script)]


async def answered(rooms: turnstop.Rooms[Any], room: str) -> None:
    async with rooms.turn(room, "answer") as turn:
        said = [event.delta async for event in turn if isinstance(event, Text)]
    assert said == ["the answer"]
    assert turn.settlement is not None
    assert turn.settlement.ending is Ending.FINISHED


async def sleepers(folder: Path) -> int:
    marks = {"TURNSTOP_TEST_FOLDER": str(folder)}
    return len([one for one in await find_marked(marks) if "sleep(300)" in one.process.command])


async def end_all(folder: Path) -> None:
    for one in await find_marked({"TURNSTOP_TEST_FOLDER": str(folder)}):
        os.kill(one.process.pid, 9)
