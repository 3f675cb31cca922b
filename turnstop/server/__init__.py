"""Rooms over HTTP, with a page where a person presses stop.

    settings = Settings(token=token, port=8000)
    async with open_codex() as codex, open_server(codex, MemoryFeed(), settings) as server:
        print(server.url)
        await trio.sleep_forever()

Starlette and msgspec take requests apart, Hypercorn speaks HTTP, on Trio. What is said of a turn
goes into rings of a fixed size that whoever listens reads from, so that nobody who listens slows a
turn, or its stop.

    _settings   what is allowed
    _ring       what has happened lately
    _wire       bodies and events
    _log        what of it is logged
    _seat       one room, as it is known here
    _desk       what is known of the rooms; messages, turns and controls pass by it
    _hearing    the feed, overheard
    _guard      name, token, rate and size
    _stream     events for a listener
    _routes     what is answered where
    _openapi    the same, as a document
    _app        all that, as one application
    _address    where it listens
    _connections  who is let in, and for how long
    _serving    what nests in what
    page        the page
"""

from ._serving import Server, open_server
from ._settings import Settings

__all__ = ["Server", "Settings", "open_server"]
