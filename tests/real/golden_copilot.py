"""The real Copilot, by its SDK, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_copilot      # records them all anew
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import attrs
import trio

from turnstop.adapters.copilot._open import open_backend
from turnstop.adapters.copilot._program import Launch
from turnstop.adapters.copilot._session import Settings
from turnstop.lab import copilot_session, find_program, open_lab, program_env
from turnstop.testing.golden import Recordings, WireFrame
from turnstop.testing.recording.copilot.rules import RULES, copilot_names
from turnstop.testing.recording.copilot.scenes import SCENES

from .recorder import GOLDEN, LabWorld, find_none, record_anew

RECORDINGS = Recordings(GOLDEN / "copilot", "copilot", RULES, copilot_names)
PATIENCE = 60.0
NOISE = ("assistant.idle", "agent.interrupted", "session.title_changed")


@attrs.define
class RealWorld(LabWorld):
    """The lab's model, which uses Copilot's shell."""

    # Nobody is asked about a command that only reads.
    commands: ClassVar = {"park": "sleep 60", "answer": "touch a.txt"}


async def record(name: str, home: Path) -> tuple[WireFrame, ...]:
    """Play a scene on the real program; all that went by until it was left."""
    scene = SCENES[name]
    frames: list[WireFrame] = []

    def keep(direction: Any, message: Any) -> None:
        frames.append(WireFrame(direction, message))

    with trio.fail_after(PATIENCE):
        async with open_lab() as lab:
            env: Any = program_env("copilot", lab.url, home)
            launch = Launch(find_program("copilot").command, str(home), env, tap=keep)
            options = copilot_session(lab.url) | {"working_directory": str(home)}
            settings = Settings(options, **scene.settings)
            async with open_backend(launch, settings) as copilot:
                # What Copilot is told has to do: its processes are looked for in no table.
                copilot._look = find_none
                await scene.play(copilot, RealWorld(lab))
                # What the SDK says to take its leave is its own affair.
                return tuple(frames)
    raise AssertionError("unreachable")


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = await find_program("copilot").version()
    for name in sys.argv[1:] or SCENES:
        await record_anew(RECORDINGS, version, name, record, noise=NOISE)


if __name__ == "__main__":
    trio.run(main)
