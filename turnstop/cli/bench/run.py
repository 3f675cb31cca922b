"""A run: every bench of a plan, moment by moment, into results."""

from __future__ import annotations

import importlib.metadata
import math
import os
import platform
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Any, Protocol

import attrs
import click
import trio

from ... import BackendError
from .figures import Ratio, Row, ratios, row
from .model import Bench, BenchFailed, Missing, Moment, Runner, RunnerName
from .trials import Trials
from .verdicts import Sample

OPENS_WITHIN = 60.0
"""How long it may take to open a backend and all that measures it, in seconds."""


class Bar(Protocol):
    """How a run tells how far it is."""

    def begin(self, text: str, total: int) -> None:
        """Say what is under way now, and how many stops the run has in all."""

    def step(self) -> None:
        """One more stop is judged."""


@attrs.frozen(kw_only=True)
class Plan:
    """What was asked for.

    Attributes:
        named: the backends that were named: where one is missing it is an error, else left out.
    """

    benches: tuple[Bench, ...]
    moments: tuple[Moment, ...]
    n: int
    against: RunnerName | None = None
    named: frozenset[str] = frozenset()


@attrs.define
class Results:
    """What a run found.

    Attributes:
        absent: what was not measured since the backend has no such moment.
        missing: the backends that are not installed, and how to install each.
        failures: the backends that did not behave as the bench needs it to, and how.
        interrupted: whether it was told to end before it was through.
    """

    versions: dict[str, str] = attrs.field(factory=dict)
    rows: list[Row] = attrs.field(factory=list)
    absent: list[tuple[str, Moment]] = attrs.field(factory=list)
    missing: dict[str, str] = attrs.field(factory=dict)
    failures: dict[str, str] = attrs.field(factory=dict)
    interrupted: bool = False
    ratios: list[Ratio] = attrs.field(factory=list)
    losses: list[str] = attrs.field(factory=list)
    series: dict[tuple[str, str, RunnerName], Sequence[Sample]] = attrs.field(factory=dict)

    def to_json(self) -> dict[str, Any]:
        """As JSON values."""
        return {
            "versions": self.versions,
            "machine": machine(),
            "interrupted": self.interrupted,
            "losses": self.losses,
            "missing": self.missing,
            "failures": self.failures,
            "absent": [{"backend": name, "moment": moment} for name, moment in self.absent],
            "rows": [one.to_json() for one in self.rows],
            "ratios": [one.to_json() for one in self.ratios],
        }

    def add(self, backend: str, moment: Moment, samples: Sequence[Sample]) -> None:
        """Take the samples of one moment in, by runner."""
        by_runner: dict[RunnerName, list[Sample]] = {}
        for sample in samples:
            by_runner.setdefault(sample.runner, []).append(sample)
        for runner, taken in by_runner.items():
            self.rows.append(row(backend, moment, runner, taken))
            if lost := [one for one in taken if one.lost]:
                example = f"{lost[0].outcome.ending} with {', '.join(lost[0].lost)}"
                of = f"{len(lost)} of {len(taken)}"
                self.losses.append(f"{runner} lost {of}, {backend} {moment}: as {example}")
            self.series[backend, moment, runner] = taken
            if runner != "turnstop":
                self.ratios += ratios(backend, moment, by_runner["turnstop"], taken)


def own_versions() -> dict[str, str]:
    """turnstop's and Trio's."""
    return {name: _version(name) for name in ("turnstop", "trio")}


def _version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return "(not installed)"


def machine() -> dict[str, str | int]:
    """Where it was measured."""
    affinity = getattr(os, "sched_getaffinity", None)
    return {
        "system": f"{platform.system()} {platform.release()}",
        "processor": platform.machine(),
        "cpus": len(affinity(0)) if affinity else os.cpu_count() or 0,
        "python": platform.python_version(),
    }


async def measure(plan: Plan, results: Results, bar: Bar) -> None:
    """Stop what the plan says, into the results. A backend that fails does not hold the others up.

    Raises:
        Missing: a backend that was named is not installed, or none is.
    """
    found = await _found(plan, results)
    total = sum(len(_moments(plan, b)) * len(_runners(plan)) * plan.n for b in found)
    for bench in found:
        bar.begin(f"{bench.name}: opening", total)
        try:
            await _measure_one(plan, bench, results, bar, total)
        except* (BenchFailed, BackendError) as group:
            results.failures[bench.name] = _first_text(group)


async def _measure_one(plan: Plan, bench: Bench, results: Results, bar: Bar, total: int) -> None:
    # Around all that is opened, since what is opened must not outlive a scope inside.
    with trio.CancelScope(relative_deadline=OPENS_WITHIN) as opening:
        async with AsyncExitStack() as stack:
            target = await stack.enter_async_context(bench.open_target())
            opened: dict[RunnerName, Runner] = {}
            for name in _runners(plan):
                runner = bench.open_runner(name, target)
                opened[name] = await stack.enter_async_context(runner)
            opening.deadline = math.inf
            trials = Trials(target, opened, bar.step, bench.rooms)
            for moment in plan.moments:
                if moment not in _moments(plan, bench):
                    results.absent.append((bench.name, moment))
                    continue
                bar.begin(f"{bench.name}: {moment}", total)
                results.add(bench.name, moment, await trials.take(moment, plan.n))
    if opening.cancelled_caught:
        raise BenchFailed(f"did not open within {OPENS_WITHIN:.0f} s")


def _first_text(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error.message if isinstance(error, click.ClickException) else str(error)


def _moments(plan: Plan, bench: Bench) -> list[Moment]:
    # The peer answers its agents' permissions by itself.
    without = "permission" if plan.against == "band" else None
    return [one for one in plan.moments if one in bench.moments and one != without]


def _runners(plan: Plan) -> list[RunnerName]:
    return ["turnstop"] if plan.against is None else ["turnstop", plan.against]


async def _found(plan: Plan, results: Results) -> list[Bench]:
    found = []
    for bench in plan.benches:
        if plan.against is not None and plan.against not in bench.runners:
            if bench.name in plan.named:
                raise click.UsageError(f"{bench.name} has no runner {plan.against}")
            continue
        if not _moments(plan, bench):
            if bench.name in plan.named:
                raise click.UsageError(f"{bench.name} has no moment {', '.join(plan.moments)}")
            continue
        try:
            results.versions.update(await bench.versions())
        except Missing as error:
            if bench.name in plan.named:
                raise
            results.missing[bench.name] = error.message
        else:
            found.append(bench)
    if not found:
        raise Missing("nothing to measure is installed: python -m pip install 'turnstop[bench]'")
    return found
