"""A real program as a bench: it is found by the lab, and asks the lab for its models."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import tempfile
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import attrs

from .lab_target import LabTarget
from .model import MOMENTS, Missing, Moment, Runner, RunnerName, Target

if TYPE_CHECKING:
    from ...abc import Backend
    from ...lab import Program

OpenBackend: TypeAlias = Callable[
    [Sequence[str], str, Mapping[str, str | None]], "AbstractAsyncContextManager[Backend[str]]"
]
"""Given the command, the folder and the environment of a program: the adapter."""
OpenRaw: TypeAlias = Callable[
    [Sequence[str], str, Mapping[str, str]], AbstractAsyncContextManager[Runner]
]
"""The same, by its bare protocol."""

# Shell commands are found in /proc.
_HERE = tuple(one for one in MOMENTS if one != "tool" or os.path.isdir("/proc/self"))


@attrs.frozen(kw_only=True)
class Driven:
    """How one program is measured.

    Attributes:
        name: what it is called on the command line and in the table.
        program: what the lab calls it.
        command: how it is begun.
        rooms: at most so many are open at a time where each is a process; None: one serves all.
        band: what the asyncio peer calls it; empty: it is not measured there.
        needs: a module that its adapter needs.
        sdk: the distribution that drives it, for the figures depend on its version too.
    """

    name: str
    program: str
    command: Callable[[Program], Sequence[str]]
    open_backend: OpenBackend
    open_raw: OpenRaw
    moments: tuple[Moment, ...] = _HERE
    rooms: int | None = None
    band: str = ""
    needs: str = ""
    sdk: str = ""


class ProgramBench:
    """A program, from a path, or from where the lab finds it."""

    def __init__(
        self, driven: Driven, path: str | None = None, band_python: str | None = None
    ) -> None:
        self.name = driven.name
        self.moments = driven.moments
        self.rooms = driven.rooms
        self.runners: tuple[RunnerName, ...] = ("turnstop", "raw")
        if driven.band:
            self.runners = ("turnstop", "raw", "band")
        self._driven = driven
        self._path = path
        self._band_python = band_python

    async def versions(self) -> Mapping[str, str]:
        """The program's own: that of its pin, except at a path. And that of the SDK."""
        found = self._find()
        version = found.pin.version if self._path is None else await found.version()
        found_versions = {self._driven.program: version}
        if sdk := self._driven.sdk:
            found_versions[sdk] = importlib.metadata.version(sdk)
        return found_versions

    def _find(self) -> Program:
        if importlib.util.find_spec("h11") is None:
            raise Missing("the lab needs h11: python -m pip install 'turnstop[lab]'")
        needs = self._driven.needs
        if needs and importlib.util.find_spec(needs) is None:
            what = f"{self.name} needs {self._driven.sdk or needs}"
            raise Missing(f"{what}: python -m pip install 'turnstop[bench]'")
        from ...lab import MissingProgram, find_program

        try:
            return find_program(self._driven.program, self._path)
        except MissingProgram as error:
            raise Missing(str(error)) from None

    @asynccontextmanager
    async def open_target(self) -> AsyncGenerator[Target, None]:
        """A lab, and a home for the program that goes with it."""
        from ...lab import open_lab

        command = tuple(self._driven.command(self._find()))
        # What a program wrote last may come while its home is being removed.
        with tempfile.TemporaryDirectory(
            prefix="turnstop-bench-", ignore_cleanup_errors=True
        ) as home:
            async with open_lab() as lab:
                yield LabTarget(lab, command, home)

    def open_runner(
        self, runner: RunnerName, target: Target
    ) -> AbstractAsyncContextManager[Runner]:
        """A program of its own for each runner, or one for each of its rooms."""
        from ...lab import program_env

        assert isinstance(target, LabTarget)
        home = Path(target.home, runner)
        env = program_env(self._driven.program, target.lab.url, home)
        cwd = str(home / "work")
        os.makedirs(cwd, exist_ok=True)
        if runner == "raw":
            return self._driven.open_raw(target.command, cwd, env)
        if runner == "band":
            from .band import open_band_runner

            given: dict[str, Any] = {"command": list(target.command), "cwd": cwd, "env": env}
            return open_band_runner(self._band_python, backend=self._driven.band, **given)
        return _open_ours(self._driven.open_backend(target.command, cwd, whole(env)))


def whole(env: Mapping[str, str]) -> dict[str, str | None]:
    """An environment that takes nothing over from this process's."""
    return {**dict.fromkeys(os.environ), **env}


@asynccontextmanager
async def _open_ours(
    opening: AbstractAsyncContextManager[Backend[str]],
) -> AsyncGenerator[Runner, None]:
    from .ours import open_ours

    async with opening as backend, open_ours(backend) as ours:
        yield ours
