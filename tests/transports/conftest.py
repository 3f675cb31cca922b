"""What the tests of the bridge share: both ways to run a loop, and a clock that suits them."""

from __future__ import annotations

import importlib.util
import sys
from functools import partial

import pytest
from bridging import Opener
from trio.testing import MockClock

from turnstop.transports.aio import open_aio

# The longest that a thread which has something to say may need to say it.
_THREAD_SAYS_WITHIN = 0.25


@pytest.fixture(params=["hosted", "thread"])
def host(request: pytest.FixtureRequest) -> str:
    if request.param == "hosted":
        if sys.version_info >= (3, 14):
            pytest.skip("trio-asyncio does not run on Python 3.14")
        if importlib.util.find_spec("trio_asyncio") is None:
            pytest.skip("pip install 'turnstop[aio]'")
    return request.param


@pytest.fixture
def clock(host: str) -> MockClock:
    """Trio's time jumps when nothing happens: with a thread, when nothing happens for a while."""
    return MockClock(autojump_threshold=0 if host == "hosted" else _THREAD_SAYS_WITHIN)


@pytest.fixture
def open_bridge(host: str, clock: MockClock) -> Opener:
    """`open_aio`, its loop hosted by Trio or in a thread."""
    return partial(open_aio, thread=host == "thread")
