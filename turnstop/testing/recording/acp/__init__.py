"""An ACP agent in memory, which speaks as the real ones were seen to speak.

`RecordingAcp` is the program: it keeps the truth of each prompt, and has the levers of a probe.
`QUIRKS` is what each agent gets wrong, by its profile.
"""

from ._open import open_recorded
from ._quirks import QUIRKS, Quirks
from ._recording import RecordingAcp

__all__ = ["QUIRKS", "Quirks", "RecordingAcp", "open_recorded"]
