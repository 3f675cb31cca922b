"""The real codex, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_codex      # records them all anew
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import attrs
import pytest
import trio

from turnstop.adapters.codex import open_codex
from turnstop.lab import Behaviour, find_program, open_lab, program_env, write_prompt
from turnstop.lab.responses import ResponsesReply
from turnstop.testing.golden import Recordings, WireFrame, read_frames
from turnstop.testing.recording.codex.rules import RULES, codex_names
from turnstop.testing.recording.codex.scenes import SCENES

from .recorder import GOLDEN, PYTHONPATH, TappedWorld, find_none, record_anew, tap_into

RECORDINGS = Recordings(GOLDEN / "codex", "codex", RULES, codex_names)
PATIENCE = 120.0
NOISE = ("thread/status/changed", "item/started agentMessage")


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
class RealWorld(TappedWorld):
    """The lab's model, and which sub-agent was set to work."""

    agents: dict[str, str] = attrs.field(factory=dict)
    commands: ClassVar = {"park": "sleep 60", "answer": "echo hi"}

    def prompt(self, words: str) -> tuple[str, str]:
        """As the scenes say it, in the lab's words."""
        if words != "agent":
            return super().prompt(words)
        agent, prompt = write_prompt(Behaviour("park"))
        token, prompt = write_prompt(Behaviour("tool", None, f"AGENT {prompt}", "park"))
        self.agents[token] = agent
        return token, prompt

    async def reached(self, name: str) -> None:
        """Parked, and so is its sub-agent; or its command runs."""
        if name in self.agents:
            await self.lab.parked(name)
            await self.lab.parked(self.agents[name])
            return
        await super().reached(name)
        if (await self.lab.arrived(name)).behaviour.word == "tool":
            await trio.sleep(0.3)  # codex tells of a command once it has run for a moment


async def record(name: str, home: Path) -> tuple[WireFrame, ...]:
    """Play a scene on the real program; all that went by."""
    scene, wire = SCENES[name], home / "wire.jsonl"
    with trio.fail_after(PATIENCE), sub_agents():
        async with open_lab() as lab:
            env: dict[str, Any] = program_env("codex", lab.url, home)
            env["PYTHONPATH"] = PYTHONPATH
            command = [*tap_into(wire), find_program("codex").path, "app-server"]
            async with open_codex(command, cwd=home, env=env, **scene.settings) as codex:  # type: ignore[arg-type]
                # What codex is told has to do: its commands are looked for in no process table.
                codex._look = find_none
                await scene.play(codex, RealWorld(lab, wire))
    return read_frames(wire)


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = await find_program("codex").version()
    for name in sys.argv[1:] or SCENES:
        await record_anew(RECORDINGS, version, name, record, noise=NOISE, names=agent)


def agent(frames: tuple[WireFrame, ...]) -> Mapping[str, str]:
    """What codex says of the machine that it runs on."""
    results = [frame.body.get("result") or {} for frame in frames]
    return {result["userAgent"]: "<agent>" for result in results if "userAgent" in result}


if __name__ == "__main__":
    trio.run(main)
