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
from turnstop.testing.golden import Wire, WireFrame, tidy, write_wire
from turnstop.testing.recording.a2a.cable import Cable
from turnstop.testing.recording.a2a.rules import RULES, a2a_names
from turnstop.testing.recording.a2a.scenes import SCENES, Scene
from turnstop.testing.recording.a2a.tap import WireTap

FOLDER = Path(__file__).parents[1] / "golden" / "a2a"
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


async def record(scene: Scene) -> tuple[WireFrame, ...]:
    """Play a scene on the real server; all that went by."""
    tap = WireTap(cable := Cable())
    streaming, blocking = scene.kind == "streaming", scene.kind == "plain"
    with trio.fail_after(PATIENCE):
        async with open_a2a_server(streaming=streaming, blocking=blocking) as server:
            async with open_a2a(server.url, transport=tap) as backend:
                await scene.play(backend, RealWorld(server, cable))
    return tuple(tap.frames)


def keep(frames: tuple[WireFrame, ...]) -> tuple[WireFrame, ...]:
    """Those that matter."""
    named = zip(frames, a2a_names(frames), strict=True)
    return tuple(one for one, name in named if f"{one.direction} {name}" in RULES)


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = importlib.metadata.version("a2a-sdk")
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or SCENES:
        frames = await record(SCENES[name])
        kept = keep(tidy(frames, {}))
        write_wire(FOLDER / f"{name}.jsonl", Wire("a2a-sdk", version, name, kept))
        print(f"{name}: {len(kept)} frames of {len(frames)}")


if __name__ == "__main__":
    trio.run(main)
