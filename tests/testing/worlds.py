"""The world of a scene of golden wire, as the doubles play it."""

from __future__ import annotations

import attrs
import trio

__all__ = ["RecordedWorld"]


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
