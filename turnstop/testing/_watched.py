"""A backend seen from the near side: what it says of its works by the contract, and no more."""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import attrs
import trio

from .._errors import BackendLost, BackendRefused
from ..abc import Emit, End, How, Proof, RemoteTurn, Request
from ._factory import NotABackend, describe
from ._probe import Work

__all__ = ["WatchedBackend"]


@attrs.define(eq=False)
class WatchedBackend:
    """Passes everything on, and notes it.

    Args:
        works: where each request is kept.
        note_unfit: told why nothing can be checked here.
        suffix: what each room's name is made to end in, where others use the backend as well.
    """

    _backend: Any
    _works: list[Work]
    _note_unfit: Callable[[str], object]
    _suffix: str = ""

    async def start(self, request: Request[object], /) -> RemoteTurn:
        work = Work(
            name=request.turn_id,
            text=str(request.content),
            session=None,
            asked_at=trio.current_time(),
        )
        first = not any(one.began_at is not None for one in self._works)
        announcing = _Announcing(request.announce, partial(self._works.append, work))
        if not getattr(self._backend, "announces", False):
            announcing.send()
        request = attrs.evolve(
            request, room=request.room + self._suffix, announce=announcing.announce
        )
        try:
            remote = await _awaited(self._backend.start(request))
        except Exception as error:
            if first and not announcing.refused:
                told = isinstance(error, NotABackend)
                self._note_unfit(str(error) if told else f"start raised {describe(error)}")
            raise
        announcing.send()
        work.began_at = trio.current_time()
        session = remote.session
        work.session = None if session is None else str(session)
        return _WatchedTurn(remote, work, self._note_unfit)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


@attrs.define(eq=False)
class _Announcing:
    """When a request is sent, by the word of a backend that announces each."""

    _announce: Callable[[str], Awaitable[None]]
    _send: Callable[[], object]
    refused: bool = False
    _sent: bool = False

    async def announce(self, address: str) -> None:
        """As `Request.announce`: what it has let pass is sent.

        **Cancellation:** as there.
        """
        try:
            await self._announce(address)
        except BackendRefused:
            self.refused = True
            raise
        self.send()

    def send(self) -> None:
        """It is sent now, where it was not before."""
        if not self._sent:
            self._sent = True
            self._send()


async def _awaited(started: Any) -> Any:
    if not inspect.isawaitable(started):
        raise _not_async("start", "request")
    remote = await started
    lacks = [name for name in ("follow", "cancel") if not callable(getattr(remote, name, None))]
    lacks += [] if hasattr(remote, "session") else ["session"]
    if lacks:
        raise NotABackend(
            f"start returned {remote!r}, which has no {' and no '.join(lacks)}: return a remote "
            "turn, as turnstop.abc.RemoteTurn says"
        )
    return remote


def _not_async(name: str, argument: str) -> NotABackend:
    text = f"{name} is no coroutine function: write `async def {name}(self, {argument})`"
    return NotABackend(text)


@attrs.define(eq=False)
class _WatchedTurn:
    _remote: Any
    _work: Work
    _note_unfit: Callable[[str], object]
    _asked: bool = False
    _broken: bool = False
    _killed: bool = False

    @property
    def session(self) -> object | None:
        found: object | None = self._remote.session
        return found

    async def follow(self, emit: Emit, /) -> End:
        following = self._expect_async(self._remote.follow(emit), "follow", "emit")
        try:
            end: End = await following
        except Exception as error:
            self._note_early(f"follow raised {describe(error)}")
            self._broken = True
            if self._killed or (isinstance(error, BackendLost) and error.gone):
                self._note_end()
            raise
        self._note_early("its work was over by itself")
        # Who only claims an end may be wrong; that it is completed is taken from anybody.
        if isinstance(end, End) and (end.proof is not Proof.CLAIMED or end.how is How.COMPLETED):
            self._note_end()
        return end

    async def cancel(self, sent: Callable[[], None], /) -> None:
        self._asked = True
        told = False

        def note_sent() -> None:
            nonlocal told
            if not told:
                self._work.told_at.append(trio.current_time())
            told = True
            sent()

        await self._expect_async(self._remote.cancel(note_sent), "cancel", "sent")

    def _expect_async(self, called: Any, name: str, argument: str) -> Awaitable[Any]:
        if inspect.isawaitable(called):
            return called
        error = _not_async(name, argument)
        self._note_unfit(str(error))
        raise error

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._remote, name)
        return partial(self._kill, found) if name == "kill" else found

    async def _kill(self, kill: Callable[[], Any]) -> None:
        self._asked = True
        await kill()
        self._killed = True
        if self._broken:
            self._note_end()

    def _note_end(self) -> None:
        if self._work.ended_at is None:
            self._work.ended_at = trio.current_time()

    def _note_early(self, what: str) -> None:
        if self._asked or self._work.began_at is None:
            return
        after = trio.current_time() - self._work.began_at
        self._note_unfit(
            f"{what} {after:.3f} s after it began, before anybody stopped it: what is asked for "
            "must go on until it is stopped"
        )
