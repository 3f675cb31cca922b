"""What tests of feeds do again and again."""

from __future__ import annotations

import inspect
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import Any

from turnstop import Control, ControlKind

STOP, INTERRUPT, PLAY = ControlKind.STOP, ControlKind.INTERRUPT, ControlKind.PLAY


async def post(feed: Any, room: str, *ids: str) -> list[Any]:
    made = []
    for name in ids:
        message = feed.post(room, {"work": name}, id=name)
        made.append(await message if inspect.isawaitable(message) else message)
    return made


async def press(feed: Any, kind: ControlKind, room: str | None, **more: Any) -> Control:
    control = Control(kind, room, **more)
    done = feed.control(control)
    if inspect.isawaitable(done):
        await done
    return control


async def received(feed: Any, count: int) -> list[Any]:
    return [await feed.receive() for _ in range(count)]


@asynccontextmanager
async def opened(feed: Any) -> AsyncGenerator[Any, None]:
    yield feed
