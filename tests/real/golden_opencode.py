"""The real opencode, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_opencode      # records them all anew
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterable
from functools import partial
from pathlib import Path

import attrs
import httpx2
import trio

from turnstop.adapters.opencode import open_opencode
from turnstop.lab import Behaviour, find_program, open_lab, program_env, write_prompt
from turnstop.testing.golden import Wire, WireFrame, tidy, write_wire
from turnstop.testing.recording.opencode.rules import RULES, opencode_names
from turnstop.testing.recording.opencode.scenes import SCENES
from turnstop.testing.recording.opencode.tap import WireTap

FOLDER = Path(__file__).parents[1] / "golden" / "opencode"
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


async def record(name: str) -> tuple[WireFrame, ...]:
    """Play a scene on the real program; all that went by."""
    tap = WireTap(httpx2.AsyncHTTPTransport())
    folder = partial(tempfile.TemporaryDirectory, ignore_cleanup_errors=True)
    with trio.fail_after(PATIENCE), folder(prefix="turnstop-golden-") as home:
        async with open_lab() as lab:
            env = program_env("opencode", lab.url, home)
            command = find_program("opencode").path
            async with open_opencode(
                command=command, directory=home, env=env, transport=tap
            ) as backend:
                await SCENES[name](backend, RealWorld())
                # The last words of a turn that is over come behind it.
                await trio.sleep(0.3)
    return tidy(tap.frames, {home: "<home>", home.lstrip("/"): "<home>"})


def keep(frames: Iterable[WireFrame]) -> tuple[WireFrame, ...]:
    """Those that matter."""
    found = tuple(frames)
    named = zip(found, opencode_names(found), strict=True)
    return tuple(one for one, name in named if f"{one.direction} {name}" in RULES)


async def main() -> None:
    """Record every scene anew, or those that are named."""
    version = await find_program("opencode").version()
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or SCENES:
        frames = await record(name)
        kept = keep(frames)
        write_wire(FOLDER / f"{name}.jsonl", Wire("opencode", version, name, kept))
        print(f"{name}: {len(kept)} frames of {len(frames)}")


if __name__ == "__main__":
    trio.run(main)
