"""The real agents that speak ACP, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_acp [PROGRAM]     # records them all anew, or this one's
"""

from __future__ import annotations

import os
import signal
import sys
from functools import partial
from pathlib import Path
from typing import Any

import attrs
import trio

from turnstop.adapters.acp import open_acp
from turnstop.lab import Behaviour, find_program, open_lab, program_env, write_prompt
from turnstop.testing.golden import Recordings, WireFrame, read_frames
from turnstop.testing.recording.acp.rules import acp_names, rules_for
from turnstop.testing.recording.acp.scenes import SCENES

from .recorder import GOLDEN, PYTHONPATH, LabWorld, record_anew, tap_into

PATIENCE = 120.0
PROFILES = {
    "claude-agent-acp": "claude",
    "codex-acp": "codex",
    "zed-codex-acp": "codex",
    "copilot": "copilot",
    "gemini": "gemini",
    "qwen": "qwen",
    "opencode": "opencode",
    "omp": "omp",
}
"""The programs, and the profile that each is opened with."""

# codex asks about a command only where it is dangerous, or the mode is strict.
MODES = {"codex-acp": "read-only"}
ASKS = "rm -rf ./none; echo from the shell"
_KEPT: dict[str, tuple[str, ...]] = {
    "initialize = result": ("protocolVersion", "agentCapabilities", "agentInfo"),
    "session/new = result": ("sessionId",),
    "session/load = result": (),
    "session/resume = result": (),
}
NOISE = "session/update available_commands_update"


def recordings_of(program: str) -> Recordings:
    """Where its recordings are, and what of them matters."""
    return Recordings(GOLDEN / "acp" / program, program, rules_for(program), acp_names)


@attrs.define
class RealWorld(LabWorld):
    """The lab's model, and the agent's processes."""

    backend: Any

    def prompt(self, words: str) -> tuple[str, str]:
        """As the scenes say it, in the lab's words."""
        if words == "permission":
            return write_prompt(Behaviour("tool", None, ASKS, "answer"))
        return super().prompt(words)

    async def lose(self) -> None:
        """Kill the one process that there is, once it has had the time to write its session."""
        await trio.sleep(1.0)
        for process in self.backend._processes._taken:
            agent = process.current
            os.killpg(agent._peer.process.pid, signal.SIGKILL)
            await agent.broken.wait()


@attrs.define
class Noting:
    """The backend's processes, and which of them were taken."""

    inner: Any
    _taken: list[Any] = attrs.field(factory=list)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def take(self) -> Any:
        self._taken.append(self.inner.take())
        return self._taken[-1]


async def record(name: str, scene: str, home: Path) -> tuple[WireFrame, ...]:
    """Play a scene on the real program; all that went by."""
    wire = home / "wire.jsonl"
    own: dict[str, str | None] = dict.fromkeys(os.environ, None)
    with trio.fail_after(PATIENCE):
        async with open_lab() as lab:
            env = program_env(name, lab.url, home / "home")
            env["PYTHONPATH"] = PYTHONPATH
            command = [*tap_into(wire), *find_program(name).acp_command]
            mode = MODES.get(name) if "permission" in scene or scene == "approve" else None
            async with open_acp(
                command, profile=PROFILES[name], cwd=home, env=own | env, mode=mode
            ) as acp:
                backend: Any = acp
                backend._processes = Noting(backend._processes)
                await SCENES[scene].play(acp, RealWorld(lab, backend))
    return tuple(frame for frame in read_frames(wire) if isinstance(frame.body, dict))


async def main() -> None:
    """Record every scene anew, or those of one program."""
    for name in sys.argv[1:] or PROFILES:
        recordings, version = recordings_of(name), await find_program(name).version()
        for scene in SCENES:
            play = partial(record, name)
            try:
                await record_anew(recordings, version, scene, play, noise=[NOISE], trim=trim)
            except Exception as error:
                print(f"{name} {scene}: {error!r}")


def trim(frame: WireFrame, name: str) -> WireFrame:
    """Without its long lists of commands and models, and of ways to log in on this machine."""
    if name == NOISE:
        update = {"sessionUpdate": "available_commands_update", "availableCommands": []}
        return WireFrame("<-", {**frame.body, "params": {**frame.body["params"], "update": update}})
    kept = _KEPT.get(name)
    if kept is None:
        return frame
    result = {key: frame.body["result"][key] for key in kept if key in frame.body["result"]}
    return WireFrame("<-", {**frame.body, "result": result})


if __name__ == "__main__":
    trio.run(main)
