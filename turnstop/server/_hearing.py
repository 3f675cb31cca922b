"""A feed that the desk overhears: what becomes of each message, as the feed is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, final

import attrs

from .._inbox import Claim, Control, Feed, Message, Standing
from ._desk import Desk

__all__ = ["Overheard"]


@final
@attrs.define(eq=False)
class Overheard:
    """A `turnstop.Feed` that passes on everything, and tells the desk."""

    feed: Feed
    desk: Desk

    async def receive(self) -> Message | Control:
        """See `turnstop.Feed`.

        **Cancellation:** loses nothing.
        """
        item = await self.feed.receive()
        if isinstance(item, Message):
            self.desk.note_message(item)
        return item

    async def rooms(self) -> Mapping[str, Standing]:
        """See `turnstop.Feed`.

        **Cancellation:** changes nothing.
        """
        rooms = await self.feed.rooms()
        self.desk.note_rooms(rooms)
        return rooms

    async def next(self, room: str) -> Message | Literal[Claim.PAUSED] | None:
        """See `turnstop.Feed`.

        **Cancellation:** changes nothing.
        """
        waiting = self.desk.waiting_in(room)
        found = await self.feed.next(room)
        if found is None:
            self.desk.note_none(room, waiting)
        else:
            self.desk.look_again(room)
        return found

    async def claim(self, message: Message) -> Claim:
        """See `turnstop.Feed`.

        **Cancellation:** as the feed's.
        """
        claim = await self.feed.claim(message)
        if claim is Claim.PAUSED:
            self.desk.look_again(message.room)
        return claim

    async def release(self, message: Message) -> None:
        """See `turnstop.Feed`.

        **Cancellation:** as the feed's.
        """
        await self.feed.release(message)
        self.desk.note_fate(message, "waiting")

    async def acknowledge(self, message: Message) -> None:
        """See `turnstop.Feed`.

        **Cancellation:** as the feed's.
        """
        await self.feed.acknowledge(message)
        self.desk.note_fate(message, "handled")

    async def fail(self, message: Message, reason: str) -> bool:
        """See `turnstop.Feed`.

        **Cancellation:** as the feed's.
        """
        again = await self.feed.fail(message, reason)
        if again:
            message = attrs.evolve(message, attempt=message.attempt + 1)
        self.desk.note_fate(message, "waiting" if again else "failed", reason)
        return again

    async def refuse(self, message: Message, reason: str) -> None:
        """See `turnstop.Feed`.

        **Cancellation:** as the feed's.
        """
        await self.feed.refuse(message, reason)
        self.desk.note_fate(message, "failed", reason)

    async def applied(self, control: Control, rooms: Sequence[str]) -> None:
        """See `turnstop.Feed`.

        **Cancellation:** as the feed's.
        """
        await self.feed.applied(control, rooms)
