"""What is known of each program, and how it is shown."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TextIO

import attrs
import click

if TYPE_CHECKING:
    from ...lab import Pin, Program

__all__ = ["Row", "show", "to_json"]


@attrs.frozen
class Row:
    """A program, and where it is, or why it is not.

    Attributes:
        program: None: there is none.
        problem: what is missing; empty: nothing.
    """

    pin: Pin
    program: Program | None
    problem: str

    @classmethod
    def of(cls, pin: Pin) -> Row:
        """Look for it."""
        from ...lab import MissingProgram, find_program

        try:
            return cls(pin, find_program(pin.name), "")
        except MissingProgram as missing:
            return cls(pin, None, str(missing))

    def to_json(self) -> dict[str, object]:
        """What a machine wants to know of it."""
        pin = self.pin
        return {
            "name": pin.name,
            "version": pin.version,
            "registry": pin.registry,
            "packages": pin.requirements,
            "download_mb": pin.download,
            "disk_mb": pin.size,
            "optional": pin.optional,
            "acp": pin.acp,
            "command": None if self.program is None else self.program.command,
            "missing": self.problem or None,
        }


def to_json(rows: Iterable[Row]) -> dict[str, object]:
    """The list for machines."""
    from ...lab.pins import lab_home, platform_name

    programs = [row.to_json() for row in rows]
    return {"home": str(lab_home()), "platform": platform_name(), "programs": programs}


def show(rows: Sequence[Row], file: TextIO) -> None:
    """The list for people."""
    from ...lab.pins import lab_home

    home = lab_home()
    click.echo(f"{'program':<21}{'version':<10}{'download':>9}{'on disk':>9}   where", file=file)
    for row in rows:
        pin, where = row.pin, row.problem
        if row.program is not None:
            path = row.program.path
            where = pin.folder if path.startswith(f"{home}/") else path
        elif where.startswith(f"{pin.name} is not installed"):
            where = "-"
        sizes = f"{pin.download:>6} MB{pin.size:>6} MB"
        click.echo(f"{pin.name:<21}{pin.version:<10}{sizes}   {where}", file=file)
    there = sum(row.program is not None for row in rows)
    click.echo(f"\n{there} of {len(rows)} are here. The lab's folder: {home}", file=file)
    if there < len(rows):
        click.echo("To install one: turnstop lab install NAME", file=file)
