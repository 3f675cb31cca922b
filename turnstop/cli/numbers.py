"""The numbers that the commands take."""

from __future__ import annotations

import math
from typing import Any

import click

__all__ = ["Positive"]


class Positive(click.FloatRange):
    """A number above 0."""

    def __init__(self, *, or_inf: bool = False) -> None:
        super().__init__(0, min_open=True)
        self._or_inf = or_inf

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        """As click has it: the number, or `fail`."""
        found = float(super().convert(value, param, ctx))
        if not (found < math.inf or (self._or_inf and found == math.inf)):
            self.fail(f"{value} is no number that can be counted to", param, ctx)
        return found
