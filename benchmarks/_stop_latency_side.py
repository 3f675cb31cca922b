"""The other processes of stop_latency.py: the two servers, and who listens to their rooms.

    turnstop ROOMS PERIOD        a server with that many rooms
    bare ROOMS PERIOD            Hypercorn alone: it streams as much, and answers as a stop is
    listen URL ROOMS             reads each room's events until its stdin ends

Each prints one line when it is there.
"""

from __future__ import annotations

import gc
import json
import random
import selectors
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

import hypercorn
import trio
from hypercorn.trio import serve

from turnstop.adapters.local import Work, open_local
from turnstop.events import Text
from turnstop.feeds import MemoryFeed
from turnstop.server import Settings, open_server

TOKEN = "of-a-benchmark"
DELTA = "a few words of it "
EVENT = {"room": "room-00", "turn_id": "room-00-0123456789abcdef", "delta": DELTA}
ANSWER = {"rooms": ["room-00"], "turn_ids": ["room-00-0123456789abcdef"], "repeated": False}


def told(**line: Any) -> None:
    gc.collect()
    gc.freeze()  # as `turnstop serve` does
    print(json.dumps(line), flush=True)


async def run_turnstop(rooms: int, period: float) -> None:
    async def talk(work: Work) -> None:
        await trio.sleep(random.uniform(0, period))
        while True:
            work.emit(Text(DELTA))
            await trio.sleep(period)

    feed = MemoryFeed()
    for number in range(rooms):
        feed.post(f"room-{number}", "talk")
    settings = Settings(token=TOKEN, rate=10_000, burst=10_000, at_once=rooms, streams=rooms)
    async with open_local(talk) as backend, open_server(backend, feed, settings) as server:
        while server.statistics().live < rooms:  # noqa: ASYNC110
            await trio.sleep(0.01)
        told(url=server.url)
        await trio.sleep_forever()


async def run_bare(rooms: int, period: float) -> None:
    config = hypercorn.Config()
    config.bind = ["127.0.0.1:0"]
    config.errorlog = None
    serving = partial(serve, partial(answer, period), config)
    async with trio.open_nursery() as nursery:
        (url,) = await nursery.start(serving)
        told(url=url)


async def answer(
    period: float, scope: Any, receive: Callable[[], Awaitable[Any]], send: Any
) -> None:
    if scope["type"] == "lifespan":
        for step in ("startup", "shutdown"):
            await receive()
            await send({"type": f"lifespan.{step}.complete"})
    elif scope["method"] == "POST":
        while (await receive()).get("more_body"):
            pass
        await send({"type": "http.response.start", "status": 202})
        await send({"type": "http.response.body", "body": json.dumps(ANSWER).encode()})
    else:
        await send({"type": "http.response.start", "status": 200})
        await trio.sleep(random.uniform(0, period))
        number = 0
        while True:
            number += 1
            line = f"id: 01234567-{number}\nevent: text\ndata: {json.dumps(EVENT)}\n\n"
            body = {"type": "http.response.body", "body": line.encode(), "more_body": True}
            await send(body)
            await trio.sleep(period)


def listen(url: str, rooms: int) -> None:
    host, port = url.removeprefix("http://").split(":")
    watch, silent, count = selectors.DefaultSelector(), rooms, 0
    for number in range(rooms):
        one = socket.create_connection((host, int(port)))
        head = f"GET /rooms/room-{number}/events HTTP/1.1\r\nHost: localhost\r\n"
        one.sendall(f"{head}Authorization: Bearer {TOKEN}\r\n\r\n".encode())
        watch.register(one, selectors.EVENT_READ, [True])
    watch.register(sys.stdin, selectors.EVENT_READ)
    while True:
        for key, _ in watch.select():
            if key.data is None:
                told(events=count)
                return
            found = key.fileobj.recv(65536)  # type: ignore[union-attr]
            if not found:
                raise SystemExit("a stream has ended")
            events = found.count(b"event: text")
            count += events
            if events and key.data[0]:
                key.data[0] = False
                silent -= 1
                if not silent:
                    count = 0
                    told(ready=rooms)


def main() -> None:
    what, *args = sys.argv[1:]
    if what == "listen":
        listen(args[0], int(args[1]))
    else:
        run = run_turnstop if what == "turnstop" else run_bare
        trio.run(run, int(args[0]), float(args[1]))


if __name__ == "__main__":
    main()
