"""Where the real programs are, how they are begun, and which version they have."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import tempfile
from contextlib import suppress
from functools import lru_cache, partial
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import attrs
import trio

from .._unwrap import open_private_nursery
from .environments import program_env
from .pins import NODE_FLOOR, PINS, Pin, lab_home

__all__ = ["MissingProgram", "Program", "find_program"]

_ANSWERS_WITHIN = 30.0
_NOWHERE = "http://127.0.0.1:9"
_VERSION = re.compile(r"\d+(?:\.\d+)*(?:-[\w.]*\w)?")
_INITIALIZE = {
    "jsonrpc": "2.0",
    "id": 1,
    "method": "initialize",
    "params": {"protocolVersion": 1, "clientCapabilities": {}},
}


class MissingProgram(Exception):
    """A program is not installed; the text is one line and ends in the command that installs it."""


@attrs.frozen
class Program:
    """A program that is installed.

    Attributes:
        command: how it is begun, without the arguments of any mode.
        pin: what it should be; a path that was given may lead to another version.
    """

    name: str
    command: tuple[str, ...]
    pin: Pin

    @property
    def path(self) -> str:
        """The program itself; where that is a script, `command` begins with what runs it."""
        return self.command[-1]

    @property
    def acp_command(self) -> tuple[str, ...]:
        """How it is begun to speak the Agent Client Protocol.

        Raises:
            ValueError: it does not.
        """
        if self.pin.acp is None:
            raise ValueError(f"{self.name} does not speak ACP; its agent is a program of its own")
        return (*self.command, *self.pin.acp)

    async def version(self) -> str:
        """Run it, in a home of its own that goes with it, and say which version it says it is.

        Raises:
            MissingProgram: the file is there and does not run, or does not answer.

        **Cancellation:** ends the program.
        """
        # What has been ended may be writing still.
        home_of_its_own = partial(tempfile.TemporaryDirectory, ignore_cleanup_errors=True)
        with home_of_its_own(prefix="turnstop-lab-") as home:
            env = program_env(self.name, _NOWHERE, home)
            try:
                with trio.move_on_after(_ANSWERS_WITHIN):
                    said = await self._ask(env, home)
                    if found := _VERSION.search(said):
                        return found[0]
                    raise MissingProgram(f"{self.path} told no version: {said[:200]!r}")
            except OSError as error:
                raise MissingProgram(f"{self.path} does not run: {error}") from error
        raise MissingProgram(f"{self.path} did not tell its version in {_ANSWERS_WITHIN:.0f} s")

    async def _ask(self, env: dict[str, str], home: str) -> str:
        if self.pin.asked_by == "--version":
            done = await trio.run_process(
                [*self.command, "--version"],
                capture_stdout=True,
                capture_stderr=True,
                check=False,
                env=env,
                cwd=home,
            )
            if done.returncode != 0:
                said = done.stderr.decode(errors="replace").strip().splitlines()[-1:]
                raise OSError(": ".join([f"it ended with status {done.returncode}", *said]))
            return done.stdout.decode(errors="replace")
        async with open_private_nursery() as nursery:
            process = await nursery.start(_run_agent, self.acp_command, env, home)
            answer = await _initialize(process)
            nursery.cancel_scope.cancel()
        return str(answer.get("result", {}).get("agentInfo", {}).get("version", answer))


async def _run_agent(
    command: tuple[str, ...],
    env: dict[str, str],
    home: str,
    task_status: trio.TaskStatus[trio.Process],
) -> None:
    await trio.run_process(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=env,
        cwd=home,
        check=False,
        task_status=task_status,
    )


async def _initialize(process: trio.Process) -> dict[str, dict[str, dict[str, str]]]:
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        await process.stdin.send_all(json.dumps(_INITIALIZE).encode() + b"\n")
    except trio.BrokenResourceError:
        raise OSError("it closed its input") from None
    said = b""
    async for piece in process.stdout:
        said += piece
        for line in said.splitlines(keepends=True):
            with suppress(ValueError):
                if line.endswith(b"\n") and isinstance(answer := json.loads(line), dict):
                    return answer
    raise OSError("it closed its output")


def find_program(name: str, path: str | os.PathLike[str] | None = None) -> Program:
    """The program at `path`; else, in the version of its pin, one that is installed.

    It is looked for in the lab's folder, among the installed Python packages, and on PATH. What is
    on PATH is run once, to learn its version: that may take some seconds.

    Raises:
        KeyError: the lab knows no program of this name.
        MissingProgram: there is none, or none in this version.
    """
    pin = PINS[name]
    if path is not None:
        return Program(name, _given(pin, os.fspath(path)), pin)
    folders = [lab_home() / pin.folder, *_site_packages(pin)]
    for folder in folders:
        if all((folder / part).is_file() for part in pin.paths):
            return Program(name, _complete(pin, folder), pin)
    found = shutil.which(name)
    if found is None:
        raise MissingProgram(f"{name} is not installed; install it: {install_line(pin)}")
    # Whoever runs it may do so in another folder.
    found = os.path.abspath(found)
    if pin.version not in (said := _says(found)):
        problem = f"{found} is {said or 'silent about its version'}, not {pin.version}"
        raise MissingProgram(f"{problem}; install that: {install_line(pin)}")
    return Program(name, (found,), pin)


def install_line(pin: Pin) -> str:
    """The command that installs it."""
    return f"turnstop lab install {pin.name}"


def is_installed(pin: Pin) -> bool:
    """Whether the lab's own folder has it."""
    return all((lab_home() / pin.folder / part).is_file() for part in pin.paths)


def _given(pin: Pin, path: str) -> tuple[str, ...]:
    found = shutil.which(path)
    if found is None and not (pin.needs_node and os.path.isfile(path)):
        raise MissingProgram(f"no program at {path}; install one: {install_line(pin)}")
    if found is None:
        return (_node(pin), os.path.abspath(path))
    return (os.path.abspath(found),)


def _complete(pin: Pin, folder: Path) -> tuple[str, ...]:
    words = (str(folder / path) for path in pin.paths)
    return (_node(pin), *words) if pin.needs_node else tuple(words)


def _node(pin: Pin) -> str:
    found = shutil.which("node")
    if found is None:
        needs = f"{pin.name} runs on Node.js {NODE_FLOOR} or newer, and there is no `node` on PATH"
        raise MissingProgram(f"{needs}: install that, and then: {install_line(pin)}")
    return os.path.abspath(found)


def _site_packages(pin: Pin) -> list[Path]:
    """Where pip has it, if it does and in this version."""
    if pin.registry != "PyPI":
        return []
    package, _, version = pin.packages[0].partition("==")
    try:
        installed: Distribution = distribution(package)
    except PackageNotFoundError:
        return []
    return [Path(str(installed.locate_file("")))] if installed.version == version else []


@lru_cache
def _says(path: str) -> str:
    """Its version, or as much as it says instead."""
    with suppress(OSError, subprocess.SubprocessError):
        said = subprocess.run(
            [path, "--version"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_ANSWERS_WITHIN,
            check=True,
        ).stdout.decode(errors="replace")
        return found[0] if (found := _VERSION.search(said)) else ""
    return ""
