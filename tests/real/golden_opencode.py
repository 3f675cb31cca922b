"""The real opencode, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_opencode      # records them all anew
"""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import httpx2
import trio

from turnstop.adapters.opencode import open_opencode
from turnstop.lab import Behaviour, find_program, open_lab, program_env, write_prompt
from turnstop.testing.golden import Recordings, WireFrame
from turnstop.testing.recording.opencode.rules import RULES, opencode_names
from turnstop.testing.recording.opencode.scenes import SCENES
from turnstop.testing.recording.opencode.tap import WireTap

from .recorder import GOLDEN, record_anew

RECORDINGS = Recordings(GOLDEN / "opencode", "opencode", RULES, opencode_names)
PATIENCE = 120.0
WORDS = {
    "answer": Behaviour("answer"),
    "park": Behaviour("park", 1),
    "ask": Behaviour("tool", None, "true", "answer"),
}


@attrs.define
class RealWorld:
    names: list[str] = attrs.field(factory=list)

    def message(self, word: str) -> str:
        name = f"message-{len(self.names) + 1}"
        self.names.append(name)
        return write_prompt(WORDS[word], name)[1]


async def record(name: str, home: Path) -> list[WireFrame]:
    """Play a scene on the real program; all that went by."""
    tap = WireTap(httpx2.AsyncHTTPTransport())
    with trio.fail_after(PATIENCE):
        async with open_lab() as lab:
            env = program_env("opencode", lab.url, home)
            command = find_program("opencode").path
            async with open_opencode(
                command=command, directory=home, env=env, transport=tap
            ) as backend:
                await SCENES[name].play(backend, RealWorld())
                # The last words of a turn that is over come behind it.
                await trio.sleep(0.3)
    return tap.frames


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = await find_program("opencode").version()
    for name in sys.argv[1:] or SCENES:
        await record_anew(RECORDINGS, version, name, record)


if __name__ == "__main__":
    trio.run(main)
