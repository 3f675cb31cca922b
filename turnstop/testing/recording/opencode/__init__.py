"""An opencode server in memory, as a transport of httpx2: `open_opencode(URL, transport=server)`.

What it says, and in which order, is what the real one (1.18.33) was heard to say.
"""

from ._http import Stream
from ._server import URL, RecordingOpenCode

__all__ = ["URL", "RecordingOpenCode", "Stream"]
