"""Which version of a program is there, and whether that is new enough."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress

import trio

from .._errors import BackendLost, BackendRefused
from .process import ChildProcess, Grace, open_process

__all__ = ["check_version"]

# No number of a version is longer, and Python reads none of some thousand digits.
_VERSION = re.compile(rb"(?<!\d)\d{1,9}(?:\.\d{1,9})+(?!\d)")
_ENOUGH = 65536
# Nothing is lost when a program is ended that was only asked for its version.
_GRACE = Grace(close=0.2, terminate=0.3, kill=0.5)


async def check_version(
    command: Sequence[str],
    floor: str,
    *,
    name: str,
    env: Mapping[str, str | None] | None = None,
    install: str = "",
    within: float = 15.0,
) -> str:
    """Ask a program for its version, and return it.

    Args:
        command: the program, and what makes it tell its version.
        floor: the oldest version that will do, as in `"2.1.0"`.
        name: what error texts call it.
        env: laid over this process's environment; None takes a variable away.
        install: the command that installs a version that will do, for the error text.
        within: seconds that it may take to answer.

    Raises:
        BackendRefused: it is missing, does not tell a version in time, or is older than `floor`.

    **Cancellation:** ends the program, within about a second.
    """
    remedy = f"; install {floor} or newer with: {install}" if install else ""
    said = b""
    try:
        async with open_process(
            command, name=name, env=env, install=install, grace=_GRACE
        ) as process:
            with trio.move_on_after(within):
                said = await _listen(process)
            fate = process.describe()
    except BackendLost as lost:
        raise BackendRefused(f"{lost}{remedy}") from lost
    found = _VERSION.search(said)
    if found is None:
        shown = said[:200].decode(errors="replace").strip()
        told = f"told no version but {shown!r}" if shown else "told no version"
        raise BackendRefused(f"{os.fspath(command[0])} {told}: {fate}{remedy}")
    version = found[0].decode()
    if _numbers(version) < _numbers(floor):
        raise BackendRefused(f"{name} is {version}, and {floor} is the oldest that will do{remedy}")
    return version


async def _listen(process: ChildProcess) -> bytes:
    await process.stdin.aclose()
    said = b""
    with suppress(trio.BrokenResourceError):
        async for chunk in process.stdout:
            said += chunk
            if len(said) >= _ENOUGH:
                return said
    await process.wait()
    return said


def _numbers(version: str) -> tuple[int, ...]:
    numbers = [int(part) for part in version.split(".")]
    # 2.1 is 2.1.0.
    while numbers and not numbers[-1]:
        numbers.pop()
    return tuple(numbers)
