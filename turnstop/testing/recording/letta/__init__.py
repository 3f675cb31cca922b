"""A Letta server as a transport of httpx. Give it to `open_letta(URL, transport=server)`.

Nothing here imports letta-client: what is said is what stands on the wire.
"""

from ._frames import URL
from ._server import RecordingLetta

__all__ = ["URL", "RecordingLetta"]
