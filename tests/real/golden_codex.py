"""The real codex, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_codex      # records them all anew
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

import turnstop
from turnstop.adapters.codex import open_codex
from turnstop.lab import Behaviour, Lab, find_program, open_lab, program_env, write_prompt
from turnstop.lab.responses import ResponsesReply
from turnstop.testing.golden import Wire, WireFrame, read_frames, tidy, write_wire
from turnstop.testing.recording.codex.rules import RULES, codex_names
from turnstop.testing.recording.codex.scenes import SCENES, Scene

FOLDER = Path(__file__).parents[1] / "golden" / "codex"
PATIENCE = 120.0


@contextmanager
def sub_agents() -> Iterator[None]:
    """Let the lab's model turn the command `AGENT prompt` into a sub-agent with that prompt."""
    plain = ResponsesReply.call

    def call_agent(reply: ResponsesReply, name: str, arguments: Mapping[str, Any]) -> bytes:
        frame = plain(reply, name, arguments)
        _, found, prompt = arguments.get("cmd", "").partition("AGENT ")
        if not found:
            return frame
        call = reply._output[-1]
        call["namespace"] = "multi_agent_v1"
        call["name"] = "spawn_agent"
        call["arguments"] = json.dumps({"message": prompt})
        return reply._event("response.output_item.done", output_index=0, item=call)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ResponsesReply, "call", call_agent)
        yield


@attrs.define
class RealWorld:
    """The lab's model, and what the tap has kept."""

    lab: Lab
    wire: Path
    agents: dict[str, str] = attrs.field(factory=dict)

    def prompt(self, words: str) -> tuple[str, str]:
        """As the scenes say it, in the lab's words."""
        word, _, then = words.partition(" ")
        if word == "tool":
            behaviour = Behaviour("tool", None, "sleep 60" if then == "park" else "echo hi", then)
        elif word == "agent":
            agent, prompt = write_prompt(Behaviour("park"))
            behaviour = Behaviour("tool", None, f"AGENT {prompt}", "park")
        else:
            behaviour = Behaviour(word)
        token, prompt = write_prompt(behaviour)
        if word == "agent":
            self.agents[token] = agent
        return token, prompt

    async def reached(self, name: str) -> None:
        """Parked, and so is its sub-agent; or its command runs."""
        first = await self.lab.arrived(name)
        if first.behaviour.word == "tool" and name not in self.agents:
            await self.lab.tool_running(name)
            await trio.sleep(0.3)  # codex tells of a command once it has run for a moment
            return
        await self.lab.parked(name)
        if name in self.agents:
            await self.lab.parked(self.agents[name])

    def release(self, name: str) -> None:
        """Answer."""
        self.lab.release(name)

    async def said(self, *texts: str) -> None:
        """Look at the file."""

        def found() -> bool:
            lines = self.wire.read_text(encoding="utf-8").splitlines()
            return any(all(text in line for text in texts) for line in lines)

        while not found():  # noqa: ASYNC110 - a file gives no event
            await trio.sleep(0.01)


async def find_none(marks: object) -> list[object]:
    """No processes."""
    await trio.lowlevel.checkpoint()
    return []


async def record(scene: Scene, home: Path) -> tuple[WireFrame, ...]:
    """Play a scene on the real program; all that went by."""
    wire = home / "wire.jsonl"
    tap = [sys.executable, "-m", "turnstop.lab.tap", str(wire), "--"]
    with trio.fail_after(PATIENCE), sub_agents():
        async with open_lab() as lab:
            env: dict[str, Any] = program_env("codex", lab.url, home)
            env["PYTHONPATH"] = str(Path(turnstop.__file__).parents[1])
            command = [*tap, find_program("codex").path, "app-server"]
            async with open_codex(command, cwd=home, env=env, **scene.settings) as codex:  # type: ignore[arg-type]
                # What codex is told has to do: its commands are looked for in no process table.
                codex._look = find_none
                await scene.play(codex, RealWorld(lab, wire))
    return read_frames(wire)


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = await find_program("codex").version()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or SCENES:
        with tempfile.TemporaryDirectory(prefix="golden-") as home:
            frames = await record(SCENES[name], Path(home))
            names = {home: "<home>", _agent(frames): "<agent>"}
        kept = keep(tidy(frames, names))
        write_wire(FOLDER / f"{name}.jsonl", Wire("codex", version, name, kept))
        print(f"{name}: {len(kept)} frames of {len(frames)}")


def _agent(frames: tuple[WireFrame, ...]) -> str:
    """What codex says of the machine that it runs on."""
    results = [frame.body.get("result") or {} for frame in frames]
    return next(result["userAgent"] for result in results if "userAgent" in result)


def keep(frames: tuple[WireFrame, ...]) -> tuple[WireFrame, ...]:
    """What matters, and a little of what does not, so that it is seen not to."""
    names = codex_names(frames)
    noise = ("thread/status/changed", "item/started agentMessage")
    return tuple(
        frame
        for frame, name in zip(frames, names, strict=True)
        if frame.direction == "->" or f"<- {name}" in RULES or name in noise
    )


if __name__ == "__main__":
    trio.run(main)
