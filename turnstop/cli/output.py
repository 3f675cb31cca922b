"""What the commands write: into a file that is there first; a full disk is told in one line."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import IO

import attrs
import click

__all__ = ["CannotWrite", "Output", "opened", "writing"]


class CannotWrite(click.ClickException):
    """What was found could not be written; the text is one line."""

    exit_code = 2


@attrs.define(eq=False)
class Output:
    """A file that takes another one's place when its block is left, and is nothing before.

    Attributes:
        file: what is written to.
        place: whose place it takes; empty: it is there itself.
    """

    file: IO[str]
    place: str = ""

    def __enter__(self) -> IO[str]:
        return self.file

    def __exit__(self, kind: object, *_: object) -> None:
        with self.file:  # stdout stays open
            self.file.flush()
        if kind is None and self.place:
            os.replace(self.file.name, self.place)

    def discard(self) -> None:
        """Leave nothing of what was not written to its end."""
        if self.place:
            with suppress(OSError):
                self.file.close()
            with suppress(OSError):
                os.unlink(self.file.name)


def opened(name: str) -> Output:
    """Open the file of `--json`, before anything is done, so that nothing is done in vain.

    Raises:
        click.BadParameter: it cannot be written.
    """
    if name == "-" and sys.stdout is None:
        raise click.BadParameter("--json has no stdout to write to: name a file")
    context = click.get_current_context()
    try:
        if name == "-" or (os.path.exists(name) and not os.path.isfile(name)):
            return Output(context.with_resource(click.open_file(name, "w")))
        output = _open_beside(os.path.realpath(name))
    except OSError as error:
        raise click.BadParameter(f"--json cannot write {name}: {error.strerror}") from None
    context.call_on_close(output.discard)
    return output


def _open_beside(place: str) -> Output:
    if os.path.exists(place):
        open(place, "a").close()  # whoever may not write it may not replace it
    folder, name = os.path.split(place)
    beside = os.path.join(folder, f".{name}.{os.getpid()}")
    output = Output(open(beside, "w"), place)  # noqa: SIM115  closed by its block, or discarded
    if os.path.exists(place):
        os.chmod(beside, os.stat(place).st_mode & 0o777)
    return output


@contextmanager
def writing(what: str, file: IO[str] | None = None) -> Iterator[None]:
    """A full disk is told in one line, and never by a status that means something else.

    Args:
        what: what is written.
        file: where to; stdout by default.

    Raises:
        CannotWrite: it could not be written.
    """
    try:
        yield
    except OSError as error:
        # What is still buffered has nowhere to go, and Python would try it again at its exit.
        with suppress(OSError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), (file or sys.stdout).fileno())
        if isinstance(error, BrokenPipeError):  # whoever read it has seen enough
            return
        raise CannotWrite(f"{what} could not be written: {error.strerror or error}") from error
