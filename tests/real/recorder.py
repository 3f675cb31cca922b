"""What the scripts that record golden wire have in common."""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeAlias, cast

import attrs
import pytest
import trio

import turnstop
from turnstop.lab import Behaviour, Lab, Program, write_prompt
from turnstop.lab.behaviours import Word
from turnstop.testing.golden import Recordings, WireFrame, tidy

__all__ = [
    "GOLDEN",
    "PYTHONPATH",
    "LabWorld",
    "TappedWorld",
    "expect_recorded",
    "find_none",
    "record_anew",
    "renamed",
    "tap_into",
]

Frames: TypeAlias = tuple[WireFrame, ...]

GOLDEN = Path(__file__).parents[1] / "golden"
# For a tap in a process of its own.
PYTHONPATH = str(Path(turnstop.__file__).parents[1])


def tap_into(wire: Path) -> list[str]:
    """The command in front of a program's own, whose frames it writes to a file."""
    wire.touch()
    return [sys.executable, "-m", "turnstop.lab.tap", str(wire), "--"]


@attrs.define
class LabWorld:
    """The lab's model, which is told by the prompts what to do."""

    lab: Lab
    # What its shell runs, by what it does then.
    commands: ClassVar[Mapping[str, str]] = {}

    def prompt(self, words: str) -> tuple[str, str]:
        """As the scenes say it, in the lab's words."""
        word, _, then = words.partition(" ")
        if word == "tool":
            return write_prompt(Behaviour("tool", None, self.commands[then], cast(Word, then)))
        return write_prompt(Behaviour(cast(Word, word)))

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


@attrs.define
class TappedWorld(LabWorld):
    """The lab's model, and what the tap has kept."""

    wire: Path

    async def said(self, *texts: str) -> None:
        """Look at the file."""

        def found() -> bool:
            lines = self.wire.read_text(encoding="utf-8").splitlines()
            return any(all(text in line for text in ('"<-"', *texts)) for line in lines)

        while not found():  # noqa: ASYNC110 - a file gives no event
            await trio.sleep(0.01)


async def find_none(*marks: object) -> list[Any]:
    """In place of a look for processes: what the program is told has to do."""
    await trio.lowlevel.checkpoint()
    return []


async def record_anew(
    recordings: Recordings,
    version: str,
    scene: str,
    record: Callable[[str, Path], Awaitable[Iterable[WireFrame]]],
    *,
    noise: Collection[str] = (),
    trim: Callable[[WireFrame, str], WireFrame] = lambda frame, name: frame,
    names: Callable[[Frames], Mapping[str, str]] = lambda frames: {},
) -> None:
    """Record a scene, and keep what matters.

    Args:
        recordings: where to.
        version: of the program.
        scene: its name.
        record: plays it in a folder, and returns all that went by.
        noise: names of what does not matter and is kept all the same, so that it is seen not to.
        trim: takes out of a frame, told its name, what is long and not read.
        names: what else is of this machine, by what the program has said.
    """
    with tempfile.TemporaryDirectory(prefix="golden-", ignore_cleanup_errors=True) as home:
        frames = tuple(await record(scene, Path(home)))
    own = {home: "<home>", home.lstrip("/"): "<home>", **names(frames)}
    kept = recordings.matter(tidy(frames, own), noise)
    recordings.write(scene, version, [trim(frame, name) for frame, name in kept])
    print(f"{recordings.program} {scene}: {len(kept)} frames of {len(frames)}")


async def expect_recorded(program: Program, recordings: Recordings, scene: str = "finish") -> None:
    """Another version may do as well: this one says why a scene differs, if one does."""
    version, recorded = await program.version(), recordings.read(scene).version
    if version != recorded:
        pytest.skip(f"recorded of {recorded}, and here is {version}")


def renamed(frames: Iterable[WireFrame], text: str, instead: str) -> list[WireFrame]:
    """The frames with another text, wherever it stands in them."""
    return [
        attrs.evolve(frame, body=json.loads(json.dumps(frame.body).replace(text, instead)))
        for frame in frames
    ]
