"""A Parlant engine in memory that records what it is told. On the adapter's own asyncio loop.

It does what parlant 3.3.2 was seen to do, and what its source says: a processing task for each
session, which says `cancelled` and `ready` when it is cancelled and returns; a preamble that goes
on all the same; tools that run in another context; and one latch, behind which a message that is
being emitted is emitted.
"""

from ._engine import RecordingParlant as RecordingParlant

__all__ = ["RecordingParlant"]
