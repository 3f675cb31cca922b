"""The obligations, promise by promise, in the order in which they are checked."""

from . import stopping as stopping

__all__ = ["stopping"]
