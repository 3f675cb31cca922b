"""The matrix as a table in words."""

from __future__ import annotations

from collections.abc import Iterator

from .._obligation import OBLIGATIONS
from ._matrix import Cell, Matrix
from ._saboteur import SABOTEURS

__all__ = ["table"]


def table(matrix: Matrix, *, seen: bool = False) -> str:
    """One row an obligation, and in it who removes it, and over which probes that was caught.

    Args:
        matrix: what was played.
        seen: tell also what was seen in each cell.
    """
    lines = []
    for name, obligation in OBLIGATIONS.items():
        cells = [cell for cell in matrix.cells if cell.obligation == name]
        lines += ["", f"{name}: {obligation.says}"]
        lines += [*_rows(cells, seen)] or ["  nobody removes it"]
    return "\n".join([*_honest(matrix), *lines, "", _sum(matrix)])


def _honest(matrix: Matrix) -> Iterator[str]:
    for report in matrix.honest:
        if not report.red:
            yield f"{report.probe}: nothing is red while nobody is at work"
        for row in report.red:
            yield f"{report.probe}: {row.obligation.name} is RED with nobody at work: {row.text}"


def _rows(cells: list[Cell], seen: bool) -> Iterator[str]:
    for saboteur in SABOTEURS.values():
        mine = [cell for cell in cells if cell.saboteur == saboteur.name]
        caught = ", ".join(cell.probe for cell in mine if cell.caught)
        missed = ", ".join(cell.probe for cell in mine if not cell.caught)
        if mine:
            verdict = "; ".join(
                [f"caught over {caught}"] * bool(caught) + [f"MISSED over {missed}"] * bool(missed)
            )
            yield f"  {saboteur.where:7} {saboteur.name}: {verdict}"
        if seen:
            yield from (f"            {cell.probe}: {_first(cell.text)}" for cell in mine)


def _first(text: str) -> str:
    return text.partition("\n")[0] or "green"


def _sum(matrix: Matrix) -> str:
    caught = sum(cell.caught for cell in matrix.cells)
    return (
        f"{len(OBLIGATIONS)} obligations, {len(SABOTEURS)} saboteurs: "
        f"{caught} of {len(matrix.cells)} cells are caught"
    )
