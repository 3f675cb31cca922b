"""A thread that looks at a run from outside, in real time."""

from __future__ import annotations

import ctypes
import faulthandler
import os
import signal
import sys
import threading
import traceback
from collections.abc import Generator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Protocol

import attrs
import trio

from ._tree import place

STDERR = 2


class Watched(Protocol):
    """What the watchdog sees of a run, and how it tells it."""

    passes: int
    late: str
    ended: bool
    token: trio.lowlevel.TrioToken | None

    def blame(self, what: str, where: str) -> None:
        """Say why the run is ended."""


class _Interrupt(BaseException):
    """Raised wherever the run happens to be, since it never came back to the scheduler."""


@contextmanager
def watchdog(watched: Watched, within: float) -> Generator[None]:
    """Tell the run when it is late, and interrupt what does not come back to hear it."""
    dog = _Watchdog(watched, within, threading.get_ident(), by_signal=_may_signal())
    before = signal.signal(signal.SIGVTALRM, dog.on_signal) if dog.by_signal else None
    thread = threading.Thread(target=dog.run, name="watchdog of virtual time", daemon=True)
    thread.start()
    try:
        yield
    finally:
        # From here on a signal that is under way raises nothing; after the join none is sent.
        watched.ended = True
        dog.over.set()
        try:
            thread.join()
        finally:
            if dog.by_signal:
                signal.signal(signal.SIGVTALRM, before)
            elif dog.barked:
                _take_back(dog.thread)


def _may_signal() -> bool:
    here = threading.current_thread() is threading.main_thread()
    if not (here and hasattr(signal, "pthread_kill")):
        return False
    # A handler that was not set from Python could not be given back.
    return signal.getsignal(signal.SIGVTALRM) is not None


def _raise_in(thread: int) -> None:
    """Raise in a thread at its next step in Python."""
    exception = ctypes.py_object(_Interrupt)
    ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(thread), exception)


def _take_back(thread: int) -> None:
    """Have nothing raised in this thread any more, whether it was or not.

    Python forgets that something is to be raised only where it raises it. Otherwise each of its
    steps looks for it for ever; and Python 3.11, where it traces, takes no further step.
    """
    try:
        _raise_in(thread)
        while True:
            pass
    except _Interrupt:
        return


def _nothing() -> None:
    """What a scheduler is woken up for."""


@attrs.define(eq=False, repr=False)
class _Watchdog:
    watched: Watched
    within: float
    thread: int
    by_signal: bool
    over: threading.Event = attrs.field(factory=threading.Event, init=False)
    barked: bool = attrs.field(default=False, init=False)

    def run(self) -> None:
        if self.over.wait(min(self.within, threading.TIMEOUT_MAX)):
            return
        seen = -1
        grace = min(1.0, self.within)
        while True:
            if self.watched.passes == seen:
                self._interrupt(grace)
            else:
                seen = self.watched.passes
                self._tell()
            if self.over.wait(grace):
                return

    def _tell(self) -> None:
        self.watched.late = f"not over after {self.within:g} s of real time"
        if self.watched.token is not None:
            with suppress(trio.RunFinishedError):
                self.watched.token.run_sync_soon(_nothing, idempotent=True)

    def _interrupt(self, grace: float) -> None:
        if self.watched.ended:
            return
        what = f"a step has not returned for {grace:g} s, after {self.within:g} s of real time"
        frame = sys._current_frames().get(self.thread)
        self.watched.blame(what, place(reversed(list(traceback.walk_stack(frame)))))
        if not self.barked:
            self.barked = True
            os.write(STDERR, f"{what}; it is interrupted\n".encode())
            faulthandler.dump_traceback(file=STDERR)
        if self.by_signal:
            signal.pthread_kill(self.thread, signal.SIGVTALRM)
        else:
            _raise_in(self.thread)

    def on_signal(self, signum: int, frame: FrameType | None) -> None:
        if not self.watched.ended:
            raise _Interrupt
