"""What claims raise on their own account."""

from __future__ import annotations

__all__ = ["ClaimLapsed", "ClaimRefused", "ClaimsUnavailable", "MalformedScope"]


class MalformedScope(ValueError):
    """It names no scope: nothing was claimed."""


class ClaimRefused(Exception):
    """Somebody else holds it, or a part of it, or what it is a part of. Nothing was claimed.

    Attributes:
        scope: what was asked for.
        held: what the other one holds.
        holder: who that is, as it calls itself.
        lapses_in: seconds until it lapses, should it not be renewed: it is, while its work goes on.
    """

    def __init__(self, scope: str, held: str, holder: str, lapses_in: float) -> None:
        super().__init__(f"{scope!r}: {holder} holds {held!r}; wait for its end, or stop it")
        self.scope = scope
        self.held = held
        self.holder = holder
        self.lapses_in = lapses_in


class ClaimLapsed(Exception):
    """This claim does not hold this scope, or no more: nothing was written, and nothing may be.

    Attributes:
        token: the claim's; None where it has none.
        scope: what it was to hold.
    """

    def __init__(self, token: int | None, scope: str) -> None:
        what = "no claim holds" if token is None else f"claim {token} does not hold"
        super().__init__(f"{what} {scope!r}: write nothing more, and claim it anew")
        self.token = token
        self.scope = scope


class ClaimsUnavailable(Exception):
    """What keeps the claims did not answer; its own error is the cause.

    Nothing was claimed; `Claims.hold(..., or_unclaimed=True)` works without.
    """
