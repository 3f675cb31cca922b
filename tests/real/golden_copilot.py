"""The real Copilot, by its SDK, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_copilot      # records them all anew
"""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path
from typing import Any

import attrs
import trio
from copilot.session import PermissionHandler

from turnstop.adapters.copilot._cli import Launch
from turnstop.adapters.copilot._open import open_backend
from turnstop.adapters.copilot._session import Settings
from turnstop.lab import (
    Behaviour,
    Lab,
    copilot_session,
    find_program,
    open_lab,
    program_env,
    write_prompt,
)
from turnstop.testing.golden import Wire, WireFrame, tidy, write_wire
from turnstop.testing.recording.copilot.rules import RULES, copilot_names
from turnstop.testing.recording.copilot.scenes import SCENES, Scene

FOLDER = Path(__file__).parents[1] / "golden" / "copilot"
PATIENCE = 60.0
NOISE = ("assistant.idle", "agent.interrupted", "session.title_changed")


@attrs.define
class RealWorld:
    """The lab's model."""

    lab: Lab

    def prompt(self, words: str) -> tuple[str, str]:
        """As the scenes say it, in the lab's words."""
        word, _, then = words.partition(" ")
        if word == "tool":
            command = "sleep 60" if then == "park" else "touch a.txt"
            return write_prompt(Behaviour("tool", None, command, then))
        return write_prompt(Behaviour(word))

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


async def find_none(*marks: object) -> list[Any]:
    """No processes."""
    await trio.lowlevel.checkpoint()
    return []


async def record(scene: Scene, home: Path) -> tuple[WireFrame, ...]:
    """Play a scene on the real program; all that went by until it was left."""
    frames: list[WireFrame] = []

    def keep(direction: Any, message: Any) -> None:
        frames.append(WireFrame(direction, message))

    with trio.fail_after(PATIENCE):
        async with open_lab() as lab:
            env: Any = program_env("copilot", lab.url, home)
            launch = Launch(find_program("copilot").command, str(home), env, tap=keep)
            options = copilot_session(lab.url) | {"working_directory": str(home)}
            if not scene.asks:
                options["on_permission_request"] = PermissionHandler.approve_all
            async with open_backend(launch, Settings(options)) as copilot:
                # What Copilot is told has to do: its processes are looked for in no table.
                copilot._look = find_none
                await scene.play(copilot, RealWorld(lab))
                # What the SDK says to take its leave is its own affair.
                return tuple(frames)
    raise AssertionError("unreachable")


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = await find_program("copilot").version()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or SCENES:
        with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as home:
            frames = await record(SCENES[name], Path(home))
            kept = keep(tidy(frames, {home: "<home>"}))
        write_wire(FOLDER / f"{name}.jsonl", Wire("copilot", version, name, kept))
        print(f"{name}: {len(kept)} frames of {len(frames)}")


def keep(frames: tuple[WireFrame, ...]) -> tuple[WireFrame, ...]:
    """What matters, and a little of what does not, so that it is seen not to."""
    names = copilot_names(frames)
    return tuple(
        frame
        for frame, name in zip(frames, names, strict=True)
        if frame.direction == "->" or f"<- {name}" in RULES or name in NOISE
    )


if __name__ == "__main__":
    trio.run(main)
