"""The real agents that speak ACP, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_acp [PROGRAM]     # records them all anew, or this one's
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
from turnstop.adapters.acp import open_acp
from turnstop.lab import Lab, find_program, open_lab, program_env, write_prompt
from turnstop.lab.behaviours import Behaviour
from turnstop.testing.golden import Wire, WireFrame, read_frames, tidy, write_wire
from turnstop.testing.recording.acp.rules import acp_names, rules_for
from turnstop.testing.recording.acp.scenes import SCENES

FOLDER = Path(__file__).parents[1] / "golden" / "acp"
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


@attrs.define
class RealWorld:
    """The lab's model, and the agent's processes."""

    lab: Lab
    backend: Any

    def prompt(self, words: str) -> tuple[str, str]:
        """As the scenes say it, in the lab's words."""
        if words == "permission":
            return write_prompt(Behaviour("tool", None, ASKS, "answer"))
        return write_prompt(Behaviour(words))  # type: ignore[arg-type]

    async def reached(self, name: str) -> None:
        """Parked."""
        await self.lab.parked(name)

    def release(self, name: str) -> None:
        """Answer."""
        self.lab.release(name)

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
    wire.touch()
    tap = [sys.executable, "-m", "turnstop.lab.tap", str(wire), "--"]
    own: dict[str, str | None] = dict.fromkeys(os.environ, None)
    with trio.fail_after(PATIENCE):
        async with open_lab() as lab:
            env = program_env(name, lab.url, home / "home")
            env["PYTHONPATH"] = str(Path(turnstop.__file__).parents[1])
            command = [*tap, *find_program(name).acp_command]
            mode = MODES.get(name) if "permission" in scene or scene == "approve" else None
            async with open_acp(
                command, profile=PROFILES[name], cwd=home, env=own | env, mode=mode
            ) as acp:
                backend: Any = acp
                backend._processes = Noting(backend._processes)
                await SCENES[scene](acp, RealWorld(lab, backend))
    return tuple(frame for frame in read_frames(wire) if isinstance(frame.body, dict))


async def main() -> None:
    """Record every scene anew, or those of one program."""
    for name in sys.argv[1:] or PROFILES:
        version = await find_program(name).version()
        (FOLDER / name).mkdir(parents=True, exist_ok=True)
        for scene in SCENES:
            with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as home:
                try:
                    frames = await record(name, scene, Path(home))
                except Exception as error:
                    print(f"{name} {scene}: {error!r}")
                    continue
                kept = keep(name, tidy(frames, {home: "<home>"}))
            write_wire(FOLDER / name / f"{scene}.jsonl", Wire(name, version, scene, kept))
            print(f"{name} {scene}: {len(kept)} frames of {len(frames)}")


def keep(program: str, frames: tuple[WireFrame, ...]) -> tuple[WireFrame, ...]:
    """What matters, and a little of what does not, so that it is seen not to."""
    names, rules = acp_names(frames), rules_for(program)
    return tuple(
        _trimmed(frame, name)
        for frame, name in zip(frames, names, strict=True)
        if frame.direction == "->" or f"<- {name}" in rules or name == NOISE
    )


def _trimmed(frame: WireFrame, name: str) -> WireFrame:
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
