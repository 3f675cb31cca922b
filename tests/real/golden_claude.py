"""The real Claude Code, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_claude      # records them all anew
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs
import trio

import turnstop
from turnstop.adapters.claude import open_claude
from turnstop.lab import Behaviour, Lab, find_program, open_lab, program_env, write_prompt
from turnstop.testing.golden import Wire, WireFrame, read_frames, tidy, write_wire
from turnstop.testing.recording.claude.rules import RULES, claude_names
from turnstop.testing.recording.claude.scenes import SCENES, Scene

FOLDER = Path(__file__).parents[1] / "golden" / "claude"
PATIENCE = 30.0
# A sleep alone is refused: it is to be run behind the turn.
WAIT = "sleep 60 & wait"
# Nobody is asked about a command that only reads.
TOUCH = "touch a.txt"
NOISE = ("system/status", "stream_event content_block_start", "command_lifecycle queued")


@attrs.define
class RealWorld:
    """The lab's model, and what the tap has kept."""

    lab: Lab
    wire: Path
    sub_agent: str = ""

    def prompt(self, words: str) -> tuple[str, str]:
        """As the scenes say it, in the lab's words."""
        word, _, then = words.partition(" ")
        if word == "tool":
            behaviour = Behaviour("tool", None, WAIT if then == "park" else TOUCH, then)  # type: ignore[arg-type]
        else:
            behaviour = Behaviour(word)  # type: ignore[arg-type]
        return write_prompt(behaviour)

    async def reached(self, name: str) -> None:
        """Parked, or its command runs."""
        first = await self.lab.arrived(name)
        if first.behaviour.word == "tool":
            await self.lab.tool_running(name)
        else:
            await self.lab.parked(name)

    def release(self, name: str) -> None:
        """Answer."""
        self.lab.release(name)

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

    async def said(self, *texts: str) -> None:
        """Look at the file."""

        def found() -> bool:
            lines = self.wire.read_text(encoding="utf-8").splitlines()
            return any(all(text in line for text in texts) and '"<-"' in line for line in lines)

        while not found():  # noqa: ASYNC110 - a file gives no event
            await trio.sleep(0.01)

    async def end_tasks(self) -> None:
        """Whatever carries the lab's mark, and waits."""
        await trio.lowlevel.checkpoint()
        for token in {exchange.token for exchange in self.lab.exchanges if exchange.token}:
            for process in self.lab.processes(token):
                os.kill(process.pid, signal.SIGTERM)


async def find_none(marks: object) -> list[Any]:
    """No processes."""
    await trio.lowlevel.checkpoint()
    return []


async def record(scene: Scene, home: Path) -> tuple[WireFrame, ...]:
    """Play a scene on the real program; all that went by."""
    wire = home / "wire.jsonl"
    wire.touch()
    tap = [sys.executable, "-m", "turnstop.lab.tap", str(wire), "--"]
    with trio.fail_after(PATIENCE):
        async with open_lab() as lab:
            env: dict[str, Any] = program_env("claude", lab.url, home)
            env["PYTHONPATH"] = str(Path(turnstop.__file__).parents[1])
            command = [*tap, find_program("claude").path]
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
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or SCENES:
        with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as home:
            frames = await record(SCENES[name], Path(home))
            kept = keep(tidy(frames, {home: "<home>"}))
        write_wire(FOLDER / f"{name}.jsonl", Wire("claude", version, name, kept))
        print(f"{name}: {len(kept)} frames of {len(frames)}")


def keep(frames: tuple[WireFrame, ...]) -> tuple[WireFrame, ...]:
    """What matters, and a little of what does not, so that it is seen not to."""
    names = claude_names(frames)
    return tuple(
        _trimmed(frame)
        for frame, name in zip(frames, names, strict=True)
        if frame.direction == "->" or f"<- {name}" in RULES or name in NOISE
    )


def _trimmed(frame: WireFrame) -> WireFrame:
    """Without its long lists of commands, tools and models."""
    body = frame.body
    if body.get("type") == "control_response" and "commands" in (_response(body) or {}):
        kept = {key: _response(body)[key] for key in ("claude_code_version", "capabilities")}
        return WireFrame("<-", {**body, "response": {**body["response"], "response": kept}})
    if body.get("subtype") == "init":
        names = ("type", "subtype", "session_id", "capabilities", "user_message_uuids", "model")
        return WireFrame("<-", {key: body[key] for key in names if key in body})
    return frame


def _response(body: Any) -> Any:
    return body["response"].get("response")


if __name__ == "__main__":
    trio.run(main)
