"""The command's side of one probing process: start it, hear it, and leave nothing of it behind."""

from __future__ import annotations

import json
import secrets
import sys
from pathlib import Path

import attrs
import trio

from ...transports import proctable
from ...transports._lines import LineSplitter
from ...transports.process import ChildProcess, Grace, open_process
from .hearing import Audience, Ears, Limits, Probing
from .job import Job
from .orphans import Orphans, adopting

__all__ = ["LIMITS", "MARK", "probe"]

MARK = "TURNSTOP_PROBE"
"""The environment variable that all descendants of a probing process carry."""

_BOOT = (
    "import sys; sys.path.append(sys.argv.pop(1));from turnstop.cli.probe.child import main; main()"
)
_ROOT = str(Path(__file__).parents[3])
_GRACE = Grace(close=2.5, terminate=0.5, kill=1.0)
_EXITS_WITHIN = 3.0
_ENDS_BY_ITSELF = 1.0
_LOOKS_EVERY = 0.1
_ENDS_WITHIN = 4.0


LIMITS = Limits()


async def probe(job: Job, audience: Audience) -> Probing:
    """Probe one adapter in a process of its own.

    Nothing of it is left when this returns or raises: neither the process, nor, on Linux, whatever
    descends from it. Elsewhere nobody can look for what it leaves.

    **Cancellation:** the process is told, has 2.5 s to close what it opened, and is killed.
    """
    probing = Probing(job.adapter)
    marks = {MARK: secrets.token_hex(8)}
    since = proctable.ticks_now()
    find: _Find | None = None
    with adopting(since) as orphans:
        try:
            command = [sys.executable, "-c", _BOOT, _ROOT, job.to_argument()]
            async with open_process(
                command, name="the probing process", env=dict(marks), grace=_GRACE
            ) as child:
                find = _Find(marks, child, since, orphans)
                await _attend(child, Ears(probing, audience, LIMITS), find)
                probing.wrote = child.stderr_tail
        finally:
            if find is not None:
                with trio.CancelScope(shield=True, relative_deadline=_ENDS_WITHIN):
                    await proctable.end_processes(find)
                find.reap()
    return probing


@attrs.frozen
class _Find:
    """Finds what the probing process has started: by the mark, its session, and its orphans."""

    marks: dict[str, str]
    child: ChildProcess
    since: int
    orphans: Orphans | None

    async def __call__(self) -> list[proctable.TableEntry]:
        marked = [one.process for one in await proctable.find_marked(self.marks)]
        session = await proctable.find_session(self.child.pid, since=self.since)
        pid = self.child.pid
        if self.child.returncode is not None and any(one.pid == pid for one in session):
            session = []  # the pid was given to somebody else
        orphans = [] if self.orphans is None else self.orphans.find(own=pid)
        found = dict.fromkeys((*marked, *session, *orphans))
        return [one for one in found if one.pid != pid]

    def reap(self) -> None:
        """Let go of what has ended and had nobody else."""
        if self.orphans is not None:
            self.orphans.reap(own=self.child.pid)


async def _attend(child: ChildProcess, ears: Ears, find: _Find) -> None:
    """Hear it to its end, and see what it leaves behind."""
    if await _listen(child, ears):
        await _see_out(child, ears)
        if child.returncode is not None:
            ears.note_left(await _left(find))


async def _listen(child: ChildProcess, ears: Ears) -> bool:
    """Hear it to its end; False where it was silent for too long."""
    splitter = LineSplitter()
    while not ears.over:
        with trio.CancelScope(deadline=ears.deadline) as scope:
            chunk = await child.stdout.receive_some()
        if scope.cancelled_caught:
            ears.note_silence()
            return False
        if not chunk:
            break
        for line in splitter.feed(chunk):
            ears.hear(json.loads(line))
    return True


async def _see_out(child: ChildProcess, ears: Ears) -> None:
    with trio.move_on_after(_EXITS_WITHIN):
        await child.wait()
    ears.note_end(child.describe().partition(";")[0])


async def _left(find: _Find) -> list[proctable.TableEntry]:
    """What outlives it by more than a moment."""
    found: list[proctable.TableEntry] = []
    with trio.move_on_after(_ENDS_BY_ITSELF):
        while found := await find():  # noqa: ASYNC110  a stranger's death is no event
            await trio.sleep(_LOOKS_EVERY)
    return found
