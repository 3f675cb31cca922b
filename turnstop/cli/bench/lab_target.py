"""The lab as a target: what a real program that asks it for its models does for a turn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import trio

from .model import PARKED_FOR, Moment, Work

if TYPE_CHECKING:
    from ...lab import Exchange, Lab

_WAITS = "park"
# By its path, since a shell of omp's own has a `sleep` that is no process.
_TOOL = "tool park $ /bin/sleep 60"
# codex's agent asks for nothing that is not dangerous.
_ASKS = "tool park $ rm -rf ./none; /bin/sleep 60"
_PROMPTS: dict[Moment | None, str] = {None: "answer", "tool": _TOOL, "permission": _ASKS}
# codex itself kills a command that it stops in its first instants, and none that it stops later.
_TOOL_SETTLES = 0.3


@attrs.frozen
class LabTarget:
    """The lab, and a folder for what the programs that ask it keep.

    Attributes:
        command: how the program is begun.
        home: the folder.
        races_within: not known: each program takes its own time to its end.
        tools: the turns that run commands.
    """

    lab: Lab
    command: tuple[str, ...]
    home: str
    races_within: None = None
    tools: set[str] = attrs.field(factory=set)

    def prompt(self, moment: Moment | None) -> tuple[str, str]:
        """A prompt that says what the lab does."""
        from ...lab import read_prompt, write_prompt

        asked = read_prompt(f"[turn:x] {_PROMPTS.get(moment, _WAITS)}")
        assert asked is not None
        token, prompt = write_prompt(asked[1])
        if asked[1].word == "tool":
            # Only these are looked for in the process table: looking takes its time.
            self.tools.add(token)
        return token, prompt

    async def reached(self, token: str, moment: Moment) -> None:
        """Parked, its command runs for a while, or the program waits for a permission."""
        if moment == "tool":
            await self.lab.tool_running(token)
            await trio.sleep(_TOOL_SETTLES)
        elif moment == "permission":
            await trio.sleep(PARKED_FOR)
        else:
            await self.lab.parked(token)
            await trio.sleep(PARKED_FOR)

    def finish(self, token: str) -> None:
        """Let the model answer to its end."""
        self.lab.release(token)

    def work(self, token: str) -> Sequence[Work]:
        """Its model requests and its shell commands."""
        if token in self.tools:
            self.lab.processes(token)
        found = [_request(one) for one in self.lab.requests(token)]
        found += [
            Work(f"process {one}", one.seen_at, one.gone_at, one.pid)
            for one in self.lab.seen_processes(token)
        ]
        return found

    def faults(self, token: str) -> Sequence[str]:
        """Of its model requests."""
        return [one.text for one in self.lab.faults if one.token == token]

    def sweep(self, token: str) -> None:
        """Kill its commands and release its requests."""
        self.lab.release(token)
        for process in self.lab.processes(token):
            process.kill()


def _request(one: Exchange) -> Work:
    name, cut = f"model request {one.number}", one.dropped_at is not None
    return Work(name, one.arrived_at, one.ended_at, cut=cut)
