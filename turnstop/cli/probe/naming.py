"""From `module:attribute` to what it names, or to one line that says why there is none."""

from __future__ import annotations

import difflib
import os
import sys
from types import ModuleType
from typing import Any

from ...testing._factory import describe
from ...testing._loading import Missing, import_module

__all__ = ["Unnamed", "find", "near"]


class Unnamed(Exception):
    """It names nothing; the text is one line that says why, and what to do."""


def find(target: str) -> Any:
    """Import a module and take an attribute of it.

    The current folder is on the import path, as it is with `python -m`.

    Raises:
        Unnamed: there is none.
        Missing: the module needs what is not installed.
    """
    name, _, attribute = target.partition(":")
    _look_here()
    module = _import(name)
    found: Any = module
    for part in attribute.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            there = [one for one in vars(module) if _may_be_meant(module, one)]
            raise Unnamed(f"{name} has no {attribute}{near(attribute, there)}") from None
    return found


def _look_here() -> None:
    here = os.getcwd()
    if not sys.flags.safe_path and not {"", here} & {*sys.path}:
        sys.path.insert(0, here)


def _may_be_meant(module: ModuleType, name: str) -> bool:
    return not name.startswith("_") and not isinstance(getattr(module, name), ModuleType)


def near(wanted: str, known: list[str]) -> str:
    """`; is it x, or y?`, where something is called much like it."""
    close = difflib.get_close_matches(wanted, known, n=3, cutoff=0.5)
    return f"; did you mean {', or '.join(close)}?" if close else ""


def _import(name: str) -> ModuleType:
    try:
        return import_module(name)
    except (Missing, KeyboardInterrupt):
        raise
    except SystemExit as error:
        raise Unnamed(
            f"importing {name} ends the interpreter (sys.exit({error.code!r}))"
        ) from error
    except ModuleNotFoundError as error:
        if error.name and (name == error.name or name.startswith(f"{error.name}.")):
            text = f"there is no module {error.name} here, nor on the import path"
            raise Unnamed(
                f"{text}: name it as Python imports it, package.module:factory"
            ) from error
        raise Unnamed(_say(name, error)) from error
    except BaseException as error:
        raise Unnamed(_say(name, error)) from error


def _say(name: str, error: BaseException) -> str:
    return f"importing {name} raises {describe(error)}"
