"""What asyncio code has a thread do: it cannot be ended, and so it has to be known of."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import Context
from functools import partial
from typing import Any, Generic, TypeVar, final

import attrs

__all__ = ["Job"]

Result = TypeVar("Result")


@final
@attrs.define(eq=False)
class Job(Generic[Result]):
    """A function that a thread runs, or will run. Whoever holds it keeps it filed."""

    _fn: Callable[[], Result]
    _done: bool = False

    def done(self) -> bool:
        """Whether it has come back."""
        return self._done

    def run(self) -> Result:
        """Run it. In the thread."""
        try:
            return self._fn()
        finally:
            self._done = True

    def call_off(self) -> None:
        """No thread has begun it, and none will."""
        self._done = True

    @property
    def what(self) -> object:
        """The function that somebody wrote, out of what asyncio has wrapped it in."""
        found: Any = self._fn
        while isinstance(found, partial):
            inside = isinstance(getattr(found.func, "__self__", None), Context)
            found = found.args[0] if inside else found.func
        return found
