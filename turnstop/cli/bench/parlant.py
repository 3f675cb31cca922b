"""The Parlant engine as a bench: in this process, with the lab's model; all runners share one."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import sys
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    AsyncExitStack,
    asynccontextmanager,
    redirect_stdout,
)
from typing import TYPE_CHECKING, Any

import attrs
import trio

from .model import PARKED_FOR, Missing, Moment, Runner, RunnerName, Target, Work

if TYPE_CHECKING:
    from ...lab.parlant import ParkedModel

_WORDS: dict[Moment | None, str] = {None: "answer", "tool": "park tool"}
_PARKS = "park generation"


@attrs.frozen
class ParlantTarget:
    """The model, and an engine that asks it.

    Attributes:
        backend: the adapter.
        server: Parlant's own.
        agent: the id of its agent.
        races_within: not known: it depends on what the engine does after the model's answer.
    """

    model: ParkedModel
    backend: Any
    server: Any
    agent: str
    races_within: None = None

    def prompt(self, moment: Moment | None) -> tuple[str, str]:
        """A message that says where the turn waits."""
        return self.model.write(_WORDS.get(moment, _PARKS))

    async def reached(self, token: str, moment: Moment) -> None:
        """It waits there."""
        await self.model.parked(token)
        await trio.sleep(PARKED_FOR)

    def finish(self, token: str) -> None:
        """Let the model answer."""
        self.model.release(token)

    def work(self, token: str) -> Sequence[Work]:
        """The engine's task for the turn, the model's answers, and tools."""
        return [
            Work(one.what, one.began_at, one.ended_at, cut=one.cut)
            for one in self.model.work(token)
        ]

    def faults(self, token: str) -> Sequence[str]:
        """None: the engine itself keeps the histories."""
        return ()

    def sweep(self, token: str) -> None:
        """Let go of all that waits."""
        self.model.release(token)


class ParlantBench:
    """`turnstop.adapters.parlant`."""

    name = "parlant"
    moments: tuple[Moment, ...] = ("starting", "running", "tool", "finishing")
    runners: tuple[RunnerName, ...] = ("turnstop", "raw")
    rooms: int | None = None

    async def versions(self) -> Mapping[str, str]:
        """Parlant's."""
        for needed in ("parlant", "trio_asyncio"):
            if importlib.util.find_spec(needed) is None:
                install = "python -m pip install 'turnstop[parlant]'"
                raise Missing(
                    f"parlant needs {needed}, best in an environment of its own: {install}"
                )
        return {"parlant": importlib.metadata.version("parlant")}

    @asynccontextmanager
    async def open_target(self) -> AsyncGenerator[Target, None]:
        """An engine, whose own words go where they are in nobody's way."""
        from ...adapters.parlant import open_parlant
        from ...lab.parlant import ParkedModel

        model = ParkedModel()
        made: dict[str, Any] = {}

        async def prepare(server: Any) -> str:
            made["agent"] = await model.prepare(server)
            made["server"] = server
            return str(made["agent"])

        opening = open_parlant(prepare, **model.options())
        async with AsyncExitStack() as stack:
            with redirect_stdout(sys.stderr):
                backend = await stack.enter_async_context(opening)
            yield ParlantTarget(model, backend, **made)

    def open_runner(
        self, runner: RunnerName, target: Target
    ) -> AbstractAsyncContextManager[Runner]:
        """Turns of the one engine."""
        assert isinstance(target, ParlantTarget)
        if runner == "raw":
            from .raw_parlant import open_raw_parlant

            return open_raw_parlant(target.backend.aio, target.server, target.agent)
        return _open_ours(target)


@asynccontextmanager
async def _open_ours(target: ParlantTarget) -> AsyncGenerator[Runner, None]:
    from .ours import open_ours

    async with open_ours(target.backend) as ours:
        yield ours
