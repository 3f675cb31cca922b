"""Messages in memory: what an application posts in the same process, and what tests post."""

from __future__ import annotations

import itertools
import math
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any, Literal, final

import attrs
import trio

from .._inbox import Claim, Control, ControlKind, Message, Standing
from ._keeping import REMEMBERED, IdTaken, foresee, to_plain

__all__ = ["MemoryFeed"]


@attrs.define(eq=False)
class _Kept:
    message: Message
    claimed: bool = False


@final
class MemoryFeed:
    """A `turnstop.feeds.Feed` that is lost with the program.

    It knows the ids of the 10,000 messages that have finished last, over all rooms.

    Args:
        attempts: how often a message is handled before its failing is final.
    """

    def __init__(self, *, attempts: int = 1) -> None:
        self._attempts = attempts
        self._send, self._receive = trio.open_memory_channel[Message | Control](math.inf)
        self._rooms: dict[str, dict[str, _Kept]] = {}
        self._finished: dict[tuple[str, str], None] = {}
        self._paused: set[str] = set()
        self._unheard: deque[Control] = deque()
        self._numbers = itertools.count(1)
        self.failed: dict[tuple[str, str], str] = {}
        """Why messages have failed for good, by room and id: the newest 10,000."""

    def post(self, room: str, content: Any, *, id: str | None = None) -> Message | None:
        """Post a message.

        Args:
            id: of two with one id in one room, the second is not posted. None: a new one.

        Returns:
            The message, which may have been there before; None where it has finished already.

        Raises:
            IdTaken: one with this id is there, and has another content.
        """
        name = self._new_id(room) if id is None else id
        if (room, name) in self._finished:
            return None
        kept = self._find(room, name)
        if kept is None:
            kept = self._rooms.setdefault(room, {})[name] = _Kept(Message(room, name, content))
            self._send.send_nowait(kept.message)
        elif kept.message.content != content:
            raise IdTaken(room, name)
        return kept.message

    def control(self, control: Control) -> None:
        """Post a control. A PLAY resumes its rooms at once, should nobody receive it."""
        if control.kind is ControlKind.PLAY:
            self._paused -= {*self._paused} if control.room is None else {control.room}
        self._unheard.append(control)
        self._send.send_nowait(control)

    def unfinished(self, room: str) -> tuple[Message, ...]:
        """The room's messages that are not finished, the oldest first."""
        return tuple(kept.message for kept in self._rooms.get(room, {}).values())

    async def receive(self) -> Message | Control:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** loses nothing.
        """
        item = await self._receive.receive()
        if self._unheard and self._unheard[0] is item:
            self._unheard.popleft()
        return item

    async def rooms(self) -> Mapping[str, Standing]:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** changes nothing.
        """
        await trio.lowlevel.checkpoint()
        for kept in self._kept():
            # Whoever served them before has ended.
            kept.claimed = False
        found = {
            room: Standing(paused=room in self._paused, waiting=room in self._rooms)
            for room in (*self._rooms, *self._paused)
        }
        return foresee(found, self._unheard)

    def _new_id(self, room: str) -> str:
        names = (f"m{number}" for number in self._numbers)
        return next(
            name
            for name in names
            if self._find(room, name) is None and (room, name) not in self._finished
        )

    def _find(self, room: str, id: str) -> _Kept | None:
        return self._rooms.get(room, {}).get(id)

    def _kept(self) -> list[_Kept]:
        return [kept for room in self._rooms.values() for kept in room.values()]

    async def next(self, room: str) -> Message | Literal[Claim.PAUSED] | None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** changes nothing.
        """
        await trio.lowlevel.checkpoint()
        found = next(iter(self._rooms.get(room, {}).values()), None)
        if found is None:
            return None
        return Claim.PAUSED if room in self._paused else found.message

    async def claim(self, message: Message) -> Claim:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** nothing is claimed.
        """
        await trio.lowlevel.checkpoint()
        kept = self._find(message.room, message.id)
        if kept is None:
            return Claim.FINISHED
        if message.room in self._paused:
            return Claim.PAUSED
        if kept.claimed:
            return Claim.BUSY
        kept.claimed = True
        return Claim.MINE

    async def release(self, message: Message) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it stays claimed.
        """
        await trio.lowlevel.checkpoint()
        kept = self._find(message.room, message.id)
        if kept is not None:
            kept.claimed = False

    async def acknowledge(self, message: Message) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** nothing is acknowledged.
        """
        await trio.lowlevel.checkpoint()
        self._finish(message)

    async def applied(self, control: Control, rooms: Sequence[str]) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** the rooms stay as they were.
        """
        await trio.lowlevel.checkpoint()
        if control.kind is ControlKind.STOP:
            self._paused.update(rooms)
        elif control.kind is ControlKind.PLAY:
            self._paused.difference_update(rooms)

    async def fail(self, message: Message, reason: str) -> bool:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it has not failed.
        """
        await trio.lowlevel.checkpoint()
        kept = self._find(message.room, message.id)
        if kept is None:
            return False
        # Of a message that it was told of twice, the second is the same attempt.
        if message.attempt + 1 >= self._attempts:
            self._give_up(message, reason)
            return False
        again = attrs.evolve(kept.message, attempt=message.attempt + 1)
        self._rooms[message.room][message.id] = _Kept(again)
        return True

    async def refuse(self, message: Message, reason: str) -> None:
        """See `turnstop.feeds.Feed`.

        **Cancellation:** it is not refused.
        """
        await trio.lowlevel.checkpoint()
        kept = self._find(message.room, message.id)
        if kept is not None and not kept.claimed:
            self._give_up(message, reason)

    def _give_up(self, message: Message, reason: str) -> None:
        self.failed[message.room, message.id] = to_plain(reason)
        _keep_newest(self.failed)
        self._finish(message)

    def _finish(self, message: Message) -> None:
        self._finished[message.room, message.id] = None
        _keep_newest(self._finished)
        kept = self._rooms.get(message.room, {})
        kept.pop(message.id, None)
        if not kept:
            self._rooms.pop(message.room, None)


def _keep_newest(found: dict[Any, Any]) -> None:
    while len(found) > REMEMBERED:
        del found[next(iter(found))]
