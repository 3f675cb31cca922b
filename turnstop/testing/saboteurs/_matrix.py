"""Every saboteur against every obligation it belongs to, over some probes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

import attrs

from .._obligation import Obligation
from .._probe import has_lever
from .._report import Outcome, Report, Row
from .._run import LEAKED, MakeProbe, check_obligation, probe_backend
from ._saboteur import SABOTEURS, Saboteur
from ._unseen import UNSEEN, Unseen

__all__ = ["Cell", "Matrix", "Toothless", "check_probe", "play_matrix"]


@attrs.frozen
class Cell:
    """One obligation over one probe, with one saboteur at work.

    Attributes:
        probe: the probe's name.
        obligation: the obligation's name.
        saboteur: the saboteur's name.
        outcome: what came of it. `RED`: caught.
        text: what was seen; where it is green, why it could not show.
        seconds: of real time.
    """

    probe: str
    obligation: str
    saboteur: str
    outcome: Outcome
    text: str
    seconds: float

    @property
    def caught(self) -> bool:
        """The obligation is red."""
        return self.outcome is Outcome.RED

    @property
    def leaked(self) -> bool:
        """It is red by what came out of the rooms, and not by what the obligation saw."""
        return self.caught and self.text.endswith(LEAKED)

    def __str__(self) -> str:
        return f"{self.obligation} with {self.saboteur} over {self.probe}: {self.outcome.value}"


@attrs.frozen
class Matrix:
    """What was played.

    Attributes:
        honest: one report a probe, with nobody at work: nothing in it may be red.
        cells: what saboteurs made of what was green.
        unseen: what cannot be seen over which probe, and why.
    """

    honest: Sequence[Report]
    cells: Sequence[Cell]
    unseen: Mapping[str, Unseen] = UNSEEN

    def excuse(self, cell: Cell) -> str:
        """Why this cell cannot be red; empty where it should be."""
        return self.unseen.get(cell.probe, {}).get((cell.obligation, cell.saboteur), "")

    @property
    def faults(self) -> list[str]:
        """What is wrong, each in a line."""
        found = []
        for report in self.honest:
            for row in report.red:
                name = row.obligation.name
                found.append(f"{name} over {report.probe}: red with nobody at work: {row.text}")
        for cell in self.cells:
            excuse = self.excuse(cell)
            belongs = cell.obligation in SABOTEURS[cell.saboteur].breaks
            if belongs and not (excuse or cell.caught or cell.text):
                found.append(f"{cell}: what it promises was removed")
            elif excuse and cell.caught:
                found.append(f"{cell}: the excuse is not true: {excuse}")
        return found

    def to_json(self) -> dict[str, object]:
        """The matrix as JSON values."""
        return {
            "honest": [report.to_json() for report in self.honest],
            "cells": [
                {**attrs.asdict(cell), "outcome": cell.outcome.value, "unseen": self.excuse(cell)}
                for cell in self.cells
            ],
            "faults": self.faults,
        }


class Toothless(AssertionError):
    """Obligations stayed green over a probe though what they promise was removed.

    Attributes:
        matrix: what was played.
    """

    def __init__(self, matrix: Matrix) -> None:
        super().__init__("\n".join(matrix.faults))
        self.matrix = matrix


def check_probe(
    make_probe: MakeProbe,
    *,
    only: Iterable[str] = (),
    unseen: Unseen | None = None,
) -> Matrix:
    """Check that a probe's obligations bite: that each is red once its promise is removed.

    A probe whose levers do nothing, or whose works are not what the far end saw, makes
    obligations green for any adapter. This removes one promise after another from the adapter,
    between the kernel and the adapter's own code, and looks whether it shows.

    Args:
        make_probe: as for `check_backend`.
        only: names of obligations; all of them by default.
        unseen: an obligation and a saboteur that it cannot see over this far end, and why; what
            is known of turnstop's own probes by default.

    Raises:
        Toothless: an obligation stayed green where it should be red, is red to begin with, or
            is red where `unseen` says that it cannot be.
    """
    adapters = [one for one in SABOTEURS.values() if one.where == "adapter"]
    matrix = play_matrix([make_probe], adapters, only=only)
    if unseen is not None:
        matrix = attrs.evolve(matrix, unseen={matrix.honest[0].probe: unseen})
    if matrix.faults:
        raise Toothless(matrix)
    return matrix


def play_matrix(
    probes: Sequence[MakeProbe],
    saboteurs: Iterable[Saboteur] | None = None,
    *,
    only: Iterable[str] = (),
    everything: bool = False,
    told: Callable[[Cell], object] = lambda cell: None,
) -> Matrix:
    """Play what is green over each probe once more with each saboteur at work that belongs to it.

    Args:
        probes: makes of probes.
        saboteurs: all of them by default.
        only: names of obligations; all of them by default.
        everything: play each saboteur against each obligation, also where it need not be caught.
        told: called with each cell as it is known.
    """
    only, cells, honest = tuple(only), [], []
    chosen = tuple(SABOTEURS.values() if saboteurs is None else saboteurs)
    for make_probe in probes:
        report = probe_backend(make_probe, only=only)
        honest.append(report)
        for row in report.of(Outcome.GREEN):
            for saboteur in _who_shows(chosen, row.obligation, make_probe, everything):
                cells.append(_play(report.probe, row.obligation, saboteur, make_probe))
                told(cells[-1])
    return Matrix(honest, cells)


def _who_shows(
    saboteurs: Iterable[Saboteur],
    obligation: Obligation,
    make_probe: MakeProbe,
    everything: bool,
) -> Iterator[Saboteur]:
    probe = make_probe()
    for saboteur in saboteurs:
        belongs = everything or obligation.name in saboteur.breaks
        if belongs and all(has_lever(probe, need) for need in saboteur.needs):
            yield saboteur


def _play(name: str, obligation: Obligation, saboteur: Saboteur, make_probe: MakeProbe) -> Cell:
    began = time.perf_counter()
    with saboteur.at_work(make_probe) as sabotaged:
        row: Row = check_obligation(obligation, sabotaged)
    seconds = round(time.perf_counter() - began, 4)
    return Cell(name, obligation.name, saboteur.name, row.outcome, row.text, seconds)
