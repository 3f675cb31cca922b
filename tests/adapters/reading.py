"""A turn followed without a kernel: what it says, and what a person answers."""

from __future__ import annotations

from typing import Any

import trio

from turnstop.abc import End, Request
from turnstop.events import Ask, Event

__all__ = ["Reader", "follow", "request"]


class Reader:
    """Collects what a turn says, and answers its asks."""

    def __init__(self, reply: object = None) -> None:
        self.events: list[Event] = []
        self.reply = reply
        self.asked = trio.Event()

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    async def ask(self, ask: Ask) -> object:
        self.events.append(ask)
        self.asked.set()
        if self.reply is None:
            await trio.sleep_forever()
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply

    def of(self, *kinds: type) -> list[Event]:
        return [event for event in self.events if isinstance(event, kinds)]


def request(session: object = None, previous: Any = None, content: Any = "hi") -> Request[Any]:
    return Request("room", "turn", content, session, previous)


async def follow(turn: Any, reader: Reader | None = None) -> End:
    end = await turn.follow(reader or Reader())
    assert isinstance(end, End)
    return end
