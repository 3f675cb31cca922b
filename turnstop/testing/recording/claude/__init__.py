"""Claude Code in memory, which speaks as the real program was seen to speak.

`Cli` is one process and its protocol. `RecordingClaude` is all of them: it keeps the truth of each
message that it is sent, and has the levers of a probe.
"""

from ._cli import Cli
from ._open import open_recorded
from ._recording import RecordingClaude

__all__ = ["Cli", "RecordingClaude", "open_recorded"]
