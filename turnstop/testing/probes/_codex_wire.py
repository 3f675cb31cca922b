"""What the real codex is told and says, as it goes by: which turn is which, and who was told."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import attrs
import trio

from ...transports._lines import LineSplitter
from .._probe import Work

__all__ = ["TurnLog", "read_pipe"]


@attrs.define(eq=False)
class TurnLog:
    """The turns that codex was asked for, as its wire shows them.

    Attributes:
        works: a turn each; the wire tells of all but when its work began and ended.
        over: the turns that codex has said to be completed, and when.
    """

    works: list[Work] = attrs.field(factory=list)
    over: dict[str, float] = attrs.field(factory=dict)
    _starting: dict[object, Work] = attrs.field(factory=dict)
    _asking: dict[object, object] = attrs.field(factory=dict)
    _telling: dict[object, tuple[Work, float]] = attrs.field(factory=dict)

    def note(self, direction: str, frame: Any) -> None:
        """Learn from a frame that has just gone by."""
        if not isinstance(frame, dict):
            return
        params, method = frame.get("params", {}), frame.get("method")
        if direction == "->" and method == "turn/start":
            text = " ".join(str(item.get("text", "")) for item in params["input"])
            work = Work("", text, str(params["threadId"]), trio.current_time())
            self.works.append(work)
            self._starting[frame["id"]] = work
        elif direction == "->" and method == "turn/interrupt":
            self._note_told(frame["id"], params["turnId"])
        elif direction == "<-" and method == "turn/completed":
            self.over.setdefault(str(params["turn"]["id"]), trio.current_time())
        elif direction == "<-" and method is None:
            self._note_answer(frame)
        elif direction == "<-" and "id" in frame:
            self._asking[frame["id"]] = params.get("turnId")
        elif direction == "->" and method is None:
            turn = self._asking.pop(frame.get("id"), None)
            for work in self.works:
                if work.name == turn:
                    work.replies.append(frame.get("result", frame.get("error")))

    def _note_told(self, number: object, turn: str) -> None:
        now = trio.current_time()
        for work in self.works:
            if work.name == turn:
                self._telling[number] = (work, now)
                work.told_at.append(now)

    def _note_answer(self, frame: Any) -> None:
        started = self._starting.pop(frame.get("id"), None)
        if started is not None and "result" in frame:
            started.name = str(frame["result"]["turn"]["id"])
        told = self._telling.pop(frame.get("id"), None)
        if told is not None and "error" in frame:
            work, moment = told
            # One that came too early is as if it had not come; one too late is repeated as well.
            if work.name not in self.over or len(work.told_at) > 1:
                work.told_at.remove(moment)


async def read_pipe(path: str, note: Callable[[str, Any], None]) -> None:
    """Read what a tap writes to a named pipe, for as long as nobody cancels it.

    **Cancellation:** what was not read yet is lost.
    """
    # Opened for both, it does not end when one tap does: the next one writes there too.
    descriptor = os.open(path, os.O_RDWR | os.O_NONBLOCK)
    splitter = LineSplitter()
    async with trio.lowlevel.FdStream(descriptor) as stream:
        async for chunk in stream:
            for line in splitter.feed(chunk):
                for direction, frame in json.loads(line).items():
                    note(direction, frame)
