"""A real A2A agent as a bench: the SDK's own server, in a process of its own."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Literal, TypeAlias

import attrs
import trio

from .model import PARKED_FOR, Missing, Moment, Runner, RunnerName, Target, Work

if TYPE_CHECKING:
    from ...lab.a2a import A2AServer

Kind: TypeAlias = Literal["streaming", "polling", "plain", "swallow"]

_MOMENTS: tuple[Moment, ...] = ("starting", "running", "finishing")
_NEEDED = ("h11", "a2a", "httpx", "uvicorn", "starlette", "sse_starlette")
# The agent is told beforehand when to come to its end; a stop then falls around it.
_ENDS_AFTER = 0.1
_EARLY = 0.005


@attrs.frozen
class A2ATarget:
    """The agent's executor, which tells when its work began and ended."""

    server: A2AServer
    parks: str
    races_within: float = 2 * _EARLY

    def prompt(self, moment: Moment | None) -> tuple[str, str]:
        """A message that says what the executor does."""
        token = uuid.uuid4().hex[:12]
        if moment is None:
            return token, f"answer token={token}"
        if moment == "finishing":
            return token, f"stream token={token} count=1 seconds={_ENDS_AFTER}"
        return token, f"{self.parks} token={token} seconds=1"

    async def reached(self, token: str, moment: Moment) -> None:
        """The executor works, or is about to end."""
        began_at = (await self.server.began(token)).began_at
        if moment == "finishing":
            await trio.sleep_until(began_at + _ENDS_AFTER - _EARLY)
        elif moment == "running":
            await trio.sleep(PARKED_FOR)

    def finish(self, token: str) -> None:
        """Nothing: it comes to its end by itself."""

    def work(self, token: str) -> Sequence[Work]:
        """The runs of the executor."""
        return [
            Work(f"executor step {number}", one.began_at, one.ended_at)
            for number, one in enumerate(self.server.work(token), 1)
        ]

    def faults(self, token: str) -> Sequence[str]:
        """None: it asks no model."""
        return ()

    def sweep(self, token: str) -> None:
        """Nothing: what is left ends with the server."""


class A2ABench:
    """One kind of agent: it streams, is polled, or answers a message at its end only."""

    moments: tuple[Moment, ...] = _MOMENTS
    rooms: int | None = None

    def __init__(self, kind: Kind, band_python: str | None = None) -> None:
        self.name = "a2a" if kind == "streaming" else f"a2a-{kind}"
        self.runners: tuple[RunnerName, ...] = ("turnstop",)
        if kind in ("streaming", "swallow"):
            self.runners = ("turnstop", "raw", "band")
        self._kind = kind
        self._band_python = band_python

    async def versions(self) -> Mapping[str, str]:
        """The SDK's, which is the client's and the server's here."""
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            what = f"{self.name} needs {missing[0]}"
            raise Missing(f"{what}: python -m pip install 'turnstop[bench]'")
        return {"a2a-sdk": importlib.metadata.version("a2a-sdk")}

    @asynccontextmanager
    async def open_target(self) -> AsyncGenerator[Target, None]:
        """A server of this kind."""
        from ...lab.a2a import open_a2a_server

        streaming = self._kind in ("streaming", "swallow")
        parks = "swallow" if self._kind == "swallow" else "park"
        blocking = self._kind == "plain"
        async with open_a2a_server(streaming=streaming, blocking=blocking) as server:
            yield A2ATarget(server, parks)

    def open_runner(
        self, runner: RunnerName, target: Target
    ) -> AbstractAsyncContextManager[Runner]:
        """A client of it."""
        assert isinstance(target, A2ATarget)
        if runner == "raw":
            from .raw_a2a import open_raw_a2a

            return open_raw_a2a(target.server.url)
        if runner == "band":
            from .band import open_band_runner

            return open_band_runner(
                self._band_python, backend="a2a", url=target.server.url, streaming=True
            )
        return _open_ours(target.server.url)


@asynccontextmanager
async def _open_ours(url: str) -> AsyncGenerator[Runner, None]:
    from ...adapters.a2a import open_a2a
    from .ours import open_ours

    async with open_a2a(url) as agent, open_ours(agent) as ours:
        yield ours
