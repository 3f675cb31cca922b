"""Which version of letta-client is there, and whether that will do. Imports nothing of it."""

from __future__ import annotations

from ...transports.distribution import check_distribution


def check_sdk() -> None:
    """See that letta-client is there and new enough.

    Conversations came with 1.6.5, and can be cancelled since 1.7.1.

    Raises:
        ImportError: it is not; the text names what was found, and the floor.
    """
    check_distribution(
        "letta-client",
        "1.7.1",
        below="2",
        extra="letta",
        needed_by="turnstop.adapters.letta",
    )
