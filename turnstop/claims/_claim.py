"""A claim as its block sees it: what it holds, and what may be written under it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TypeVar, TypeVarTuple, final

import trio

from ._lease import Lease
from ._register import check_writes, check_written
from ._scopes import check_scope, covers

__all__ = ["Claim"]

Result = TypeVar("Result")
Args = TypeVarTuple("Args")


@final
class Claim:
    """What a block holds. Given by `Claims.hold`.

    Attributes:
        scopes: sorted; none is a part of another.
        holder: as it was given.
        token: greater than that of every claim before it; None where nothing is claimed.
        lost: set when it has lapsed, and when its block has left. The block goes on: what it writes
            under the claim is refused from here on.
    """

    def __init__(self, lease: Lease, *, is_inside: bool = False) -> None:
        self._lease = lease
        self._is_inside = is_inside
        self.scopes = lease.wanted.scopes
        self.holder = lease.wanted.holder
        self.token = lease.token
        self.lost = lease.lost

    @property
    def why_lost(self) -> str:
        """Empty while it is held."""
        return self._lease.why_lost

    def __repr__(self) -> str:
        state = self._state()
        return f"<Claim {self.token} of {self.holder!r} on {', '.join(self.scopes)}: {state}>"

    def _state(self) -> str:
        if self.lost.is_set():
            return f"lost, {self.why_lost}"
        return "held" if self.token is not None else "nothing is claimed"

    def note_progress(self) -> None:
        """Say that the work goes on, which is what `progress_within` waits for.

        May be called from any thread, as may `let_lapse`.
        """
        self._lease.progressed = self._lease.clock.current_time()

    def let_lapse(self) -> None:
        """Renew it no more: its work counts as over, whatever its block still does.

        What never comes to its end thereby frees its scopes, a ttl after the last renewal. Of a
        `hold` inside another one it does nothing: others may work under what that holds.
        """
        if not self._is_inside:
            self._lease.is_over = True

    def leave_held(self) -> None:
        """Do not release it when its block is left: something of its work goes on, a thread say.

        It lapses then, a ttl after the last renewal.
        """
        self._lease.is_left_held = True

    async def check(self, scope: str) -> None:
        """See that the scope is held now.

        Whoever writes afterwards may have lapsed in between; `write` may not.

        Raises:
            ClaimLapsed: it is not.
            ClaimsUnavailable: the store does not answer.

        **Cancellation:** changes nothing.
        """
        self._see_that_it_covers(scope)
        if self.token is None:
            await trio.lowlevel.checkpoint()
        else:
            await self._lease.register.check(self.token, scope)

    async def write(self, scope: str, fn: Callable[[*Args], Result], *args: *Args) -> Result:
        """Call a function that writes at this scope, while nobody else can be granted it.

        Args:
            scope: one of `scopes`, or a part of one.
            fn: short: others' claims wait until it has returned. Called in a thread.
            args: its arguments.

        Raises:
            ClaimLapsed: it is not held: nothing was called.
            ClaimsUnavailable: the store does not answer: nothing was called.
            TypeError: `fn` is async, or has only made something that would write later, when
                nobody guards it any more.

        **Cancellation:** it is called to its end, or not at all.
        """
        check_writes(fn)
        self._see_that_it_covers(scope)
        if self.token is None:
            # By choice: it has scopes, and nobody was there to grant them.
            return check_written(await trio.to_thread.run_sync(fn, *args))
        return await self._lease.register.write(self.token, scope, partial(fn, *args))

    def _see_that_it_covers(self, scope: str) -> None:
        if self.lost.is_set() or not covers(self.scopes, check_scope(scope)):
            raise self._lease.register.stale_at(self.token, scope)
