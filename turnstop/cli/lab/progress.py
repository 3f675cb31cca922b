"""How far the installation of one program is."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import trio

if TYPE_CHECKING:
    from ...lab import Pin
    from ...lab.installing import Installed

__all__ = ["Progress"]

_MB = 1 << 20
_STILL_EVERY = 15.0


class Progress:
    """On a terminal one line that changes; else a line now and then."""

    def __init__(self, pin: Pin) -> None:
        self._pin = pin
        self._title = f"{pin.name} {pin.version}"
        self._began = self._told_at = trio.current_time()
        self._live = sys.stderr.isatty()
        if not self._live:
            click.echo(f"{self._title}: downloading {pin.download} MB from {pin.registry}")

    def tell(self, size: int) -> None:
        """So many bytes are on disk."""
        now = trio.current_time()
        text = f"{self._title}: {now - self._began:.0f} s, {size // _MB} of {self._pin.size} MB"
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            click.echo(f"\r{text:<{width}}"[: width + 1], nl=False, err=True)
        elif now - self._told_at >= _STILL_EVERY:
            self._told_at = now
            click.echo(text)

    def done(self, found: Installed) -> None:
        """It is there."""
        self._clear()
        click.echo(f"{self._title}: done, {found.size // _MB} MB in {found.seconds:.1f} s")

    def failed(self, text: str, said: Sequence[str]) -> None:
        """It is not, and this is what the tool said last."""
        self._clear()
        click.echo(f"{self._title}: {text}", err=True)
        for line in said:
            click.echo(f"    {line}", err=True)

    def _clear(self) -> None:
        if self._live:
            click.echo("\r\x1b[K", nl=False, err=True)
