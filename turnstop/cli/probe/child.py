"""The process in which an adapter is probed: what it does wrong, it does here.

stdout is taken away first: what is said to the command goes through a copy of it that only the
`Speaker` knows, and what the adapter prints goes into a file. When stdin is closed, the command
wants no more, or is gone: then this process ends too, by itself or by force.
"""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from typing import IO, Any, NoReturn

import trio

from ... import StopBudget
from ..._unwrap import open_private_nursery
from ...testing import Probe, Row, probe_backend
from ...testing._factory import NotABackend, describe
from ...testing._loading import Missing, as_probes
from ...testing._run import chosen
from ...testing.bare import probe_factory
from .job import Job, Speaker
from .naming import Unnamed, find

_BEAT = 0.5
_ENDS_BY_ITSELF = 1.0
_MOMENT = 0.05
_CLOSES_WITHIN = 2.0
_SHOWN = 2000


def main() -> NoReturn:
    """Probe what the one argument says."""
    speaker, printed = Speaker(os.dup(1)), _take_output()
    _end_with_the_command()
    job = Job.from_argument(sys.argv[1])
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    end = partial(_end, speaker, printed)
    try:
        bad = _work(job, speaker, partial(end, os._exit))
    except KeyboardInterrupt:
        sys.exit(130)
    end(sys.exit, bad)


def _end(
    speaker: Speaker, printed: IO[bytes], leave: Callable[[int], NoReturn], bad: str
) -> NoReturn:
    if bad:
        speaker.say("bad", text=bad)
    sys.stdout.flush()
    text = os.pread(printed.fileno(), _SHOWN, 0).decode(errors="replace")
    speaker.say("done", threads=_threads(), printed=text)
    leave(0)


def _take_output() -> IO[bytes]:
    printed = tempfile.TemporaryFile()  # noqa: SIM115  as long as the process
    os.dup2(printed.fileno(), 1)
    return printed


def _end_with_the_command() -> None:
    """Ctrl-C, or the death of the command, is told by the end of stdin."""
    control = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    # Whoever started the command may have had it ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)

    def wait() -> None:
        os.read(control, 1)
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(_CLOSES_WITHIN)
        if os.getpgrp() == os.getpid():
            os.killpg(os.getpid(), signal.SIGKILL)

    threading.Thread(target=wait, name="the command's end", daemon=True).start()


def _threads() -> list[str]:
    """Threads that outlive all by more than a moment: what keeps a program from its end, or works.

    A library's own daemons are none of the adapter's business.
    """
    deadline = time.monotonic() + _ENDS_BY_ITSELF
    while (found := list(_live_threads())) and time.monotonic() < deadline:
        time.sleep(_MOMENT)
    return found


def _live_threads() -> Iterator[str]:
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and (not thread.daemon or _is_at_work(thread)):
            yield f"the thread {thread.name}"


def _is_at_work(thread: threading.Thread) -> bool:
    """Whether it is one of Trio's, and was given something to do."""
    frame = sys._current_frames().get(thread.ident or 0)
    while frame is not None:
        code = frame.f_code
        if code.co_name == "_handle_job" and code.co_filename.endswith("_thread_cache.py"):
            return True
        frame = frame.f_back
    return False


def _work(job: Job, speaker: Speaker, stuck: Callable[[str], object]) -> str:
    """Probe it; return why it cannot be probed, empty where it can.

    Where something of it can never end, `stuck` is told that in place of a return.
    """
    try:
        for target in job.targets:
            speaker.say("stage", name="import", of=target)
            for found in as_probes(find(target)):
                _probe(job, target, found, speaker, stuck)
    except (NotABackend, Missing, Unnamed) as error:
        return str(error)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        return f"it {_describe(error)} while it was probed"
    return ""


def _describe(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    if isinstance(error, SystemExit):
        return f"ended the interpreter (sys.exit({error.code!r}))"
    return f"raised {describe(error)}"


def _probe(
    job: Job, target: str, found: Any, speaker: Speaker, stuck: Callable[[str], object]
) -> None:
    is_probe = job.probes or (isinstance(found, type) and issubclass(found, Probe))
    speaker.say("stage", name="open", of=target)
    names = [one.name for one in chosen(job.only)]
    told = partial(_say_row, speaker)
    if not is_probe:
        speaker.say("probe", name=target, bare=True, obligations=names)
        trio.run(partial(_probe_bare, job, found, speaker, told, stuck))
        return
    if job.given:
        raise Unnamed(f"{', '.join(job.given)} is for a factory: a probe says that by itself")
    if job.real:
        trio.run(_open_once, found())
    speaker.say("probe", name=_title(job, target, found), bare=False, obligations=names)
    opening = getattr(found, "opening", 0.0)
    speaker.say("stage", name="check", of=target, opening=opening)
    probe_backend(found, only=job.only, told=told)


def _title(job: Job, target: str, found: Any) -> str:
    """The probe's name, with what was asked for where that says more."""
    name = getattr(found, "name", "") or target
    return name if job.probes or name == target else f"{name} ({target})"


def _say_row(speaker: Speaker, row: Row) -> None:
    speaker.say("row", row=row.to_json())


async def _open_once(probe: Probe) -> None:
    """Its errors are those of what is missing, and no broken promises."""
    async with open_private_nursery() as probe.far_end:
        try:
            async with probe.open():
                pass
        except Exception as error:
            raise NotABackend(f"it cannot be opened: {error}") from error
        probe.far_end.cancel_scope.cancel()


async def _probe_bare(job: Job, factory: Any, speaker: Speaker, told: Any, stuck: Any) -> None:
    async with open_private_nursery() as nursery:
        before = set(_tasks())
        nursery.start_soon(_beat, speaker)
        await probe_factory(
            factory,
            only=job.only,
            told=told,
            budget=StopBudget(cancel_within=job.cancel_within, kill_within=job.kill_within),
            prompt=job.prompt,
            unable=job.unable,
            opened=partial(speaker.say, "stage", name="check", of=job.adapter),
            stuck=stuck,
        )
        await trio.sleep(_MOMENT)
        left = [f"the task {task.name}" for task in _tasks() if task not in before]
        if left:
            speaker.say("left", names=left)
        nursery.cancel_scope.cancel()


def _tasks() -> Iterator[trio.lowlevel.Task]:
    """The system tasks: what an adapter may start outside of every nursery."""
    root = trio.lowlevel.current_root_task()
    for nursery in root.child_nurseries if root else ():
        yield from nursery.child_tasks


async def _beat(speaker: Speaker) -> None:
    """Say that not everything stands still."""
    while True:
        speaker.say("beat")
        await trio.sleep(_BEAT)
