"""A turn that is a program: a child of this process, which another one finds should this one die.

Its end is its own: what it wrote is the turn's text, and its exit status says how the turn ended.
"""

from __future__ import annotations

import codecs
import os
import shlex
import subprocess
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final, final

import attrs
import trio

from .._errors import BackendRefused
from ..abc import Emit, End, How, Proof, Request
from ..events import Text
from .orphans import OrphanedTurn, ProcessAddress, new_mark
from .proctable import TableEntry, has_table

__all__ = ["ChildTurn", "start_child"]

_GRACE: Final = 0.25


@final
@attrs.define(eq=False)
class ChildTurn:
    """A turn that is a child of this process. Made by `start_child`.

    Attributes:
        pid: the child, and its session and group.
        address: what another process finds it by, for `attach_process`.
        session: what its room goes on with: nothing.
    """

    acknowledges: ClassVar[bool] = False

    pid: int
    address: str
    session: object | None = attrs.field(default=None, init=False)
    _process: trio.Process
    _tree: OrphanedTurn
    _is_ended: bool = attrs.field(default=False, init=False)

    async def follow(self, emit: Emit) -> End:
        """Tell what it writes, until it has exited and nothing writes any more."""
        assert self._process.stdout is not None
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        async with self._process.stdout as stdout:
            async for piece in stdout:
                if text := decoder.decode(piece):
                    emit(Text(text))
        if text := decoder.decode(b"", final=True):
            emit(Text(text))
        status = await self._process.wait()
        if self._is_ended:
            return End(How.CANCELLED, Proof.PROCESS)
        if status == 0:
            return End(How.COMPLETED, Proof.PROCESS)
        how = f"was ended by signal {-status}" if status < 0 else f"exited with status {status}"
        return End(How.FAILED, Proof.PROCESS, detail=f"pid {self.pid} {how}")

    async def cancel(self, sent: Callable[[], None]) -> None:
        """SIGTERM, its grace, and SIGKILL, for it and for all that it has begun."""
        self._note_end()
        await self._tree.cancel(sent)

    async def kill(self) -> None:
        """End it by force."""
        self._note_end()
        await self._tree.kill()

    async def leftovers(self) -> Sequence[TableEntry]:
        """What is alive of it."""
        return await self._tree.leftovers()

    async def sweep(self, leftovers: Sequence[object]) -> Sequence[TableEntry]:
        """End what it has left."""
        return await self._tree.sweep(leftovers)

    def _note_end(self) -> None:
        # One that has exited already has a status of its own, which a stop does not change.
        self._is_ended = self._is_ended or self._process.poll() is None


async def start_child(
    request: Request[Any],
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: str | os.PathLike[str] | None = None,
    grace: float = _GRACE,
) -> ChildTurn:
    """Start a turn that is a program, for a backend's `start`; it is announced before it is begun.

    It has no stdin, and its stderr is this process's. What it writes to stdout is the turn's text.
    Its exit status 0 is the turn's end, any other is its failure; once it was told to stop, it is
    stopped.

    Args:
        request: what `start` was given.
        command: the program and its arguments.
        env: laid over this process's environment.
        cwd: where it runs.
        grace: seconds that it has for ending by itself between SIGTERM and SIGKILL.

    Raises:
        BackendRefused: it could not be started; or the turn was stopped before.

    **Cancellation:** before the program is begun: nothing is.
    """
    if not has_table():
        raise BackendRefused("no process is shown here: what the program begins could not be ended")
    mark = new_mark()
    await request.announce(str(ProcessAddress.ahead(mark)))
    try:
        process = await trio.lowlevel.open_process(
            list(command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            cwd=cwd,
            env={**os.environ, **(env or {}), **dict([mark])},
            start_new_session=True,
        )
    except OSError as error:
        text = f"could not be started: {error}: {shlex.join(command)}"
        raise BackendRefused(text) from error
    tree = OrphanedTurn(ProcessAddress.of(process.pid, mark), grace=grace)
    return ChildTurn(process.pid, tree.address, process, tree)
