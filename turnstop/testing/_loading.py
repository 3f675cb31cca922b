"""Importing what was named: a probe, a factory, anything of a module."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from types import ModuleType
from typing import Any

from ._probe import Probe

__all__ = ["Missing", "as_probes", "import_module", "load"]


class Missing(Exception):
    """What a probe needs is not installed; the text is one line, with the command if known."""


def load(target: str) -> Any:
    """Import `module:attribute`.

    Raises:
        Missing: it needs a module of another package, that is not installed.
        ImportError: it does not import.
        AttributeError: the module has no such attribute.
    """
    module, _, attribute = target.partition(":")
    found: Any = import_module(module)
    for name in attribute.split("."):
        found = getattr(found, name)
    return found


def import_module(name: str) -> ModuleType:
    """Import a module.

    Raises:
        Missing: it needs a module of another package, that is not installed.
        ImportError: it does not import.
    """
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if package in ("", name.partition(".")[0]):
            raise
        raise Missing(f"{name} needs {error.name}, which is not installed") from error
    except ImportError as error:
        if "pip install" not in str(error):
            raise
        raise Missing(str(error)) from error


def as_probes(found: Any) -> list[Callable[[], Probe]]:
    """What was registered as probes: one, or several."""
    return list(found) if isinstance(found, (list, tuple)) else [found]
