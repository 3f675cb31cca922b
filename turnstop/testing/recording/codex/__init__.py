"""codex's app server in memory, which speaks as the real program was seen to speak.

`AppServer` is the protocol: threads, turns, interrupts, sub-agents. `RecordingCodex` keeps the
truth of each turn that it is asked for, and has the levers of a probe.
"""

from ._open import open_recorded
from ._recording import RecordingCodex
from ._server import NO_TURN, AppServer

__all__ = ["NO_TURN", "AppServer", "RecordingCodex", "open_recorded"]
