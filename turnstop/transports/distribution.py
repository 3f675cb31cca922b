"""Which version of a Python distribution is here, whether that will do, and its import."""

from __future__ import annotations

import importlib
import importlib.metadata
import importlib.util
import re

import trio

__all__ = ["check_distribution", "check_package", "import_apart"]


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
    remedy = f"python -m pip install 'turnstop[{extra}]'"
    try:
        found = importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        raise ImportError(f"{needed_by} needs {name}: {remedy}") from None
    if _numbers(found) < _numbers(floor) or (below and _numbers(found) >= _numbers(below)):
        wanted = f">={floor}" + (f",<{below}" if below else "")
        raise ImportError(f"{name} {found} is here, and {needed_by} needs {wanted}: {remedy}")
    return found


def check_package(package: str, name: str) -> None:
    """See that a package is there, and not a file of the same name, such as one's own program.

    Imported, that would run, and what imports it would wait for its end.

    Args:
        package: what is imported.
        name: the distribution that has it, for the error text.

    Raises:
        ImportError: it is no package.
    """
    found = importlib.util.find_spec(package)
    if found is None or found.submodule_search_locations is None:
        place = "nowhere" if found is None else found.origin
        raise ImportError(
            f"{package} is found {place}, and that is not {name}: give a file of that name another"
        )


async def import_apart(package: str) -> None:
    """Import a package that takes seconds, while everybody else goes on.

    Raises:
        Exception: what the import raises.

    **Cancellation:** the import goes on in its thread, and harms nobody.
    """
    await trio.to_thread.run_sync(importlib.import_module, package, abandon_on_cancel=True)


def _numbers(version: str) -> list[int]:
    # Of a pre-release or a local build, what is before the letters counts.
    release = re.match(r"(?:\d+!)?(\d+(?:\.\d+)*)", version)
    numbers = [int(number) for number in release[1].split(".")] if release else []
    while numbers and not numbers[-1]:
        numbers.pop()
    return numbers
