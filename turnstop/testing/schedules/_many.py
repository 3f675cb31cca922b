"""Playing many seeds, and saying all that helps where one breaks a promise."""

from __future__ import annotations

from collections.abc import Iterable

from .._run import MakeProbe
from ._crash import told
from ._play import Played, play
from ._shrink import shrink_played

__all__ = ["ScheduleBroken", "check_schedules", "explain", "target_of"]

COMMAND = "python -m turnstop.testing.schedules"


class ScheduleBroken(AssertionError):
    """A seed breaks a promise; the text says which, how, and how to play it again.

    Attributes:
        played: what the seed gave.
        shrunk: what is left of it; None where Hypothesis is not installed.
    """

    def __init__(self, played: Played, shrunk: Played | None, text: str) -> None:
        super().__init__(text)
        self.played, self.shrunk = played, shrunk


def check_schedules(make_probe: MakeProbe, seeds: Iterable[int] = range(500)) -> None:
    """Play these seeds, each on a fresh probe, until one breaks a promise.

    Args:
        make_probe: makes the probe; a subclass of `Probe` will do.
        seeds: each decides a schedule.

    Raises:
        ScheduleBroken: a promise was broken. An `AssertionError`.
    """
    for seed in seeds:
        played = play(make_probe, seed)
        if played.faults:
            raise broken(make_probe, played)


def broken(make_probe: MakeProbe, played: Played) -> ScheduleBroken:
    """Shrink what breaks a promise, and explain it."""
    shrunk, without = None, ""
    try:
        shrunk = shrink_played(make_probe, played)
    except ImportError as error:
        without = f"\n{error}"
    except Exception as error:
        # What was found is not lost for what the shrinking meets.
        without = f"\nit was not shrunk: that raises {told(error)}"
    text = explain(played, shrunk, target_of(make_probe)) + without
    return ScheduleBroken(played, shrunk, text)


def explain(played: Played, shrunk: Played | None, target: str) -> str:
    """All that helps: what is broken, the trace, what is left of the schedule, how to replay."""
    seed = played.schedule.seed
    lines = [f"seed {seed} breaks a promise:", *_faults(played)]
    small = shrunk or played
    if shrunk is not None:
        steps = len(shrunk.schedule.steps)
        lines += [f"what is left of it, in {steps} steps, breaks:", *_faults(shrunk)]
    lines += ["where this happens:", small.trace, "", repr(small.schedule), ""]
    lines.append("put that into a regression test: replay(make_probe, Schedule(...)).faults == ()")
    if target:
        lines.append(f"or: {COMMAND} {target} --seed {seed} -v")
    return "\n".join(lines)


def _faults(played: Played) -> list[str]:
    return [f"  {fault}" for fault in played.faults]


def target_of(make_probe: MakeProbe) -> str:
    """What a command calls it; empty where nothing outside of a function finds it."""
    module = getattr(make_probe, "__module__", "")
    name = getattr(make_probe, "__qualname__", "")
    return "" if not module or not name or "<" in name else f"{module}:{name}"
