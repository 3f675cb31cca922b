"""An agent that answers as a test has written down."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TypeAlias

import httpx
import trio

from ._frames import Answer
from ._transport import AgentTransport, Stream

Handler: TypeAlias = Callable[[Answer], Awaitable[Answer]]

_STREAMED = ("SendStreamingMessage", "SubscribeToTask")


class ScriptedAgent(AgentTransport):
    """Answers each method by a handler, and opens a stream where there is none.

    Attributes:
        on: what answers a method: given the params. A stream is opened for `{}`.
        instead: what is answered to everything, or raised, where it is set.
        streams: those that were opened.
    """

    def __init__(self, *, streaming: bool = True) -> None:
        super().__init__(streaming=streaming)
        self.on: dict[str, Handler] = {}
        self.instead: httpx.Response | Exception | None = None
        self.streams: list[Stream] = []
        self._changed = trio.lowlevel.ParkingLot()

    def made(self, method: str) -> list[Answer]:
        """The params of each call of this method."""
        return [params for called, params in self.calls if called == method]

    async def called(self, method: str, times: int = 1) -> Answer:
        """Wait until a method was called so often; return what it was called with then.

        **Cancellation:** changes nothing.
        """
        while len(self.made(method)) < times:
            await self._changed.park()
        return self.made(method)[times - 1]

    async def stream(self, number: int = 0) -> Stream:
        """Wait until so many streams were opened before this one; return it.

        **Cancellation:** changes nothing.
        """
        while len(self.streams) <= number:
            await self._changed.park()
        return self.streams[number]

    async def answer(
        self, method: str, params: Answer, request_id: object
    ) -> Answer | Stream | httpx.Response:
        """Answer by the script.

        **Cancellation:** as the handler.
        """
        self._changed.unpark_all()
        if isinstance(self.instead, Exception):
            raise self.instead
        if self.instead is not None:
            return self.instead
        answer = (
            {} if method in _STREAMED and method not in self.on else await self.on[method](params)
        )
        if method not in _STREAMED or answer:
            return answer
        stream = Stream(request_id)
        self.streams.append(stream)
        self._changed.unpark_all()
        return stream


def always(answer: Answer) -> Handler:
    """A handler that gives one answer."""
    return in_turn(answer)


def in_turn(*answers: Answer) -> Handler:
    """A handler that gives one answer after another; the last one again and again."""
    left = list(answers)

    async def handle(params: Answer) -> Answer:
        return left.pop(0) if len(left) > 1 else left[0]

    return handle


async def never(params: Answer) -> Answer:
    """A handler that never answers.

    **Cancellation:** is the only way out.
    """
    await trio.sleep_forever()
    raise AssertionError("unreachable")
