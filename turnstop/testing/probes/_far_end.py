"""What the probes of servers in memory have in common: a far end is begun, and has their levers."""

from __future__ import annotations

import abc
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Generic, Protocol, TypeVar

from ...abc import Backend
from .._probe import Probe, Work

__all__ = ["FarEndProbe"]


class FarEnd(Protocol):
    """A server in memory.

    Attributes:
        works: every message that it was sent.
        cancels: what becomes of a cancel: obeyed, held, refused, ignored, or unanswered.
        ends_after: how many seconds after a cancel that is obeyed the work ends.
    """

    works: list[Work]
    cancels: Any
    ends_after: float

    def hold_starts(self) -> None:
        """Answer no message from now on."""

    def release_starts(self) -> None:
        """Answer those that were held, and the next ones at once."""

    def refuse_starts(self) -> None:
        """Refuse messages from now on, and those that are held."""

    def die(self) -> None:
        """Break every connection and end all work; it is there again at once."""

    def cut(self) -> None:
        """Break every connection; the work goes on."""

    def babble(self) -> None:
        """Send what is not of the protocol into every stream."""


_Server = TypeVar("_Server", bound=FarEnd)


class FarEndProbe(Probe, Generic[_Server]):
    """A probe whose far end is begun at its opening. What a work does is a subclass's."""

    def __init__(self) -> None:
        self._server: _Server | None = None

    @abc.abstractmethod
    def begin(self) -> _Server:
        """A far end, in the nursery `far_end`."""

    @abc.abstractmethod
    def connect(self, server: _Server) -> AbstractAsyncContextManager[Backend[Any]]:
        """Open the adapter's backend of it."""

    @property
    def server(self) -> _Server:
        """The far end, from the opening on."""
        assert self._server is not None
        return self._server

    def open(self) -> AbstractAsyncContextManager[Backend[Any]]:
        """Open it."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[Any], None]:
        self._server = self.begin()
        try:
            async with self.connect(self._server) as backend:
                yield backend
        finally:
            self._server.die()

    @property
    def works(self) -> Sequence[Work]:
        """Each message that the server was sent."""
        return self._server.works if self._server else ()

    def hold_starts(self) -> None:
        """Take messages, and do not answer them."""
        self.server.hold_starts()

    def release_starts(self) -> None:
        """Answer them."""
        self.server.release_starts()

    def refuse_starts(self) -> None:
        """Answer messages by an error."""
        self.server.refuse_starts()

    def hold_cancels(self) -> None:
        """Neither answer nor obey."""
        self.server.cancels = "held"

    def refuse_cancels(self) -> None:
        """Answer by an error."""
        self.server.cancels = "refused"

    def ignore_cancels(self) -> None:
        """Answer as ever, and go on."""
        self.server.cancels = "ignored"

    def hold_acknowledgements(self) -> None:
        """Obey, and do not answer."""
        self.server.cancels = "unanswered"

    def end_late(self, seconds: float) -> None:
        """Answer at once, and end later."""
        self.server.ends_after = seconds

    async def die(self) -> None:
        """Break every connection; the server is there again at once."""
        self.server.die()

    async def cut(self) -> None:
        """Break every connection; the server works on."""
        self.server.cut()

    async def babble(self) -> None:
        """Send what is not of the protocol into every stream."""
        self.server.babble()

    def open_again(self) -> AbstractAsyncContextManager[Backend[Any]]:
        """Open the backend of the same far end."""
        return self.connect(self.server)
