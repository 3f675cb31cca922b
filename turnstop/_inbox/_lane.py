"""The lane of controls: what was applied here, and the feed does not know of yet."""

from __future__ import annotations

import logging
from collections import Counter, deque
from collections.abc import Callable, Sequence
from typing import final

import attrs
import trio

from ._feed import Control, ControlKind, Feed
from ._telling import Telling

__all__ = ["Lane"]

logger = logging.getLogger("turnstop.serve_rooms")

_MANY = 2000


@attrs.frozen
class _Owed:
    """A control that was applied to rooms.

    Attributes:
        theirs: it came from the feed, which is to be told so that it does not come again.
    """

    control: Control
    rooms: tuple[str, ...]
    theirs: bool

    @property
    def size(self) -> int:
        return 1 + len(self.rooms)

    @property
    def decides(self) -> bool:
        """Whether its rooms are paused, or not, because of it."""
        return self.control.kind is not ControlKind.INTERRUPT


@final
@attrs.define(eq=False)
class Lane:
    """Tells the feed of controls, one at a time, in the order in which they were applied.

    Of what was pressed here and piles up while the feed fails, only what decides is kept: whether
    each room is paused.

    Attributes:
        finish_within: seconds that the feed may take for all that is left, on the way out.
        note_told: called with each control that the feed was told of, and its rooms.
    """

    feed: Feed
    telling: Telling
    finish_within: float
    note_told: Callable[[Control, Sequence[str]], None]
    _owed: deque[_Owed] = attrs.field(factory=deque, init=False)
    _rooms: Counter[str] = attrs.field(factory=Counter, init=False)
    _size: int = attrs.field(default=0, init=False)
    _many: int = attrs.field(default=_MANY, init=False)
    _news: trio.Event = attrs.field(factory=trio.Event, init=False)
    _over: bool = attrs.field(default=False, init=False)
    _left: float = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._left = self.finish_within

    def __len__(self) -> int:
        return len(self._owed)

    def add(self, control: Control, rooms: tuple[str, ...], *, theirs: bool) -> None:
        """It was applied."""
        if self._over:
            return
        one = _Owed(control, rooms, theirs)
        self._owed.append(one)
        self._size += one.size
        self._rooms.update(rooms)
        self._news.set()
        if self._size > self._many:
            self._thin_out()

    def owes(self, room: str) -> bool:
        """Whether there is a control of this room that the feed does not know of."""
        return room in self._rooms

    def owes_play(self, room: str) -> bool:
        """Whether the feed takes the room for paused, or may, though it was resumed since."""
        return self.owes(room) and any(
            one.control.kind is ControlKind.PLAY and room in one.rooms for one in self._owed
        )

    def _thin_out(self) -> None:
        # The first may be on its way.
        first, *rest = self._owed
        kept: list[_Owed] = []
        decided: set[str] = set()
        for one in reversed(rest):
            rooms = tuple(room for room in one.rooms if one.decides and room not in decided)
            if one.decides:
                decided.update(rooms)
            if rooms or one.theirs:
                kept.append(attrs.evolve(one, rooms=rooms))
        self._owed = deque([first, *reversed(kept)])
        self._rooms = Counter(room for one in self._owed for room in one.rooms)
        self._size = sum(one.size for one in self._owed)
        self._many = max(_MANY, 2 * self._size)

    async def run(self) -> None:
        """Tell it of all that is added.

        **Cancellation:** it is told of the rest, once, within `finish_within`.
        """
        try:
            while True:
                await self._news.wait()
                while self._owed:
                    one = self._owed[0]
                    await self.telling.tell(self.feed.applied, one.control, one.rooms)
                    self._pop()
                self._news = trio.Event()
        finally:
            await self._tell_the_rest()

    async def close(self) -> None:
        """Tell it of what was added since; what comes later is told nobody.

        **Cancellation:** none: it is bounded by `finish_within`.
        """
        await self._tell_the_rest()
        self._over = True

    async def _tell_the_rest(self) -> None:
        began = trio.current_time()
        with trio.move_on_after(self._left, shield=True):
            while self._owed:
                one = self._owed[0]
                try:
                    await self.feed.applied(one.control, one.rooms)
                except Exception as error:
                    kind, name = one.control.kind.value, type(error).__name__
                    logger.warning("the feed was not told of a %s: %s", kind, name)
                self._pop()
        # It has so long in all, and not each time.
        self._left = max(0.0, self._left - (trio.current_time() - began))

    def _pop(self) -> None:
        one = self._owed.popleft()
        self._size -= one.size
        self._rooms.subtract(one.rooms)
        for room in one.rooms:
            if not self._rooms[room]:
                del self._rooms[room]
        self.note_told(one.control, one.rooms)
