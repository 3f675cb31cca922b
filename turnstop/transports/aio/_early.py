"""Repairs what was imported before trio_asyncio.

trio_asyncio puts functions of its own in the place of `asyncio.get_running_loop` and a few others.
Whoever took the old ones by name before that (anyio's asyncio backend and aiofiles do) asks them
for a loop that they do not know of, and fails with "no running event loop".
https://github.com/python-trio/trio-asyncio/issues/83
"""

from __future__ import annotations

import asyncio
import asyncio.events
import asyncio.tasks
import sys
import warnings
from types import ModuleType
from typing import Any

__all__ = ["import_trio_asyncio"]

_NAMES = (
    "_get_running_loop",
    "current_task",
    "get_event_loop",
    "get_event_loop_policy",
    "get_running_loop",
    "new_event_loop",
    "set_event_loop",
)
_ORIGINALS = {name: getattr(asyncio, name) for name in _NAMES}


def import_trio_asyncio() -> Any:
    """Import trio_asyncio, and leave everything as if it had been imported first of all.

    Raises:
        ImportError: it is missing, or cannot be imported on this Python.
    """
    originals = _ORIGINALS
    if (already := sys.modules.get("trio_asyncio._loop")) is not None:
        originals = {**originals, **_kept_by(already)}
    with warnings.catch_warnings():
        # It derives from what Python 3.12 calls deprecated.
        warnings.simplefilter("ignore", DeprecationWarning)
        import trio_asyncio

    patched = {
        id(originals[name]): getattr(asyncio, name)
        for name in _NAMES
        if originals[name] is not getattr(asyncio, name)
    }
    for name, module in [*sys.modules.items()]:
        if name.partition(".")[0] not in ("asyncio", "_asyncio", "trio_asyncio"):
            _repair(module, patched)
    return trio_asyncio


def _kept_by(module: ModuleType) -> dict[str, Any]:
    """The functions that trio_asyncio, imported by somebody else, has replaced and kept."""
    kept = {
        "_get_running_loop": "_orig_run_get",
        "current_task": "_orig_current_task",
        "get_event_loop": "_orig_loop_get",
        "get_event_loop_policy": "_orig_policy_get",
        "new_event_loop": "_orig_loop_new",
        "set_event_loop": "_orig_loop_set",
    }
    found = {name: getattr(module, old) for name, old in kept.items() if hasattr(module, old)}
    native = sys.modules.get("_asyncio")
    if native is not None:
        found["get_running_loop"] = native.get_running_loop
    return found


def _repair(module: ModuleType, patched: dict[int, Any]) -> None:
    try:
        # Past a module's own `__getattribute__`: a lazy one would be loaded by that.
        names = object.__getattribute__(module, "__dict__")
    except AttributeError:
        return
    for name, value in [*names.items()]:
        if id(value) in patched:
            names[name] = patched[id(value)]
