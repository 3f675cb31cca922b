"""What keeps claims, as a contract: a file does, and a server could."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

import attrs

__all__ = ["ClaimStore", "ClaimsStatistics", "Wanted"]

Result = TypeVar("Result")


@attrs.frozen
class Wanted:
    """What somebody asks for.

    Attributes:
        lease: a name that nobody else uses; it is known before the store has answered.
        scopes: well-formed; none is a part of another.
        holder: who it is, for whoever is refused.
        ttl: seconds from the granting after which it lapses.
        within: tokens of the claims around it, whose scopes do not refuse it.
    """

    lease: str
    scopes: tuple[str, ...]
    holder: str
    ttl: float
    within: Sequence[int] = ()


class ClaimStore(Protocol):
    """Keeps leases. Each has a token, greater than all that were given before it.

    A lease is live until it is released, or its time is over by the store's own clock. One that has
    lapsed never lives again. Any error but `ClaimRefused` and `ClaimLapsed` says that the store
    cannot be asked. None of it may block Trio's thread: a Ctrl-C that comes into `release` waits.
    """

    async def acquire(self, wanted: Wanted) -> int:
        """Grant all of its scopes, or none; return the token.

        Raises:
            ClaimRefused: a live lease overlaps with one of them.

        **Cancellation:** it is granted, or not: who asked releases it.
        """
        ...

    async def renew(self, lease: str, ttl: float) -> bool:
        """Have it lapse so many seconds from now. False: it is not live, and stays so.

        **Cancellation:** it is renewed, or not.
        """
        ...

    async def release(self, lease: str) -> None:
        """Free its scopes. Does nothing where there is no such lease.

        **Cancellation:** it is released, or not.
        """
        ...

    async def check(self, token: int, scope: str) -> bool:
        """Whether it is of a live lease which has the scope, or what that is a part of.

        **Cancellation:** changes nothing.
        """
        ...

    async def write(self, token: int, scope: str, fn: Callable[[], Result]) -> Result:
        """Call it once, and grant nobody else the scope until it has returned.

        Args:
            fn: short, and raises nothing.

        Raises:
            ClaimLapsed: the token's lease is not live, or has not the scope: nothing was called.

        **Cancellation:** it is called to its end, or not at all.
        """
        ...


@attrs.frozen
class ClaimsStatistics:
    """How claims were used, since they were opened.

    Attributes:
        held: claims of now.
        unclaimed: blocks of now that work without, since the store did not answer.
        refused: blocks that were not entered.
        lost: claims that lapsed while their block was not left.
        failed: questions to the store that it did not answer.
        stale: writes and checks that were refused.
    """

    held: int
    unclaimed: int
    refused: int
    lost: int
    failed: int
    stale: int
