"""Where messages and controls come from: `turnstop.Feed`, made in memory or in a file."""

from .memory import MemoryFeed as MemoryFeed

__all__ = ["MemoryFeed"]
