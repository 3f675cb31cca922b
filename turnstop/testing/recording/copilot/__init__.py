"""A Copilot CLI in memory, which speaks as the real one was seen to speak.

`FarCli` is one process and its protocol, at the level of the SDK's JSON-RPC messages.
`RecordingCopilot` is all of them: it keeps the truth of each message that it is sent, and has the
levers of a probe. The SDK is the real one but for its threads, which know no virtual time.
"""

from ._cli import FarCli
from ._open import open_recorded
from ._recording import RecordingCopilot

__all__ = ["FarCli", "RecordingCopilot", "open_recorded"]
