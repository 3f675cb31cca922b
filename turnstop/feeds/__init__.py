"""Where messages and controls come from: the contract of a feed, and one in memory.

`turnstop.feeds.sqlite` has one in a file.
"""

from .._inbox import Claim as Claim
from .._inbox import Feed as Feed
from .._inbox import InboxStatistics as InboxStatistics
from .._inbox import Standing as Standing
from ._keeping import IdTaken as IdTaken
from .memory import MemoryFeed as MemoryFeed

__all__ = ["Claim", "Feed", "IdTaken", "InboxStatistics", "MemoryFeed", "Standing"]
