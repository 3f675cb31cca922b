"""Where a turn of opencode is, for a process that has not begun it.

On a server that somebody else runs, it is a message in a session. A server that was run here is the
turn's own end: it listens for nobody but the process that is gone, and what it and its tools do is
over when they are.
"""

from __future__ import annotations

import json

import attrs

from ..._errors import BackendLost
from ._server import Server

__all__ = ["parse", "to_address"]


def to_address(server: Server, session: str, message: str) -> str:
    """The address of a message in a session."""
    if server.program is not None:
        # As it was begun: its pid may be another's by now.
        return str(attrs.evolve(server.program.process.address, session=str(session)))
    return json.dumps([str(session), message])


def parse(address: str) -> tuple[str, str]:
    """The session and the message of an address.

    Raises:
        BackendLost: it is another's.
    """
    try:
        session, message = json.loads(address)
    except (TypeError, ValueError):
        raise BackendLost(f"this is no address of a turn of opencode: {address}") from None
    return str(session), str(message)
