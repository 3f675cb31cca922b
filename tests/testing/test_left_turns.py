"""What the kit makes of adapters that offer `attach`, and of those which need not."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any, ClassVar

import attrs
import pytest
import trio
from killable import KillableProbe

from turnstop import BackendLost, BackendRefused
from turnstop.abc import Emit, End, How, Request
from turnstop.testing import OBLIGATIONS, Outcome, Probe, bare_probe, probe_backend
from turnstop.testing._probe import LEVERS
from turnstop.testing._report import Report

LEFT = [name for name, one in OBLIGATIONS.items() if {"attach", "announce"} & {*one.needs}]
UNAIDED = [name for name in LEFT if not {*LEVERS} & {*OBLIGATIONS[name].needs}]


def outcomes(report: Report) -> set[Outcome]:
    return {row.outcome for row in report.rows}


def test_who_offers_none_is_excused_by_the_kit() -> None:
    assert "attach" not in KillableProbe.unable
    report = probe_backend(KillableProbe, only=UNAIDED)
    assert outcomes(report) == {Outcome.EXCUSED}, str(report)
    assert all(row.text.startswith("it offers no ") for row in report.rows)


@attrs.define(eq=False)
class Turn:
    name: str
    session: object | None = None
    told: trio.Event = attrs.field(factory=trio.Event)

    @property
    def address(self) -> str:
        return f"here {self.name}"

    async def follow(self, emit: Emit) -> End:
        await self.told.wait()
        return End(How.CANCELLED)

    async def cancel(self, sent: Any) -> None:
        sent()
        self.told.set()


class Announcing:
    """Announces each turn; its far end is itself."""

    announces = True

    async def start(self, request: Request[str]) -> Turn:
        await request.announce(f"here {request.turn_id}")
        return Turn(request.turn_id)

    async def attach(self, address: str) -> Turn:
        if not address.startswith("here "):
            raise BackendLost(f"{address} is another's")
        raise BackendRefused("it was another process's, and is over with that")


class Asking(Announcing):
    """Says that it announces, and does not."""

    async def start(self, request: Request[str]) -> Turn:
        return Turn(request.turn_id)


def test_a_backend_without_a_probe_is_taken_at_its_word() -> None:
    report = probe_backend(partial(bare_probe, Announcing), only=UNAIDED)
    assert outcomes(report) == {Outcome.GREEN}, str(report)


def test_a_backend_that_announces_nothing_is_seen_without_a_probe() -> None:
    report = probe_backend(partial(bare_probe, Asking), only=["what_begins_is_announced"])
    assert outcomes(report) == {Outcome.RED}, str(report)


@pytest.mark.parametrize("need", ["attach", "announce"])
def test_an_excuse_of_who_offers_it_is_not_true(need: str) -> None:
    unable = {need: "it has no such thing"}
    only = [name for name in UNAIDED if need in OBLIGATIONS[name].needs]
    report = probe_backend(partial(bare_probe, Announcing, unable=unable), only=only)
    assert outcomes(report) == {Outcome.RED}, str(report)
    assert all("the excuse is not true" in row.text for row in report.rows)


class Forgetful(Probe):
    """A far end that ends with whoever opened it; the next one finds nothing, and says it is gone.

    Attributes:
        works: of all that were opened.
    """

    name = "forgetful"
    unable: ClassVar[Mapping[str, str]] = {}

    def __init__(self) -> None:
        self.inner = KillableProbe()

    @property
    def works(self) -> Any:
        return self.inner.works

    def open(self) -> AbstractAsyncContextManager[Any]:
        return self._open(again=False)

    def open_again(self) -> AbstractAsyncContextManager[Any]:
        return self._open(again=True)

    @asynccontextmanager
    async def _open(self, again: bool) -> AsyncGenerator[Any, None]:
        if again:
            yield Announcing()
            return
        self.inner.far_end = self.far_end
        async with self.inner.open() as backend:
            yield Attached(backend)


@attrs.define(eq=False)
class Named:
    remote: Any
    address: str

    def __getattr__(self, name: str) -> Any:
        return getattr(self.remote, name)


@attrs.define(eq=False)
class Attached:
    backend: Any

    async def start(self, request: Request[str]) -> Any:
        return Named(await self.backend.start(request), f"here {request.turn_id}")

    async def attach(self, address: str) -> Any:
        raise BackendLost(address)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.backend, name)


def test_a_next_process_that_says_gone_of_what_works_is_found() -> None:
    report = probe_backend(Forgetful, only=["left_turn_is_stopped"])
    (row,) = report.rows
    assert row.outcome is Outcome.RED
    assert row.text == "it is said to be unstarted and gone, and the work goes on"
