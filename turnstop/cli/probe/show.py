"""What a person reads: each promise in words, and what was seen where it is not kept."""

from __future__ import annotations

import shutil
import textwrap
from collections.abc import Iterator
from typing import TextIO

import attrs
import click

from ...testing import OBLIGATIONS, Obligation, Outcome, Report, Row
from ..output import writing
from .hearing import Probing

__all__ = ["Printer", "list_obligations"]

_STYLES: dict[Outcome, dict[str, object]] = {
    Outcome.GREEN: {"fg": "green"},
    Outcome.RED: {"fg": "red", "bold": True},
    Outcome.EXCUSED: {"fg": "yellow"},
    Outcome.NOT_RUN: {"dim": True},
}
_INDENT = " " * 11
_LEVERS = "takes the lever"
_WHERE_LEVERS_ARE = "levers come with a probe, see turnstop.testing.Probe"


@attrs.define
class Printer:
    """Prints rows as they come.

    Attributes:
        file: where to.
        verbose: what was seen is told of every promise, and not of the broken ones only.
    """

    file: TextIO
    verbose: bool = False
    _heading: str = attrs.field(default="", init=False)

    def begin(self, name: str, bare: bool) -> None:
        """Say what is probed, once there is something to tell of it."""
        how = " (no probe: what needs no lever, by the adapter's own word)" if bare else ""
        self._heading = click.style(name, bold=True) + how

    def row(self, row: Row) -> None:
        """Tell of one promise."""
        if self._heading:
            self._say(self._heading)
            self._heading = ""
        word = click.style(f"{row.outcome.value:8}", **_STYLES[row.outcome])  # type: ignore[arg-type]
        self._say(f"  {word} {self._wrap(row.obligation.says)}")
        for line in self._details(row):
            self._say(
                _INDENT + click.style(self._wrap(line), dim=row.outcome is not Outcome.RED or None)
            )

    def _details(self, row: Row) -> Iterator[str]:
        if row.outcome is not Outcome.NOT_RUN or self.verbose:
            yield from row.text.splitlines()
        if row.outcome is Outcome.RED or self.verbose:
            for one in row.observed:
                yield f"{one.turn_id}: {one.timeline()}"
                yield from (f"  error: {text}" for text in one.errors)
                yield from (f"  alive: {text}" for text in one.survivors)
            yield f"({row.obligation.name}, {row.seconds:.2f} s)"

    def end(self, probing: Probing) -> None:
        """Sum up one adapter, its bad sides on stderr."""
        for report in probing.reports:
            if report.rows:
                self._say(_sum(report))
        if probing.verdict == "not run":
            text = "not one promise was played: they take levers that it does not have"
            click.echo(f"{click.style('Error', fg='red')}: {probing.adapter}: {text}", err=True)
        for text in (*probing.bad, *probing.misdeeds):
            click.echo(f"{click.style('Error', fg='red')}: {probing.adapter}: {text}", err=True)
        if probing.wrote and (probing.bad or probing.misdeeds or self.verbose):
            click.echo("it wrote to stderr:", err=True)
            click.echo(textwrap.indent(probing.wrote, "  "), err=True)

    def _wrap(self, text: str) -> str:
        if not self.file.isatty():
            return text
        width = max(40, shutil.get_terminal_size().columns - len(_INDENT))
        return f"\n{_INDENT}".join(textwrap.wrap(text, width) or [""])

    def _say(self, text: str) -> None:
        with writing("the rows", self.file):
            click.echo(text, file=self.file)


def _sum(report: Report) -> str:
    counts = []
    for outcome in (Outcome.RED, Outcome.GREEN, Outcome.EXCUSED, Outcome.NOT_RUN):
        if number := len(list(report.of(outcome))):
            style = _STYLES[outcome]
            counts.append(click.style(f"{number} {outcome.value}", **style))  # type: ignore[arg-type]
    text = f"{click.style(report.probe, bold=True)}: {', '.join(counts)}"
    reasons = dict.fromkeys(row.text for row in report.of(Outcome.NOT_RUN))
    others = [reason for reason in reasons if not reason.startswith(_LEVERS)]
    levers = [] if len(others) == len(reasons) else [_WHERE_LEVERS_ARE]
    return "; ".join([text, *others, *levers])


def list_obligations(file: TextIO) -> None:
    """Print every obligation with what it needs."""
    for one in OBLIGATIONS.values():
        click.echo(f"{click.style(one.name, bold=True)}{_needs(one)}", file=file)
        click.echo(f"    {one.says}", file=file)


def _needs(one: Obligation) -> str:
    return f"  needs {', '.join(one.needs)}" if one.needs else ""
