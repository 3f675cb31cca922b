"""What an obligation is: a promise, as a plain async function that plays it on a stage."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable

import attrs

from ._probe import ABILITIES, LEVERS
from ._stage import Stage

__all__ = ["Obligation", "obligation"]

Play = Callable[[Stage], Awaitable[None]]


@attrs.frozen
class Obligation:
    """One promise.

    Attributes:
        name: the function's name.
        says: the promise in words: the first line of its docstring.
        needs: the levers and abilities without which it cannot be kept or seen.
        play: the function. It raises `Broken` where the promise is not kept.
    """

    name: str
    says: str
    needs: tuple[str, ...]
    play: Play = attrs.field(repr=False)


OBLIGATIONS: dict[str, Obligation] = {}
"""Every obligation by its name, in the order in which they are checked."""


def obligation(*needs: str) -> Callable[[Play], Play]:
    """Register an obligation: a function with a docstring whose first line is the promise.

    **Cancellation:** of an obligation: leaves the stage, which ends all that it has begun.

    Args:
        needs: levers of `Probe`, and names of `ABILITIES`.
    """
    unknown = [need for need in needs if need not in LEVERS and need not in ABILITIES]
    if unknown:
        raise ValueError(f"neither a lever nor an ability: {', '.join(unknown)}")

    def register(play: Play) -> Play:
        name = play.__name__
        if name in OBLIGATIONS:
            raise ValueError(f"there is an obligation {name} already")
        says = (inspect.getdoc(play) or name).partition("\n")[0].rstrip(".")
        OBLIGATIONS[name] = Obligation(name, says, needs, play)
        return play

    return register
