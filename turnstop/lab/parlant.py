"""A model for the Parlant engine that waits where it is told to, and what was seen of each turn.

The engine asks for its models in this process, by an object that it is given: there is no wire that
`turnstop.lab.open_lab` could answer. So this is to Parlant what the endpoint is to the others.

    model = ParkedModel()
    async with open_parlant(model.prepare, **model.options()) as parlant:
        token, prompt = model.write("park generation")
        ...                                     # send `prompt`
        await model.parked(token)
        ...                                     # stop the turn
        assert model.alive(token) == []

| message                       | what the engine's turn does                                    |
|-------------------------------|----------------------------------------------------------------|
| `[turn:a1] answer`            | answers                                                        |
| `[turn:a1] greet`             | the same, after a preamble                                     |
| `[turn:a1] mute`              | ends without a message                                         |
| `[turn:a1] fail`              | reports an error                                               |
| `[turn:a1] park hook`         | waits in a hook of the agent's, until released; answers        |
| `[turn:a1] park matching`     | the same, while guidelines are matched                         |
| `[turn:a1] park preamble`     | the same, while the preamble is generated beside the rest      |
| `[turn:a1] park generation`   | the same, while the message is generated                       |
| `[turn:a1] park emission`     | the same, with the message generated and not emitted yet       |
| `[turn:a1] park tool`         | the same, in a tool                                            |

Needs the extra `parlant`.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Sequence
from typing import Any, final

from ._parlant_ledger import Ledger, Order, Piece

__all__ = ["PARLANT_INSTALL", "Order", "ParkedModel", "Piece"]

PARLANT_INSTALL = "python -m pip install 'turnstop[parlant]'"


@final
class ParkedModel:
    """What answers the engine for its models. Make it in a Trio task."""

    def __init__(self) -> None:
        self._ledger = Ledger()

    @property
    def pieces(self) -> Sequence[Piece]:
        """All work that was ever seen, oldest first."""
        return self._ledger.pieces

    def linger(self, seconds: float | None) -> None:
        """From now on, what waits goes on when it is cancelled.

        Args:
            seconds: for so long; None: until it is ordered to end.
        """
        self._ledger.late = seconds

    def shield(self) -> None:
        """From now on, what waits ends when it is cancelled; its work goes on until ordered."""
        self._ledger.shields = True

    def options(self) -> dict[str, Any]:
        """What a `parlant.sdk.Server` is made with: this model, on free ports of loopback.

        Parlant keeps its files in a folder that it asks the environment for when it is imported:
        unless it is told otherwise there, that is a temporary one from here on.

        Raises:
            ImportError: Parlant is not installed.
        """
        from ._parlant_engine import options

        return options(self._ledger)

    async def prepare(self, server: Any) -> str:
        """Give the server an agent, and return its id. **Asyncio-flavoured.**

        **Cancellation:** the agent may be there, and is of no use.
        """
        from ._parlant_engine import prepare

        return await prepare(self._ledger, server)

    def write(self, words: str, token: str | None = None) -> tuple[str, str]:
        """A token, a new one unless given, and the message that carries it."""
        token = token or uuid.uuid4().hex[:12]
        return token, f"[turn:{token}] {words}"

    def work(self, token: str) -> Sequence[Piece]:
        """What was seen of this turn's work, oldest first."""
        return [one for one in self.pieces if one.token == token]

    def alive(self, token: str) -> list[str]:
        """The tasks on the loop that work for this turn and have not ended, by name."""
        return [name for turn in self._ledger.turns.get(token, ()) for name in turn.alive()]

    def session(self, token: str) -> str | None:
        """The session that it belongs to, once the engine has begun."""
        turns = self._ledger.turns.get(token)
        return turns[0].session if turns else None

    def told(self, token: str) -> list[float]:
        """When the engine's turn was cancelled, as far as that shows."""
        turns = self._ledger.turns.get(token, ())
        return [turn.told_at for turn in turns if turn.told_at is not None]

    def order(self, token: str, order: Order, text: str = "") -> None:
        """Have what waits do something.

        Args:
            token: the turn's.
            order: `say` a message; `end` the waiting and answer, `mute`: without a message, or
                `fail`; or `leave` a task behind.
            text: the message.
        """
        for turn in self._ledger.turns.get(token, ()):
            turn.order(order, text)

    def release(self, token: str) -> None:
        """Let what waits go on, and end what was left."""
        self.order(token, "end")
        for turn in self._ledger.turns.get(token, ()):
            turn.end_left()

    async def until(self, condition: Callable[[], object]) -> None:
        """Return when the condition holds, looking whenever something was seen.

        **Cancellation:** leaves nothing.
        """
        await self._ledger.until(condition)

    async def parked(self, token: str) -> Piece:
        """Wait until a piece of this turn's work waits to be released.

        **Cancellation:** leaves nothing.
        """

        def found() -> list[Piece]:
            work = self.work(token)
            return [one for one in work if one.what != "process" and one.ended_at is None]

        await self.until(found)
        return found()[0]

    async def gone(self, token: str) -> None:
        """Wait until nothing works for this turn any more.

        **Cancellation:** leaves nothing.
        """

        def over() -> bool:
            ended = [one.ended_at is not None for one in self.work(token)]
            return bool(ended) and all(ended) and not self.alive(token)

        await self.until(over)
