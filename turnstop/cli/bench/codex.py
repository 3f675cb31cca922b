"""codex as a bench: the real program, which asks the lab for its models."""

from __future__ import annotations

import importlib.util
import os
import tempfile
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import attrs
import trio

from .model import MOMENTS, PARKED_FOR, Missing, Moment, Runner, RunnerName, Target, Work

if TYPE_CHECKING:
    from ...lab import Lab

_PROMPTS = {None: "answer", "starting": "park", "running": "park", "finishing": "park"}
_WITHOUT_TOOL = tuple(moment for moment in MOMENTS if moment != "tool")
_TOOL = "tool park $ sleep 60"
# codex itself kills a command that it stops in its first instants, and none that it stops later.
_TOOL_SETTLES = 0.3


@attrs.frozen
class LabTarget:
    """The lab, and a folder for what the codexes that ask it keep."""

    lab: Lab
    command: tuple[str, ...]
    home: str
    races_within: float = 0.020
    tools: set[str] = attrs.field(factory=set)

    def prompt(self, moment: Moment | None) -> tuple[str, str]:
        """A prompt that says what the lab does."""
        from ...lab import read_prompt, write_prompt

        asked = read_prompt(f"[turn:x] {_PROMPTS.get(moment, _TOOL)}")
        assert asked is not None
        token, prompt = write_prompt(asked[1])
        if asked[1].word == "tool":
            # Only these are looked for in the process table: looking takes its time.
            self.tools.add(token)
        return token, prompt

    async def reached(self, token: str, moment: Moment) -> None:
        """Parked, or its command runs for a while."""
        if moment == "tool":
            await self.lab.tool_running(token)
            await trio.sleep(_TOOL_SETTLES)
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
        found = [
            Work(f"model request {one.number}", one.arrived_at, one.ended_at)
            for one in self.lab.requests(token)
        ]
        found += [
            Work(f"process {one}", one.seen_at, one.gone_at, one.pid)
            for one in self.lab.seen_processes(token)
        ]
        return found

    def sweep(self, token: str) -> None:
        """Kill its commands and release its requests."""
        self.lab.release(token)
        for process in self.lab.processes(token):
            process.kill()


class CodexBench:
    """codex, from a path, from PATH, or from the extra `bench`."""

    name = "codex"
    # Shell commands are found in /proc.
    moments: tuple[Moment, ...] = MOMENTS if os.path.isdir("/proc/self") else _WITHOUT_TOOL
    runners: tuple[RunnerName, ...] = ("turnstop", "raw", "band")

    def __init__(self, path: str | None = None, band_python: str | None = None) -> None:
        self._path = path
        self._band_python = band_python

    async def versions(self) -> Mapping[str, str]:
        """codex's own."""
        if importlib.util.find_spec("h11") is None:
            raise Missing("the lab needs h11: python -m pip install 'turnstop[lab]'")
        from ...lab import MissingProgram, find_program

        try:
            version = await find_program("codex", self._path).version()
        except MissingProgram as error:
            raise Missing(str(error)) from None
        return {"codex": version}

    @asynccontextmanager
    async def open_target(self) -> AsyncGenerator[Target, None]:
        """A lab, and a home for codex that goes with it."""
        from ...lab import find_program, open_lab

        with tempfile.TemporaryDirectory(prefix="turnstop-bench-") as home:
            async with open_lab() as lab:
                command = (find_program("codex", self._path).path, "app-server")
                yield LabTarget(lab, command, home)

    def open_runner(
        self, runner: RunnerName, target: Target
    ) -> AbstractAsyncContextManager[Runner]:
        """A codex of its own for each runner."""
        from ...lab import program_env

        assert isinstance(target, LabTarget)
        env = program_env("codex", target.lab.url, Path(target.home, runner))
        cwd = target.home
        if runner == "raw":
            from .raw_codex import open_raw_codex

            return open_raw_codex(target.command, cwd, env)
        if runner == "band":
            from .band import open_band_runner

            return open_band_runner(
                self._band_python,
                backend="codex",
                command=list(target.command),
                cwd=cwd,
                env=env,
            )
        return _open_ours(target.command, cwd, env)


@asynccontextmanager
async def _open_ours(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AsyncGenerator[Runner, None]:
    from ...adapters.codex import open_codex
    from .ours import open_ours

    async with open_codex(command, cwd=cwd, env=env) as codex:
        async with open_ours(codex) as ours:
            yield ours
