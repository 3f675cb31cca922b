"""Calls of adapter code from kernel tasks: fenced, so that none of them is ever waited for."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, TypeVar

import attrs
import trio
from trio.lowlevel import disable_ki_protection

logger = logging.getLogger("turnstop")

Result = TypeVar("Result")


@disable_ki_protection
async def unprotected(fn: Callable[..., Awaitable[Result]], *args: Any) -> Result:
    """Run adapter code, which Ctrl-C may interrupt, from a kernel task, which it may not."""
    return await fn(*args)


def offers(remote: Any, name: str) -> bool:
    """Whether a remote turn has this optional method.

    An attribute that raises counts as one: so does the call, where its error is noted.
    """
    try:
        return hasattr(remote, name)
    except Exception:
        return True


@attrs.define(eq=False)
class Call:
    """One adapter call in one kernel task: whether it was made, and whether it has come back.

    Attributes:
        scope: ends the call, where it lets itself be ended.
        returned_at: when it came back without an error (Trio's clock).
    """

    name: str
    scope: trio.CancelScope = attrs.field(factory=lambda: trio.CancelScope(shield=True))
    called: bool = False
    over: bool = False
    returned_at: float | None = None
    _listed: dict[Call, str] | None = attrs.field(default=None, init=False)

    async def make(self, fn: Callable[..., Awaitable[Result]], *args: Any) -> Result | None:
        """Make the call; None where our own scope ended it."""
        self.called = True
        try:
            with self.scope:
                result = await unprotected(fn, *args)
                self.returned_at = trio.current_time()
                return result
        finally:
            self.over = True
            if self._listed is not None:
                del self._listed[self]
        return None

    def give_up(self) -> None:
        """Cancel the call. It may refuse to come back: nobody waits for it from here on."""
        self.scope.cancel()

    def outlive(self, stragglers: dict[Call, str], whose: str) -> None:
        """Name it among the stragglers until it is back, and cancel it."""
        self._listed = stragglers
        stragglers[self] = whose
        self.give_up()

    @property
    def given_up(self) -> bool:
        """It was told to come back."""
        return self.scope.cancel_called

    @property
    def ok(self) -> bool:
        """It came back without an error."""
        return self.returned_at is not None

    @property
    def alive(self) -> bool:
        """It was made and has not come back."""
        return self.called and not self.over


@attrs.define(eq=False)
class Reaping:
    """Lists what a turn left, and ends it.

    Attributes:
        survivors: the names of what is alive, as far as it is known yet.
        call: the adapter call that is under way.
    """

    remote: Any
    sweep: bool
    survivors: tuple[str, ...] = ("unknown: leftovers() has not told",)
    call: Call = attrs.field(factory=lambda: Call("leftovers"))

    async def run(self) -> None:
        """Call `leftovers`, then `sweep` where there are any; their errors are raised."""
        found = await self.call.make(self.remote.leftovers)
        if found is None:
            return
        self.survivors = tuple(map(str, found))
        if found and self.sweep and not self.call.given_up:
            self.call = Call("sweep")
            left = await self.call.make(self.remote.sweep, found)
            if left is not None:
                self.survivors = tuple(map(str, left))


@attrs.define(eq=False)
class Late:
    """A remote turn that was revealed after its settlement: told and killed, for decency's sake.

    Attributes:
        turn_id: whose it is.
        remote: the remote turn.
        within: the bound of each of the two calls, in seconds.
        stragglers: where a call is named that outlives its bound.
        spawn: starts a kernel task of this turn: a call that refuses to end holds up nothing.
        sent: called when the cancel request has left.
        following: its follow, where there is one: nothing is called once that has returned.
    """

    turn_id: str
    remote: Any
    within: float
    stragglers: dict[Call, str]
    spawn: Callable[[Callable[[], Awaitable[object]], str], None]
    sent: Callable[[], None]
    following: Call | None = None

    async def stop(self) -> None:
        """Cancel it, then kill it.

        **Cancellation:** does not reach it; it is bounded.
        """
        for call, args in ((Call("cancel"), (self.sent,)), (Call("kill"), ())):
            over = self.following is not None and self.following.over
            if not over and offers(self.remote, call.name):
                back = trio.Event()
                attempt = partial(self._attempt, call, args, back)
                self.spawn(attempt, f"turnstop late {call.name}")
                with trio.move_on_after(self.within, shield=True):
                    await back.wait()
                if not call.over:
                    call.outlive(self.stragglers, self.turn_id)

    async def _attempt(self, call: Call, args: tuple[Any, ...], back: trio.Event) -> None:
        try:
            await call.make(getattr(self.remote, call.name), *args)
        except Exception:
            logger.exception("late %s() of turn %s failed", call.name, self.turn_id)
        finally:
            back.set()
