"""The obligations kit: any adapter proves, promise by promise, that its stop stops.

An adapter is checked by a `Probe`: the real adapter against a far end that records what it is
told and does what its levers say.

    from turnstop.testing import check_backend

    def test_my_adapter():
        check_backend(MyProbe)
"""

from ._obligation import OBLIGATIONS, Obligation, obligation
from ._probe import ABILITIES, LEVERS, Probe, Work
from ._report import Observed, Outcome, Report, Row
from ._run import ObligationsBroken, check_backend, check_obligation, probe_backend
from ._stage import Actor, Broken, Stage
from .bare import NotABackend, bare_probe, probe_factory
from .clock import Stalled, run_in_virtual_time
from .inventory import NoRemoteWork

__all__ = [
    "ABILITIES",
    "LEVERS",
    "OBLIGATIONS",
    "Actor",
    "Broken",
    "NoRemoteWork",
    "NotABackend",
    "Obligation",
    "ObligationsBroken",
    "Observed",
    "Outcome",
    "Probe",
    "Report",
    "Row",
    "Stage",
    "Stalled",
    "Work",
    "bare_probe",
    "check_backend",
    "check_obligation",
    "obligation",
    "probe_backend",
    "probe_factory",
    "run_in_virtual_time",
]
