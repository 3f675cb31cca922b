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
    for report in matrix.honest:
        red = ", ".join(row.obligation.name for row in report.red) or "nothing"
        lines.append(f"{report.probe}, with nobody at work: {red} is red")
    played = {row.obligation.name for report in matrix.honest for row in report.rows}
    for name, obligation in OBLIGATIONS.items():
        if name not in played:
            continue
        cells = [cell for cell in matrix.cells if cell.obligation == name]
        lines += ["", f"{name}: {obligation.says}"]
        lines += [*_rows(matrix, cells, seen)] or ["  nobody removes it here"]
    caught = sum(cell.caught for cell in matrix.cells)
    lines += ["", *matrix.faults]
    lines.append(f"{len(played)} obligations, {len(SABOTEURS)} saboteurs: ")
    lines[-1] += f"{caught} of {len(matrix.cells)} cells are caught, {len(matrix.faults)} faults"
    return "\n".join(lines)


def _rows(matrix: Matrix, cells: list[Cell], seen: bool) -> Iterator[str]:
    for saboteur in SABOTEURS.values():
        mine = [cell for cell in cells if cell.saboteur == saboteur.name]
        belongs = any(cell.obligation in saboteur.breaks for cell in mine)
        if not (belongs or any(cell.caught for cell in mine)):
            continue
        caught = ", ".join(cell.probe for cell in mine if cell.caught) or "nothing"
        yield f"  {saboteur.where:7} {saboteur.name}: caught over {caught}"
        for cell in mine:
            if not cell.caught and belongs:
                why = matrix.excuse(cell)
                yield f"            {cell.probe}: {f'unseen, {why}' if why else 'MISSED'}"
            elif cell.caught and seen:
                yield f"            {cell.probe}: {cell.text.partition(chr(10))[0]}"
