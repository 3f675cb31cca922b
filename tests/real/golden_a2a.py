"""The real a2a-sdk server, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_a2a      # records them all anew
"""

from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import attrs
import trio

from turnstop.adapters.a2a import open_a2a
from turnstop.lab.a2a import A2AServer, open_a2a_server
from turnstop.testing.golden import Recordings, WireFrame
from turnstop.testing.recording.a2a.cable import Cable
from turnstop.testing.recording.a2a.rules import RULES, a2a_names
from turnstop.testing.recording.a2a.scenes import SCENES
from turnstop.testing.recording.a2a.tap import WireTap

from .recorder import GOLDEN, record_anew

RECORDINGS = Recordings(GOLDEN / "a2a", "a2a-sdk", RULES, a2a_names)
PATIENCE = 60.0


@attrs.define
class RealWorld:
    """The lab's executor."""

    server: A2AServer
    cable: Cable
    names: list[str] = attrs.field(factory=list)

    def message(self, words: str) -> tuple[str, str]:
        """As the scenes say it, in the lab's words."""
        name = f"message-{len(self.names) + 1}"
        self.names.append(name)
        return name, f"{words} token={name}"

    async def began(self, name: str) -> None:
        """The executor runs."""
        await self.server.began(name)

    def cut(self) -> None:
        """At this end."""
        self.cable.cut()


async def record(name: str, home: Path | None = None) -> list[WireFrame]:
    """Play a scene on the real server, which needs no folder; all that went by."""
    scene = SCENES[name]
    kind = scene.settings["kind"]
    tap = WireTap(cable := Cable())
    streaming, blocking = kind == "streaming", kind == "plain"
    with trio.fail_after(PATIENCE):
        async with open_a2a_server(streaming=streaming, blocking=blocking) as server:
            async with open_a2a(server.url, transport=tap) as backend:
                await scene.play(backend, RealWorld(server, cable))
    return tap.frames


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = importlib.metadata.version("a2a-sdk")
    for name in sys.argv[1:] or SCENES:
        await record_anew(RECORDINGS, version, name, record)


if __name__ == "__main__":
    trio.run(main)
