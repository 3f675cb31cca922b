"""What the adapter takes of Parlant, and whether it is the version that it knows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import attrs

from ...transports.distribution import check_distribution

__all__ = ["VERSION", "Library", "check_version", "import_library"]

VERSION: Final = "3.3.2"
_NEXT: Final = "3.3.3"


@attrs.frozen
class Library:
    """Parlant's own names. A far end in memory brings others.

    Attributes:
        server: `parlant.sdk.Server`.
        application: the key of a server's container for what its API calls.
        tasks: the key for what runs the engine's tasks.
        tracer: the key for what gives each request a name.
        moderation: makes a setting of moderation from its name.
        customer: the source of an event that a customer has sent.
        guest: the customer who is nobody in particular.
    """

    server: Callable[..., Any]
    application: Any
    tasks: Any
    tracer: Any
    moderation: Callable[[str], Any]
    customer: Any
    guest: str


def check_version() -> None:
    """See that Parlant is here, in the one version that is known; imports nothing.

    Raises:
        ImportError: it is not.
    """
    check_distribution(
        "parlant", VERSION, below=_NEXT, extra="parlant", needed_by="turnstop.adapters.parlant"
    )


def import_library() -> Library:
    """Take from Parlant what is needed. Where it is not imported yet, that takes some seconds."""
    from parlant.core.app_modules.sessions import Moderation
    from parlant.core.application import Application
    from parlant.core.background_tasks import BackgroundTaskService
    from parlant.core.customers import CustomerStore
    from parlant.core.sessions import EventSource
    from parlant.core.tracer import Tracer
    from parlant.sdk import Server

    return Library(
        server=Server,
        application=Application,
        tasks=BackgroundTaskService,
        tracer=Tracer,
        moderation=Moderation,
        customer=EventSource.CUSTOMER,
        guest=CustomerStore.GUEST_ID,
    )
