"""What a person sees: the table on stdout, the progress on stderr. Needs rich."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from .figures import Row, Spread
from .model import MOMENTS
from .run import Bar, Results, machine
from .verdicts import WATCH

_WIDTH = 100
_SPREADS = {
    "sent": "asked_to_sent_ms",
    "gone": "asked_to_gone_ms",
    "ended": "asked_to_ended_ms",
    "next": "asked_to_admitted_ms",
}
_COUNTS = {
    "lost": "lost",
    "lies": "lies",
    "kill": "killed",
    "unc": "unconfirmed",
    "surv": "survivors",
}
_LEGEND = f"""\
median/p95/max in ms since the stop was asked for. gone: the work ended where it was done. next: the
session's next turn was let in. lost: work went on after the settlement said gone, or {WATCH:.0f} s
after an unconfirmed one; or the settlement lies; or the next turn did not answer, or its history
was not valid. kill, unc: settled as KILLED, UNCONFIRMED. surv: survivors that were named."""


_ABSENT = re.compile(r"is not installed; .*: turnstop lab install (\S+)$")


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to whoever prints: Console's own exit status would mean a lost stop."""
        raise BrokenPipeError


class _Bar:
    def __init__(self, shown: Progress) -> None:
        self._shown = shown
        self._task = shown.add_task("")

    def begin(self, text: str, total: int) -> None:
        self._shown.update(self._task, description=text, total=total)

    def step(self) -> None:
        self._shown.advance(self._task)


@contextmanager
def progress() -> Iterator[Bar]:
    """A progress bar on stderr; nothing where that is no terminal."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn())
    shown = Progress(
        *columns,
        TimeElapsedColumn(),
        console=console,
        transient=True,
        disable=not console.is_terminal,
    )
    with shown:
        yield _Bar(shown)


def show(results: Results, file: TextIO) -> None:
    """Print the table of one run, for a terminal or for a file."""
    found = _table(results)
    console = _Console(file=file, width=_width(found, file), highlight=False)
    console.print(found)
    console.print(_LEGEND, style="dim")
    for one in results.ratios:
        console.print(
            f"{one.backend} {one.moment}: turnstop / {one.runner} = {one.ratio:.2f} "
            f"(95 %: {one.low:.2f} to {one.high:.2f}; asked to ended, {one.pairs} pairs)"
        )
    for text in results.losses:
        console.print(text, style="red", markup=False)
    for name, text in results.failures.items():
        console.print(f"{name} failed: {text}", style="red", markup=False)
    for text in _left_out(results.missing):
        console.print(text, style="yellow", markup=False)
    where = machine()
    names = " · ".join(f"{name} {version}" for name, version in results.versions.items())
    console.print(f"{names} · {where['system']}, {where['cpus']} CPUs", style="dim")


def _left_out(missing: Mapping[str, str]) -> Iterator[str]:
    """What is not installed is told in one line, with the one command that installs it all."""
    absent = {name: found[1] for name, text in missing.items() if (found := _ABSENT.search(text))}
    if absent:
        command = " ".join(dict.fromkeys(absent.values()))
        yield f"not installed: {', '.join(absent)}: turnstop lab install {command}"
    for name, text in missing.items():
        if name not in absent:
            yield f"{name} is left out: {text}"


def _width(table: Table, file: TextIO) -> int | None:
    """A terminal's own; where a file goes on, no figure is cut off."""
    if file.isatty():
        return None
    endless = Console(file=file, width=10_000)
    return max(_WIDTH, Measurement.get(endless, endless.options, table).maximum)


def _table(results: Results) -> Table:
    """A line a moment and runner, below the backend's name: it has to fit 100 columns."""
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="bold")
    table.add_column("", no_wrap=True)
    for title in ("n", *_SPREADS, *_COUNTS):
        table.add_column(title, justify="right", no_wrap=True)
    for backend in dict.fromkeys(row.backend for row in results.rows):
        table.add_row(f"[bold]{backend}[/]")
        rows = [row for row in results.rows if row.backend == backend]
        for moment in MOMENTS:
            for row in rows:
                if row.moment == moment:
                    table.add_row(*_cells(row))
            if (backend, moment) in results.absent:
                table.add_row(f"  {moment}", "n/a", style="dim")
    return table


def _cells(row: Row) -> list[str]:
    name = f"  {row.moment}" if row.runner == "turnstop" else f"    {row.runner}"
    spreads = [_cell(getattr(row, field)) for field in _SPREADS.values()]
    counts = [getattr(row, field) for field in _COUNTS.values()]
    shown = [str(count) if count else "·" for count in counts]
    wrong = [f"[bold red]{text}[/]" if text != "·" else text for text in shown[:2]]
    return [name, str(row.n), *spreads, *wrong, *shown[2:]]


def _cell(spread: Spread) -> str:
    if spread.median is None or spread.p95 is None or spread.max is None:
        return "-"
    return "/".join(_number(value) for value in (spread.median, spread.p95, spread.max))


def _number(value: float) -> str:
    """Two figures or so, as short as they get."""
    if value < 0.095:
        return f"{value:.2f}"
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"
