"""Checking obligations one by one, each on a fresh probe and in a run of its own."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import trio

from .._unwrap import open_private_nursery
from . import obligations as obligations
from ._determinism import deterministic
from ._obligation import OBLIGATIONS, Obligation
from ._probe import ABILITIES, LEVERS, Probe, has_lever
from ._report import Observed, Outcome, Report, Row
from ._stage import Broken, Stage
from .clock import Stalled, run_in_real_time, run_in_virtual_time

__all__ = ["MakeProbe", "ObligationsBroken", "check_backend", "check_obligation", "probe_backend"]

MakeProbe = Callable[[], Probe]
# No excuse covers an error that nobody was promised.
LEAKED = "came out of the rooms"
WITHIN = 30.0
ORDERS = 5
BASIC = "stop_ends_the_work"
MOST_LATE = 2


class ObligationsBroken(AssertionError):
    """Some promises are not kept. `report` has all of them."""

    def __init__(self, report: Report) -> None:
        super().__init__(str(report))
        self.report = report


def check_backend(make_probe: MakeProbe, *, only: Iterable[str] = ()) -> Report:
    """Check every obligation against a probe, and raise where one is not kept.

    Args:
        make_probe: makes a fresh probe, for each obligation one; a subclass of `Probe` will do.
        only: names of obligations; all of them by default.

    Raises:
        ObligationsBroken: an obligation is red, and the text names each with what was seen; or
            not one was played.
        RuntimeError: it is called inside of Trio, which it runs itself.
        TypeError: what was made is no probe.
        ValueError: there is no such obligation, or the probe contradicts itself.
    """
    report = probe_backend(make_probe, only=only)
    if report.verdict != "green":
        raise ObligationsBroken(report)
    return report


def probe_backend(
    make_probe: MakeProbe,
    *,
    only: Iterable[str] = (),
    told: Callable[[Row], object] = lambda row: None,
) -> Report:
    """As `check_backend`, and red is no error; `told` is called with each row as it is known."""
    if trio.lowlevel.in_trio_run():
        raise RuntimeError("obligations run Trio themselves: call this outside of it")
    probe = make_probe()
    check_claims(probe)
    rows: list[Row] = []
    for one in chosen(only):
        hopeless = _find_hopeless(rows)
        skipped = Row(one, Outcome.NOT_RUN, hopeless) if hopeless else None
        row = skipped or check_obligation(one, make_probe)
        rows.append(row)
        told(row)
    return Report(probe.name or type(probe).__name__, rows)


def _find_hopeless(rows: Sequence[Row]) -> str:
    """Why all the others would only say what was said; empty where they would not."""
    red = [row for row in rows if row.outcome is Outcome.RED]
    basic = [row for row in red if row.obligation.name == BASIC]
    if basic and all(one.work_began is None for one in basic[0].observed):
        return f"not played: no turn begins, see {BASIC}"
    late = [row for row in red if row.seconds >= WITHIN]
    if len(late) >= MOST_LATE:
        return f"not played: {MOST_LATE} promises were not over after {WITHIN:g} s each"
    return ""


def chosen(only: Iterable[str] = ()) -> Iterator[Obligation]:
    """The obligations of these names, all of them where none is named.

    Raises:
        ValueError: there is no such obligation.
    """
    names = [only] if isinstance(only, str) else list(only) or list(OBLIGATIONS)
    for name in names:
        if name not in OBLIGATIONS:
            raise ValueError(f"there is no obligation {name}; there are {', '.join(OBLIGATIONS)}")
    return (OBLIGATIONS[name] for name in names)


def check_claims(probe: Probe) -> None:
    """See that what a probe says of itself makes sense.

    Raises:
        TypeError: it is no probe.
        ValueError: it excuses what nobody needs, gives no reason, or has the lever after all.
    """
    if not isinstance(probe, Probe):
        raise TypeError(
            f"{probe!r} is no probe: see Probe, and bare_probe for a backend without one"
        )
    if probe.clock not in ("virtual", "real"):
        raise ValueError(f'{probe.name}: its clock is {probe.clock!r}, and not "virtual" or "real"')
    if not isinstance(probe.unable, Mapping):
        raise TypeError(f"{probe.name}: unable is {probe.unable!r}, and no mapping to reasons")
    if has_lever(probe, "hold_starts") and type(probe).release_starts is Probe.release_starts:
        raise ValueError(f"{probe.name}: what hold_starts keeps back, release_starts has to send")
    for name, reason in probe.unable.items():
        if name not in LEVERS and name not in ABILITIES:
            raise ValueError(f"{probe.name}: unable to {name}: neither a lever nor an ability")
        if not reason.strip():
            raise ValueError(f"{probe.name}: unable to {name}, and no reason is given")
        if name in LEVERS and has_lever(probe, name):
            raise ValueError(f"{probe.name}: says that it has no lever {name}, and has one")


def check_obligation(obligation: Obligation, make_probe: MakeProbe) -> Row:
    """Check one obligation; whatever is raised in it is red.

    In virtual time it is played several times, each time with another order of what happens in one
    instant. The orders are always the same ones, so that what is red is red again.
    """
    probe = make_probe()
    absent = [need for need in obligation.needs if need in LEVERS and not has_lever(probe, need)]
    if absent:
        excuses = [probe.unable[need] for need in absent if need in probe.unable]
        text = "; ".join(dict.fromkeys(excuses)) or f"takes the lever {', '.join(absent)}"
        outcome = Outcome.EXCUSED if len(excuses) == len(absent) else Outcome.NOT_RUN
        return Row(obligation, outcome, text)
    reasons = (probe.unable[need] for need in obligation.needs if need in probe.unable)
    excuse = "; ".join(dict.fromkeys(reasons))
    began = time.perf_counter()
    for order in range(ORDERS if probe.clock == "virtual" else 1):
        stage = Stage(probe if order == 0 else make_probe())
        text = _play(obligation, stage, order)
        if text:
            break
    seconds = time.perf_counter() - began
    excuse = excuse or stage.lacks
    return Row(obligation, *judge(text, excuse, stage.unseen), observe(stage), seconds)


def judge(text: str, excuse: str, unseen: str = "") -> tuple[Outcome, str]:
    """What comes of why it is not kept, why it need not be, and why it could not show."""
    if not excuse or text.endswith(LEAKED):
        return (Outcome.RED, text) if text else (Outcome.GREEN, unseen)
    if text:
        return Outcome.EXCUSED, excuse
    return Outcome.RED, f"it is excused, and is kept all the same: the excuse is not true: {excuse}"


def _play(obligation: Obligation, stage: Stage, order: int) -> str:
    """Why it is not kept; empty where it is."""
    reasons: list[str] = []
    with noting(reasons), deterministic(order):
        _run(obligation, stage)
    return str(stage.broken) if stage.broken else "".join(reasons)


@contextmanager
def noting(reasons: list[str]) -> Generator[None]:
    """Whatever is raised in the block is why a promise is not kept."""
    # In a group with cancellations, too, which go on.
    try:
        yield
    except* Exception as error:
        broken = _find_broken(error)
        reasons.append(str(broken) if broken else f"{_describe(error)} {LEAKED}")


def _run(obligation: Obligation, stage: Stage) -> None:
    if stage.probe.clock == "virtual":
        run_in_virtual_time(_perform, obligation, stage, within=WITHIN)
    else:
        within = WITHIN + stage.probe.opening
        run_in_real_time(_perform, obligation, stage, within=within)


async def _perform(obligation: Obligation, stage: Stage) -> None:
    async with open_private_nursery() as stage.probe.far_end:
        await obligation.play(stage)
        stage.probe.far_end.cancel_scope.cancel()


async def in_real_time(obligation: Obligation, stage: Stage) -> None:
    """Play in the run that is under way, and not for ever.

    **Cancellation:** leaves the stage as an obligation that fails does.
    """
    with trio.move_on_after(WITHIN) as scope:
        await _perform(obligation, stage)
    if scope.cancelled_caught:
        raise Stalled(f"it was not over after {WITHIN:g} s")


def _find_broken(error: BaseException) -> Broken | None:
    """The promise that was broken, also where a nursery of the probe has wrapped it."""
    if isinstance(error, Broken):
        return error
    if isinstance(error, BaseExceptionGroup):
        found = (_find_broken(one) for one in error.exceptions)
        return next((one for one in found if one is not None), None)
    return None


def _describe(error: BaseException) -> str:
    if isinstance(error, BaseExceptionGroup):
        return " and ".join(_describe(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}"


def observe(stage: Stage) -> tuple[Observed, ...]:
    """What was seen of the turns that were taken."""
    actors = {actor.turn.turn_id: actor for actor in stage.actors}
    found = []
    for settlement in stage.settlements:
        actor = actors.get(settlement.turn_id)
        work = None if actor is None else stage.find(actor)
        found.append(Observed.of(settlement, work))
    return tuple(found)
