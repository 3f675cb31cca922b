"""What a server allows."""

from __future__ import annotations

import attrs

__all__ = ["Settings"]


@attrs.frozen(kw_only=True)
class Settings:
    """How a server is opened, and its limits.

    Attributes:
        token: what a request has to bear.
        host: the address to listen on.
        port: 0: any that is free.
        agent: what the agent is called in the page and in `/health`.
        body: bytes that a request's body may have.
        rooms: rooms that messages may make. One that has nothing to do is forgotten for another.
        streams: streams of events that are read at the same time.
        rate: requests a second, over all who bear the token; controls are counted by themselves,
            so that no flood of messages keeps a stop out.
        burst: requests that may come at once.
        room_events: events that are kept for each room, and `room_bytes` of them.
        all_events: events that are kept for the stream of all rooms, and `all_bytes` of them.
        settlements: settlements that are kept for each room.
        heartbeat: seconds without an event, after which a stream says that it is there.
        at_once: messages that are handled at the same time.
        retire_after: seconds without work until a room's session is retired; None: never.
        close_within: seconds that connections have at the end, when all turns are settled.
    """

    token: str = attrs.field(repr=False)
    host: str = "127.0.0.1"
    port: int = 0
    agent: str = "agent"
    body: int = 256 * 1024
    rooms: int = 1000
    streams: int = 256
    rate: float = 200.0
    burst: int = 400
    room_events: int = 1000
    room_bytes: int = 256 * 1024
    all_events: int = 10_000
    all_bytes: int = 4 * 1024 * 1024
    settlements: int = 50
    heartbeat: float = 15.0
    at_once: int = 128
    retire_after: float | None = None
    close_within: float = 1.0
