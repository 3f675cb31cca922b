"""The engine in memory is honest: in each scene it says what the real one said."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from worlds import RecordedWorld

from turnstop.testing import run_in_virtual_time
from turnstop.testing.golden import Recordings, WireFrame
from turnstop.testing.recording.parlant.rules import RULES, as_frames, parlant_names
from turnstop.testing.recording.parlant.scenes import SCENES, Scene

pytest.importorskip("trio_asyncio")

from turnstop.adapters.parlant import open_parlant
from turnstop.testing.recording.parlant import RecordingParlant, _engine
from turnstop.testing.recording.parlant._processing import Processing

FOLDER = Path(__file__).parents[1] / "golden" / "parlant"
GOLDEN = Recordings(FOLDER, "parlant", RULES, parlant_names)


@attrs.define
class World(RecordedWorld):
    engine: RecordingParlant

    async def play(self, name: str, words: str) -> None:
        while not (found := [w for w in self.engine.works if name in w.text]):  # noqa: ASYNC110
            await trio.sleep(0.01)
        (work,) = found
        word, _, place = words.partition(" ")
        if word == "fail":
            self.engine.order(work, "fail", "no flour left")
        elif word == "mute":
            self.engine.order(work, "finish")
        elif word == "answer":
            self.engine.order(work, "emit", "the answer", 0.0)
        elif place == "emission":
            self.engine.order(work, "emit", "the answer", 0.2)
            await trio.sleep(0.05)
        self.silent[name].set()


async def played(scene: Scene, engine: RecordingParlant) -> list[WireFrame]:
    async with trio.open_nursery() as nursery:
        async with open_parlant(engine.prepare, library=engine.library) as backend:
            await scene.play(backend, World(nursery, engine))
            engine.die()
        nursery.cancel_scope.cancel()
    sessions = dict.fromkeys(work.session for work in engine.works)
    return [
        frame for session in sessions for frame in as_frames(session, engine.store.all_of(session))
    ]


def unlike(name: str, engine: RecordingParlant) -> list[str]:
    return GOLDEN.differences(name, run_in_virtual_time(played, SCENES[name], engine))


@pytest.mark.parametrize("name", SCENES)
def test_it_says_what_the_real_engine_said(name: str) -> None:
    assert unlike(name, RecordingParlant()) == []


class Mild(Processing):
    """Says of no turn that it was cancelled."""

    def tell(self, status: str, **data: object) -> None:
        if status != "cancelled":
            super().tell(status, **data)


class Hasty(Processing):
    """Says of an error before it says that it is ready."""

    def tell(self, status: str, **data: object) -> None:
        if status == "ready":
            super().tell("error", exception="?")
        super().tell(status, **data)


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        (Mild, "stop_while_matching", "<- status cancelled: does not come after"),
        (Hasty, "fail", "<- status error: comes, and is not due after <- status acknowledged"),
    ],
)
def test_one_that_says_otherwise_is_told_of(
    kind: type[Processing], name: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_engine, "Processing", kind)
    found = unlike(name, RecordingParlant())
    assert any(line in one for one in found), found


def test_every_recording_is_of_a_scene() -> None:
    assert GOLDEN.misfits(SCENES) == []
