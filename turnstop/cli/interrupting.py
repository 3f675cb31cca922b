"""A command that is told to end ends what it started first, as at Ctrl-C."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager

__all__ = ["interrupted_by"]


@contextmanager
def interrupted_by(*numbers: signal.Signals) -> Iterator[None]:
    """Who is told to end by these is interrupted, unless that or Ctrl-C is ignored."""
    before = {
        number: signal.signal(number, lambda *_: signal.raise_signal(signal.SIGINT))
        for number in numbers
        if signal.getsignal(number) is signal.SIG_DFL
        and signal.getsignal(signal.SIGINT) is signal.default_int_handler
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
