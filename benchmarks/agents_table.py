"""The figures of `turnstop bench`, as the tables of the page on the agents.

    turnstop bench --against raw -n 30 --json figures.json
    python benchmarks/agents_table.py figures.json --into docs/reference/agents.md

Several files are put together, as from runs of some agents each; of a moment that was measured
twice, the later file's figures count. Without `--into`, the tables are printed.
"""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, TypeAlias

BEGIN, END = "<!-- figures -->", "<!-- end of the figures -->"
Row: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str, str]
_VERDICTS = ("lost", "lies", "unanswered", "histories", "killed", "unconfirmed")


class Figures:
    """What several files say together, in the order of the first to name each backend."""

    def __init__(self, reports: Iterable[dict[str, Any]]) -> None:
        self.rows: dict[Key, Row] = {}
        self.ratios: dict[Key, dict[str, Any]] = {}
        self.absent: set[tuple[str, str]] = set()
        self.versions: dict[str, str] = {}
        self.machine: dict[str, Any] = {}
        for report in reports:
            self.rows |= {_key(row): row for row in report["rows"]}
            self.ratios |= {_key(row): row for row in report["ratios"]}
            self.absent |= {(row["backend"], row["moment"]) for row in report["absent"]}
            self.versions |= report["versions"]
            self.machine = report["machine"]

    @property
    def backends(self) -> list[str]:
        return list(dict.fromkeys(backend for backend, _, _ in self.rows))

    def of(self, backend: str, runner: str) -> list[Row]:
        """The rows of a backend by one runner, moment by moment."""
        return [row for key, row in self.rows.items() if (key[0], key[2]) == (backend, runner)]


def _key(row: Row) -> Key:
    return row["backend"], row["moment"], row["runner"]


def verdicts(figures: Figures) -> Iterator[str]:
    """A line a backend: all its moments together."""
    titles = ("agent", "stops", "lost", "lies", "next turn answers", "history valid")
    yield from _head(*titles, "KILLED", "UNCONFIRMED", "lost by raw")
    for backend in figures.backends:
        rows = figures.of(backend, "turnstop")
        stops = sum(row["n"] for row in rows)
        lost, lies, mute, invalid, killed, unconfirmed = (
            sum(row[name] for row in rows) for name in _VERDICTS
        )
        raw = figures.of(backend, "raw")
        by_raw = f"{sum(row['lost'] for row in raw)} of {sum(row['n'] for row in raw)}"
        answers, valid = stops - mute, stops - invalid
        cells = (backend, stops, lost, lies, answers, valid, killed, unconfirmed)
        yield _line(*cells, by_raw if raw else "")


def times(figures: Figures) -> Iterator[str]:
    """A line a backend and moment."""
    yield from _head("agent, moment", "gone", "ended", "next", "ended / raw, 95 %", "lost by raw")
    for backend in figures.backends:
        for row in figures.of(backend, "turnstop"):
            moment = row["moment"]
            raw = figures.rows.get((backend, moment, "raw"))
            yield _line(
                f"{backend}, {moment}",
                _spread(row["asked_to_gone_ms"]),
                _spread(row["asked_to_ended_ms"]),
                _spread(row["asked_to_admitted_ms"]),
                _ratio(figures.ratios.get((backend, moment, "raw"))),
                f"{raw['lost']} of {raw['n']}" if raw else "",
            )
        for _, moment in sorted(one for one in figures.absent if one[0] == backend):
            yield _line(f"{backend}, {moment}", "n/a", "", "", "", "")


def page(figures: Figures) -> str:
    """Both tables, and what was measured where."""
    machine = figures.machine
    where = f"{machine['system']}, {machine['cpus']} processors, Python {machine['python']}"
    measured = ", ".join(f"{name} {version}" for name, version in figures.versions.items())
    return "\n".join(
        (*verdicts(figures), "", *times(figures), "", f"Measured on {where}: {measured}.")
    )


def _spread(spread: dict[str, float | None]) -> str:
    values = [spread["median"], spread["p95"], spread["max"]]
    return " / ".join(_number(value) for value in values if value is not None)


def _number(value: float) -> str:
    return f"{value:.1f}" if value < 9.95 else f"{value:.0f}"


def _ratio(ratio: dict[str, Any] | None) -> str:
    if ratio is None:
        return ""
    return f"{ratio['ratio']:.2f}, {ratio['low']:.2f} to {ratio['high']:.2f}"


def _head(*titles: str) -> Iterator[str]:
    yield _line(*titles)
    yield "|" + "---|" * len(titles)


def _line(*cells: object) -> str:
    return "| " + " | ".join(str(cell) for cell in cells) + " |"


def put_into(file: Path, text: str) -> None:
    """Replace what stands between the two marks."""
    marks = re.compile(f"{BEGIN}.*{END}", re.DOTALL)
    before = file.read_text()
    if not marks.search(before):
        raise SystemExit(f"{file} lacks the lines {BEGIN} and {END}")
    file.write_text(marks.sub(lambda _: f"{BEGIN}\n\n{text}\n\n{END}", before))


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("figures", nargs="+", type=Path, help="what bench --json wrote")
    parser.add_argument("--into", type=Path, metavar="PAGE", help="the page to put the tables in")
    given = parser.parse_args(arguments)
    text = page(Figures(json.loads(file.read_text()) for file in given.figures))
    if given.into is None:
        print(text)
    else:
        put_into(given.into, text)


if __name__ == "__main__":
    main()
