"""How long a stop may take."""

from __future__ import annotations

import math

import attrs


def _positive(_instance: object, attribute: attrs.Attribute[float], value: float) -> None:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{attribute.name} is in seconds, a number: got {value!r}")
    if not 0 < value < math.inf:
        raise ValueError(f"{attribute.name} must be positive and finite seconds: got {value!r}")


@attrs.frozen
class StopBudget:
    """The bound of a stop, in seconds on Trio's clock, counted from the asking.

    A stop settles within `cancel_within + kill_within`, and `kill_within` more where leftovers
    are looked for.

    Attributes:
        cancel_within: for the backend to reveal the turn, to be told, and to end.
        kill_within: for the forceful rung; again for leftovers; again for a retired room's
            `forget`.
    """

    cancel_within: float = attrs.field(default=5.0, validator=_positive)
    kill_within: float = attrs.field(default=2.0, validator=_positive)
