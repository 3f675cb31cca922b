"""The app server in memory is honest: in each scene it speaks as the real program did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio
from worlds import RecordedWorld

from turnstop.testing import Work, run_in_virtual_time
from turnstop.testing.golden import Recordings, WireFrame
from turnstop.testing.recording.codex import RecordingCodex, open_recorded
from turnstop.testing.recording.codex.rules import RULES, codex_names
from turnstop.testing.recording.codex.scenes import SCENES, Scene

FOLDER = Path(__file__).parents[1] / "golden" / "codex"
GOLDEN = Recordings(FOLDER, "codex", RULES, codex_names)


@attrs.define
class World(RecordedWorld):
    codex: RecordingCodex

    async def said(self, *texts: str) -> None:
        def found() -> bool:
            lines = [json.dumps(frame.body) for frame in self.codex.wire]
            return any(all(text in line for text in texts) for line in lines)

        while not found():  # noqa: ASYNC110 - a record gives no event
            await trio.sleep(0.01)

    async def play(self, name: str, words: str) -> None:
        work = await self.begun(name)
        word, _, then = words.partition(" ")
        if word == "agent":
            await self.codex.set_to_work(work)
            then = "park"
        elif word == "tool" and then == "park":
            await self.codex.run_command(work)
            self.silent[name].set()
            return
        elif word == "tool":
            await self.codex.want_approval(work)
            while not work.replies:  # noqa: ASYNC110 - a record gives no event
                await trio.sleep(0.01)
        await self.speak(name, work, then or word)

    async def begun(self, name: str) -> Work:
        while True:
            for work in self.codex.works:
                if name in work.text and work.name in self.codex.started:
                    return work
            await trio.sleep(0.01)

    async def speak(self, name: str, work: Work, word: str) -> None:
        if word == "fail":
            await self.codex.fail(work)
            return
        if word == "park":
            for number in range(3):
                await self.codex.answer(work, f"piece {number} ")
            self.silent[name].set()
            await self.released[name].wait()
        if work.runs:
            await self.codex.answer(work, "the answer")
            await self.codex.finish(work)


async def played(scene: Scene, codex: RecordingCodex) -> list[WireFrame]:
    async with trio.open_nursery() as nursery:
        async with open_recorded(codex, **scene.settings) as backend:
            await scene.play(backend, World(nursery, codex))
        nursery.cancel_scope.cancel()
    return codex.wire


def unlike(name: str, codex: RecordingCodex) -> list[str]:
    found = run_in_virtual_time(played, SCENES[name], codex)
    return GOLDEN.differences(name, found)


@pytest.mark.parametrize("name", SCENES)
def test_it_speaks_as_the_real_program_did(name: str) -> None:
    assert unlike(name, RecordingCodex()) == []


class Hasty(RecordingCodex):
    """Completes an interrupted turn, and acknowledges the interrupt then."""

    async def _turn_interrupt(self, params: Any) -> Any:
        answer = await super()._turn_interrupt(params)
        if not isinstance(answer, tuple):
            return answer
        await answer[1]()
        return answer[0]


class Forgetful(RecordingCodex):
    """Names another turn than it has begun."""

    async def begin(self, thread: str, turn: str) -> None:
        self.started.add(turn)
        await super().begin(thread, f"{turn}'")


class Rude(RecordingCodex):
    """Refuses an interrupt that comes too late in its own words."""

    async def _turn_interrupt(self, params: Any) -> Any:
        answer = await super()._turn_interrupt(params)
        if isinstance(answer, dict) and "error" in answer:
            return {"error": {"code": 1, "message": "no active turn, my friend"}}
        return answer


class Mild(RecordingCodex):
    """Completes what has failed, and what was interrupted."""

    async def _over(self, work: Work, status: str, error: Any = None) -> None:
        await super()._over(work, "completed", error)


class Silent(RecordingCodex):
    """Tells of no commands and of no sub-agents."""

    async def item(self, method: str, turn: str, thread: str = "T1", **item: Any) -> None:
        pass


@pytest.mark.parametrize(
    ("kind", "name", "line"),
    [
        (Hasty, "stop_while_running", "turn/completed: does not come after <- turn/interrupt"),
        (Forgetful, "finish", "<- turn/started: params.turn.id is "),
        (Rude, "interrupt_too_late", "<- turn/interrupt = error: error.code is 1, and not -32600"),
        (Mild, "stop_while_starting", 'params.turn.status is "completed", and not "interrupted"'),
        (Mild, "fail", 'params.turn.status is "completed", and not "failed"'),
        (Silent, "approve", "<- item/started commandExecution: does not come after"),
        (Silent, "stop_while_a_sub_agent_works", "<- item/completed collabAgentToolCall: does no"),
    ],
)
def test_one_that_speaks_otherwise_is_told_of(
    kind: type[RecordingCodex], name: str, line: str
) -> None:
    found = unlike(name, kind())
    assert any(line in one for one in found), found


def test_an_adapter_that_says_more_is_told_of() -> None:
    codex = RecordingCodex()
    run_in_virtual_time(played, SCENES["finish"], codex)
    more = WireFrame("->", {"id": 99, "method": "turn/steer", "params": {}})
    assert GOLDEN.differences("finish", [*codex.wire, more]) == [
        "-> turn/steer: comes, and is not due after -> turn/start"
    ]


def test_every_recording_is_of_a_scene() -> None:
    assert GOLDEN.misfits(SCENES) == []
