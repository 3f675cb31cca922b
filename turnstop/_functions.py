"""Whether a function has done what it was called for, or has only made what somebody must run."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TypeVar

__all__ = ["check_made", "is_async"]

Result = TypeVar("Result")


def is_async(fn: Callable[..., object]) -> bool:
    """Whether calling it makes something to be awaited, as far as it can be seen."""
    return inspect.iscoroutinefunction(fn) or inspect.iscoroutinefunction(type(fn).__call__)


def check_made(result: Result, instead: str) -> Result:
    """Return what a call returned, unless that has only made something that nobody will run.

    Raises:
        TypeError: it has.
    """
    if inspect.iscoroutine(result):
        result.close()
    elif not (inspect.isgenerator(result) or inspect.isasyncgen(result)):
        return result
    raise TypeError(f"the function only made {result!r}: {instead}")
