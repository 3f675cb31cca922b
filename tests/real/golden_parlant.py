"""The real Parlant engine in the scenes of the golden events. In an environment that has it:

PYTHONPATH=.:tests python -m real.golden_parlant      # records them all anew
"""

from __future__ import annotations

import importlib.metadata
import json
import re
import sys
from pathlib import Path
from typing import Any

import attrs
import trio

from turnstop.adapters.parlant import open_parlant
from turnstop.lab.parlant import ParkedModel
from turnstop.testing.golden import Recordings, WireFrame
from turnstop.testing.recording.parlant.rules import RULES, as_frames, parlant_names
from turnstop.testing.recording.parlant.scenes import SCENES

from .recorder import GOLDEN, record_anew

RECORDINGS = Recordings(GOLDEN / "parlant", "parlant", RULES, parlant_names)
PATIENCE = 60.0
NOISE = ("status processing", "status typing", "status ready")


@attrs.define
class RealWorld:
    """The lab's model."""

    model: ParkedModel
    names: list[str] = attrs.field(factory=list)

    def prompt(self, words: str) -> tuple[str, str]:
        """As the scenes say it."""
        name = f"prompt-{len(self.names) + 1}"
        self.names.append(name)
        return self.model.write(words, name)

    async def reached(self, name: str) -> None:
        """It waits."""
        await self.model.parked(name)

    def release(self, name: str) -> None:
        """Let it go on."""
        self.model.release(name)


async def record(name: str, home: Path | None = None) -> list[WireFrame]:
    """Play a scene on the real engine; all that was said in its sessions."""
    world = RealWorld(model := ParkedModel())
    frames: list[WireFrame] = []
    with trio.fail_after(PATIENCE):
        async with open_parlant(model.prepare, **model.options()) as backend:
            await SCENES[name].play(backend, world)
            for session in dict.fromkeys(model.session(one) for one in world.names):
                assert session is not None
                frames += as_frames(session, await events_of(backend, session))
    return frames


async def events_of(backend: Any, session: str) -> Any:
    """Whatever was said in a session."""

    async def find() -> Any:
        return await backend.engine._sessions.find_events(
            session_id=session, min_offset=0, source=None, kinds=[], trace_id=None
        )

    return await backend.aio.call_unowned(find)


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = importlib.metadata.version("parlant")
    for name in sys.argv[1:] or SCENES:
        await record_anew(RECORDINGS, version, name, record, noise=NOISE, trim=trim, names=ids_of)


def trim(frame: WireFrame, name: str) -> WireFrame:
    """Without this machine's paths in a traceback."""
    if name != "status error":
        return frame
    text = re.sub(r"/[\w./+-]+/([\w-]+\.py)", r"<path>/\1", json.dumps(frame.body))
    return attrs.evolve(frame, body=json.loads(text))


def ids_of(frames: tuple[WireFrame, ...]) -> dict[str, str]:
    """Sessions, traces, agents and customers: new ones each time."""
    found: dict[str, str] = {}
    for frame in frames:
        found.setdefault(frame.body["session"], f"<session {len(found) + 1}>")
        found.setdefault(frame.body["trace"], f"<trace {len(found) + 1}>")
        participant = (frame.body["data"] or {}).get("participant") or {}
        if "id" in participant:
            found.setdefault(participant["id"], f"<participant {len(found) + 1}>")
    return found


if __name__ == "__main__":
    trio.run(main)
