"""Both feeds say the same, whatever they are asked, in whatever order."""

from __future__ import annotations

import inspect
import random
from pathlib import Path
from typing import Any

import pytest

from turnstop import Control, ControlKind
from turnstop.feeds import IdTaken, MemoryFeed
from turnstop.feeds.sqlite import open_sqlite_feed

# How often each is asked.
OTHERS = {"post": 4, "next": 2, "rooms": 1, "applied": 6, "control": 1}
MESSAGES = {"claim": 10, "release": 2, "acknowledge": 2, "fail": 3, "refuse": 2}
ROOMS, CONTENTS = "ab", ("one", "two")


async def ask(feed: Any, what: str, *given: Any, **more: Any) -> Any:
    try:
        found = getattr(feed, what)(*given, **more)
        return await found if inspect.isawaitable(found) else found
    except IdTaken as error:
        return (error.room, error.id)


def draw(
    source: random.Random, step: int, known: list[Any]
) -> tuple[str, tuple[Any, ...], dict[str, Any]]:
    """A call. Mostly of a message as it is now, now and then as it was."""
    room, kind = source.choice(ROOMS), source.choice([*ControlKind])
    (what,) = source.choices([*OTHERS, *MESSAGES], [*OTHERS.values(), *MESSAGES.values()])
    if what in MESSAGES and known:
        message = source.choice(known[-3:] if source.random() < 0.9 else known)
        return what, (message, "why") if what in ("fail", "refuse") else (message,), {}
    if what == "applied":
        return what, (Control(kind), source.sample(ROOMS, source.randint(0, 2))), {}
    if what == "control":
        return what, (Control(ControlKind.PLAY, source.choice([room, None])),), {}
    if what in ("next", "rooms"):
        return what, (room,) * (what == "next"), {}
    return "post", (room, source.choice(CONTENTS)), {"id": str(step // 5 + source.randrange(3))}


@pytest.mark.parametrize("seed", range(40))
async def test_both_say_the_same(seed: int, tmp_path: Path) -> None:
    source = random.Random(seed)
    memory = MemoryFeed(attempts=3)
    known: list[Any] = []
    async with open_sqlite_feed(tmp_path / "feed.db", attempts=3) as file:
        for step in range(60):
            what, given, more = draw(source, step, known)
            found = [await ask(feed, what, *given, **more) for feed in (memory, file)]
            assert found[0] == found[1], (what, given, more)
            if what in ("post", "next") and hasattr(found[0], "attempt"):
                known.append(found[0])
