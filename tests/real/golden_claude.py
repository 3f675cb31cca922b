"""The real Claude Code, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_claude      # records them all anew
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path
from typing import Any, ClassVar

import attrs
import trio

from turnstop.adapters.claude import open_claude
from turnstop.lab import Behaviour, find_program, open_lab, program_env, write_prompt
from turnstop.testing.golden import Recordings, WireFrame, read_frames
from turnstop.testing.recording.claude.rules import RULES, claude_names
from turnstop.testing.recording.claude.scenes import SCENES

from .recorder import GOLDEN, PYTHONPATH, TappedWorld, find_none, record_anew, tap_into

RECORDINGS = Recordings(GOLDEN / "claude", "claude", RULES, claude_names)
PATIENCE = 30.0
# A sleep alone is refused: it is to be run behind the turn.
WAIT = "sleep 60 & wait"
# Nobody is asked about a command that only reads.
TOUCH = "touch a.txt"
NOISE = ("system/status", "stream_event content_block_start", "command_lifecycle queued")


@attrs.define
class RealWorld(TappedWorld):
    """The lab's model, which uses Claude's tools."""

    commands: ClassVar = {"park": WAIT, "answer": TOUCH}

    def call(self, name: str, what: str) -> None:
        """Have the model use a tool of Claude's."""
        if what == "task":
            behind = {"command": f"export TURNSTOP_LAB_TURN={name}; {WAIT}", "description": "wait"}
            self.lab.order(name, "call", "Bash", {**behind, "run_in_background": True})
        elif what == "agent":
            agent = {"description": "look", "prompt": write_prompt(Behaviour("park"))[1]}
            self.lab.order(name, "call", "Task", {**agent, "subagent_type": "general-purpose"})
        else:
            options = [{"label": one, "description": one} for one in ("tea", "coffee")]
            asked = {"question": "Which?", "header": "Drink", "options": options}
            questions = [{**asked, "multiSelect": False}]
            self.lab.order(name, "call", "AskUserQuestion", {"questions": questions})

    async def end_tasks(self) -> None:
        """Whatever carries the lab's mark, and waits."""
        await trio.lowlevel.checkpoint()
        tokens = {exchange.token for exchange in self.lab.exchanges if exchange.token}
        # On a busy machine the command is told of before it runs.
        while not (found := [one for token in tokens for one in self.lab.processes(token)]):  # noqa: ASYNC110
            await trio.sleep(0.01)
        for process in found:
            os.kill(process.pid, signal.SIGTERM)


async def record(name: str, home: Path) -> tuple[WireFrame, ...]:
    """Play a scene on the real program; all that went by."""
    scene, wire = SCENES[name], home / "wire.jsonl"
    with trio.fail_after(PATIENCE):
        async with open_lab() as lab:
            env: dict[str, Any] = program_env("claude", lab.url, home)
            env["PYTHONPATH"] = PYTHONPATH
            command = [*tap_into(wire), find_program("claude").path]
            async with open_claude(
                command, cwd=home, env=env, setting_sources=(), **scene.settings
            ) as claude:
                # What Claude is told has to do: its processes are looked for in no table.
                backend: Any = claude
                backend._look = find_none
                await scene.play(claude, RealWorld(lab, wire))
    return tuple(frame for frame in read_frames(wire) if isinstance(frame.body, dict))


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = await find_program("claude").version()
    for name in sys.argv[1:] or SCENES:
        await record_anew(RECORDINGS, version, name, record, noise=NOISE, trim=trim)


def trim(frame: WireFrame, name: str) -> WireFrame:
    """Without its long lists of commands, tools and models."""
    body = frame.body
    if name == "initialize = success":
        answer = body["response"]
        kept = {key: answer["response"][key] for key in ("claude_code_version", "capabilities")}
        return WireFrame("<-", {**body, "response": {**answer, "response": kept}})
    if name == "system/init":
        keys = ("type", "subtype", "session_id", "capabilities", "user_message_uuids", "model")
        return WireFrame("<-", {key: body[key] for key in keys if key in body})
    return frame


if __name__ == "__main__":
    trio.run(main)
