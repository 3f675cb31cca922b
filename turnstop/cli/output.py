"""What the commands write: into a file that is opened first; a full disk is told in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import click

__all__ = ["CannotWrite", "opened", "writing"]


class CannotWrite(click.ClickException):
    """What was found could not be written; the text is one line."""

    exit_code = 2


def opened(name: str) -> IO[str]:
    """Open the file of `--json`, before anything is done, so that nothing is done in vain.

    Raises:
        click.BadParameter: it cannot be written.
    """
    if name == "-" and sys.stdout is None:
        raise click.BadParameter("--json has no stdout to write to: name a file")
    try:
        return click.get_current_context().with_resource(click.open_file(name, "w"))
    except OSError as error:
        raise click.BadParameter(f"--json cannot write {name}: {error.strerror}") from None


@contextmanager
def writing(what: str) -> Iterator[None]:
    """A full disk is told in one line, and never by a status that means something else.

    Raises:
        CannotWrite: it could not be written.
    """
    try:
        yield
    except OSError as error:
        # What is still buffered has nowhere to go, and Python would try it again at its exit.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if isinstance(error, BrokenPipeError):  # whoever read it has seen enough
            return
        raise CannotWrite(f"{what} could not be written: {error.strerror or error}") from error
