"""The store as claims ask it: what goes wrong with it has one name, and is counted."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TypeVar, TypeVarTuple

import attrs
import outcome

from .._calls import unprotected
from .._functions import check_made, is_async
from ._errors import ClaimLapsed, ClaimRefused, ClaimsUnavailable
from ._scopes import check_scope
from ._store import ClaimStore

__all__ = ["Register", "check_writes", "check_written"]

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

logger = logging.getLogger("turnstop.claims")

_GUARDED = "what guards its write is an ordinary function's call"


def check_writes(fn: Callable[..., object]) -> None:
    """Raise TypeError for a function that would write after its call has returned."""
    if is_async(fn) or inspect.isasyncgenfunction(fn):
        raise TypeError(f"{fn!r} is async: {_GUARDED}")


def check_written(result: Result) -> Result:
    """The same, of one that could not be seen to be async before it was called."""
    return check_made(result, _GUARDED)


@attrs.define(eq=False)
class Register:
    """The store, and what has been counted of it."""

    store: ClaimStore
    held: int = 0
    unclaimed: int = 0
    refused: int = 0
    lost: int = 0
    failed: int = 0
    stale: int = 0

    async def ask(self, fn: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
        """Ask the store; whatever goes wrong with it is `ClaimsUnavailable`."""
        return await self.insist(partial(unprotected, fn, *args))

    async def insist(self, fn: Callable[[*Args], Awaitable[Result]], *args: *Args) -> Result:
        """Ask it, and have Ctrl-C wait for the answer where whoever asks does."""
        try:
            return await fn(*args)
        except (ClaimRefused, ClaimLapsed):
            raise
        except Exception as error:
            self.failed += 1
            raise ClaimsUnavailable(f"the claims' store does not answer: {error}") from error

    async def is_live(self, fn: Callable[[*Args], Awaitable[bool]], *args: *Args) -> bool:
        """Ask the store whether a lease is; one that says by an error that it is not, says so."""
        try:
            return await self.ask(fn, *args)
        except ClaimLapsed:
            return False

    async def check(self, token: int, scope: str) -> None:
        """Raise `ClaimLapsed` unless the token has the scope now."""
        if not await self.is_live(self.store.check, token, check_scope(scope)):
            raise self.stale_at(token, scope)

    async def write(self, token: int, scope: str, fn: Callable[[], Result]) -> Result:
        """Call it while nobody else can be granted the scope."""
        # Its own error is none of the store's, and no reason to call it once more.
        captured = partial(outcome.capture, fn)
        try:
            found = await self.ask(self.store.write, token, check_scope(scope), captured)
        except ClaimLapsed:
            raise self.stale_at(token, scope) from None
        return check_written(found.unwrap())

    def stale_at(self, token: int | None, scope: str) -> ClaimLapsed:
        """Count what is refused."""
        self.stale += 1
        logger.warning("refused to write at %r under claim %s: it does not hold that", scope, token)
        return ClaimLapsed(token, scope)
