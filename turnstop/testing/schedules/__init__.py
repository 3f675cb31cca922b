"""Random schedules for any probe: starts, ends, stops, failures, all at random times.

    from turnstop.testing.schedules import check_schedules

    def test_my_adapter_at_random():
        check_schedules(MyProbe, seeds=range(500))

A seed decides everything. Where one breaks a promise it is shrunk to a handful of steps, and what
is printed can be put into a regression test. The same from a shell:

    python -m turnstop.testing.schedules my_package.probes:MyProbe --seeds 500
"""

from ._draw import draw
from ._many import ScheduleBroken, check_schedules
from ._person import Fault
from ._play import Played, play, replay
from ._schedule import BODIES, CLOSINGS, Schedule, Step
from ._shrink import shrink

__all__ = [
    "BODIES",
    "CLOSINGS",
    "Fault",
    "Played",
    "Schedule",
    "ScheduleBroken",
    "Step",
    "check_schedules",
    "draw",
    "play",
    "replay",
    "shrink",
]
