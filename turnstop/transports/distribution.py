"""Which version of a Python distribution is here, and whether that is one that will do."""

from __future__ import annotations

import importlib.metadata
import re

__all__ = ["check_distribution"]


def check_distribution(
    name: str, floor: str, *, extra: str, needed_by: str, below: str | None = None
) -> str:
    """Return the version of a distribution, where it is in the range that is needed.

    Args:
        name: the distribution, as an index of packages has it.
        floor: the oldest version that will do.
        extra: the extra of turnstop that brings it, for the error text.
        needed_by: what needs it, for the error text.
        below: the first version that will not do any more.

    Raises:
        ImportError: it is missing, or out of the range. The text names both, and the remedy.
    """
    remedy = f'pip install "turnstop[{extra}]"'
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"{needed_by} needs {name}: {remedy}") from None
    if _numbers(found) < _numbers(floor) or (below and _numbers(found) >= _numbers(below)):
        wanted = f">={floor}" + (f",<{below}" if below else "")
        raise ImportError(f"{name} {found} is here, and {needed_by} needs {wanted}: {remedy}")
    return found


def _numbers(version: str) -> list[int]:
    # Of a pre-release or a local build, what is before the letters counts.
    release = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    numbers = [int(number) for number in release[1].split(".")] if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
