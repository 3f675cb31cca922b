"""What a server allows."""

from __future__ import annotations

import re
from typing import Final

import attrs

__all__ = ["Settings"]

_TOKEN: Final = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
"""What can stand behind "Bearer": b64token of RFC 6750, section 2.1."""


def _check_token(settings: Settings, attribute: attrs.Attribute[str], token: str) -> None:
    if not isinstance(token, str) or not _TOKEN.fullmatch(token):
        raise ValueError(
            "a token is one or more of A-Z a-z 0-9 - . _ ~ + /, and perhaps = at its end:"
            " no request can bear another"
        )


@attrs.frozen(kw_only=True)
class Settings:
    """How a server is opened, and its limits.

    Attributes:
        token: what a request has to bear; letters, digits and -._~+/ (`=` at the end).
        host: the address to listen on.
        port: 0: any that is free.
        hosts: more names that the server may be asked by. On a loopback address it is asked by the
            names of this machine alone, so that no page from elsewhere, whose name was pointed
            here, reads anything; elsewhere by any name, where none is given.
        agent: what the agent is called in the page and in `/health`.
        body: bytes that a request's body may have.
        rooms: rooms that messages may make. One that has nothing to do is forgotten for another.
        connections: connections that are open at the same time. Whoever comes then takes the place
            of one that has not borne the token, or waits to be let in.
        streams: streams of events that are read at the same time.
        rate: requests a second, over all who bear the token; controls are counted by themselves,
            so that no flood of messages keeps a stop out, and so is whoever bears no token.
        burst: requests that may come at once.
        room_events: events that are kept for each room, and `room_bytes` of them.
        all_events: events that are kept for the stream of all rooms, and `all_bytes` of them.
        settlements: settlements that are kept for each room.
        heartbeat: seconds without an event, after which a stream says that it is there.
        silence: seconds that a client may take nothing of what it is sent, or send nothing of a
            body that it has begun; then it is dropped.
        at_once: messages that are handled at the same time.
        retire_after: seconds without work until a room's session is retired; None: never.
        close_within: seconds that connections have at the end, when all turns are settled.
    """

    token: str = attrs.field(repr=False, validator=_check_token)
    host: str = "127.0.0.1"
    port: int = 0
    hosts: tuple[str, ...] = ()
    agent: str = "agent"
    body: int = 256 * 1024
    rooms: int = 1000
    connections: int = 512
    streams: int = 256
    rate: float = 200.0
    burst: int = 400
    room_events: int = 1000
    room_bytes: int = 256 * 1024
    all_events: int = 10_000
    all_bytes: int = 4 * 1024 * 1024
    settlements: int = 50
    heartbeat: float = 15.0
    silence: float = 30.0
    at_once: int = 128
    retire_after: float | None = 3600.0
    close_within: float = 1.0
