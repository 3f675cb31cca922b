"""A folder of recordings: one program's golden wire, a file a scene."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path

import attrs

from ._differences import Names, Rule, differences, jsonrpc_names
from ._wire import Wire, WireFrame, read_wire, write_wire


@attrs.frozen
class Recordings:
    """The recordings of one program, and what of them matters.

    Attributes:
        folder: where they are; each is named `SCENE.jsonl`.
        program: whose they are, as their headers say.
        rules: what matters, by direction and name; see `differences`.
        names: gives each frame its name.
    """

    folder: Path
    program: str
    rules: Mapping[str, Rule]
    names: Names = jsonrpc_names

    def _path(self, scene: str) -> Path:
        return self.folder / f"{scene}.jsonl"

    def read(self, scene: str) -> Wire:
        """The recording of a scene.

        Raises:
            OSError: there is none.
            ValueError: its first line is no header.
        """
        return read_wire(self._path(scene))

    def differences(
        self, scene: str, found: Iterable[WireFrame], rules: Mapping[str, Rule] | None = None
    ) -> list[str]:
        """What of `found` is not as it was recorded, a readable line each.

        Args:
            scene: the one that was played.
            found: what went by.
            rules: what matters, where the real program has more freedom in this scene than a
                double is to have.
        """
        golden = self.read(scene).frames
        return differences(golden, found, self.rules if rules is None else rules, self.names)

    def matter(
        self, frames: Sequence[WireFrame], noise: Collection[str] = ()
    ) -> list[tuple[WireFrame, str]]:
        """The frames that matter, and what has one of the names in `noise`, each with its name."""
        return [
            (frame, name)
            for frame, name in zip(frames, self.names(frames), strict=True)
            if frame.direction == "->" or f"<- {name}" in self.rules or name in noise
        ]

    def write(self, scene: str, version: str, frames: Iterable[WireFrame]) -> None:
        """Keep what was recorded of this version; make it `tidy` first."""
        self.folder.mkdir(parents=True, exist_ok=True)
        write_wire(self._path(scene), Wire(self.program, version, scene, tuple(frames)))

    def misfits(self, scenes: Iterable[str]) -> list[str]:
        """Which scene has no recording, and which recording is of no scene, or says another."""
        stems, known = {path.stem for path in self.folder.glob("*.jsonl")}, {*scenes}
        found = [f"{scene}: has no recording" for scene in sorted(known - stems)]
        found += [f"{scene}: is no scene" for scene in sorted(stems - known)]
        for scene in sorted(stems & known):
            wire = self.read(scene)
            if (wire.program, wire.scene) != (self.program, scene):
                found.append(f"{scene}: says that it is of {wire.program}, {wire.scene}")
        return found
