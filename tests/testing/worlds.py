"""The world of a scene of golden wire, as the doubles play it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import ClassVar

import attrs
import trio

from turnstop.testing import Work

__all__ = ["MessagedWorld", "RecordedWorld"]


@attrs.define
class RecordedWorld:
    """Does what the prompts say, as the lab's model does for the real program.

    A double's own `play` looks for the work whose text carries the name, sets `silent` once what
    it was asked to say is said, and waits for `released` where it is to be silent.
    """

    nursery: trio.Nursery
    silent: dict[str, trio.Event] = attrs.field(factory=dict, init=False)
    released: dict[str, trio.Event] = attrs.field(factory=dict, init=False)

    def prompt(self, words: str) -> tuple[str, str]:
        name = f"prompt-{len(self.silent) + 1}"
        self.silent[name], self.released[name] = trio.Event(), trio.Event()
        self.nursery.start_soon(self.play, name, words)
        return name, f"{name} {words}"

    async def reached(self, name: str) -> None:
        await self.silent[name].wait()

    def release(self, name: str) -> None:
        self.released[name].set()

    async def play(self, name: str, words: str) -> None:
        raise NotImplementedError


@attrs.define
class MessagedWorld:
    """Does what the messages say, as the lab's model does for the real server.

    Attributes:
        prompts: how the lab is told what a scene says.
    """

    nursery: trio.Nursery
    count: int = attrs.field(default=0, init=False)
    prompts: ClassVar[Mapping[str, str]]

    def message(self, word: str) -> str:
        self.count += 1
        name = f"message-{self.count}"
        self.nursery.start_soon(self.begin, name, word)
        return f"[turn:{name}] {self.prompts[word]}"

    async def begin(self, name: str, word: str) -> None:
        while not (found := [one for one in self.works if name in one.text]):  # noqa: ASYNC110
            await trio.sleep(0.001)
        await trio.sleep(0.001)
        await self.play(found[0], name, word)

    @property
    def works(self) -> Sequence[Work]:
        raise NotImplementedError

    async def play(self, work: Work, name: str, word: str) -> None:
        raise NotImplementedError
