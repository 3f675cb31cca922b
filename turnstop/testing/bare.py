"""Checking a backend that has no probe: only what needs no lever, and takes the adapter's word.

Without levers nothing is known of the far end but what the adapter says by its contract: a work
has begun when `start` has returned, is told when `cancel` is called, and has ended when `follow`
has returned its end. That is enough to see that a stop does not stop.

    check_backend(partial(bare_probe, open_mine))
"""

from __future__ import annotations

import time
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

import attrs
import trio

from .._budget import StopBudget
from .._unwrap import open_private_nursery
from ..abc import Backend
from ._determinism import quiet_kernel
from ._factory import NotABackend, name_of, open_made
from ._obligation import OBLIGATIONS, Obligation
from ._probe import LEVERS, Probe, Work
from ._report import Outcome, Report, Row
from ._run import check_claims, check_obligation, chosen, in_real_time, judge, noting, observe
from ._stage import Stage
from ._watched import WatchedBackend

__all__ = ["BARE_BUDGET", "NotABackend", "bare_probe", "probe_factory"]

BARE_BUDGET = StopBudget(cancel_within=0.8, kill_within=0.4)
"""The bound of each stop, where nothing else is asked for."""

_BASIC = "stop_ends_the_work"
_WAITED_FOR = 0.4
_NO_SESSION = "it keeps no conversation: the session of its turns is None"


class _BareProbe(Probe):
    clock = "real"

    def __init__(
        self, factory: Any, budget: StopBudget, prompt: str, unable: Mapping[str, str]
    ) -> None:
        self.name = name_of(factory)  # type: ignore[misc]
        self.unable = unable  # type: ignore[misc]
        self.budget = budget
        self.suffix = ""
        self.note_unfit: Callable[[str], object] = lambda text: None
        self._works: list[Work] = []
        self._factory = factory
        self._prompt = prompt

    def open(self) -> AbstractAsyncContextManager[Backend[Any]]:
        """Open what the factory makes."""
        return self._open()

    @asynccontextmanager
    async def _open(self) -> AsyncGenerator[Backend[Any], None]:
        async with open_made(self._factory) as backend:
            yield WatchedBackend(backend, self._works, self.note_unfit, self.suffix)

    @property
    def works(self) -> list[Work]:
        """Each request, as the adapter tells of it."""
        return self._works

    def content(self, text: str) -> object:
        """The prompt, and what tells the works apart."""
        return f"{self._prompt} ({text})" if self._prompt else text


def bare_probe(
    factory: Any,
    *,
    budget: StopBudget = BARE_BUDGET,
    prompt: str = "",
    unable: Mapping[str, str] | None = None,
) -> Probe:
    """A probe without levers, of a backend that only its factory is known of.

    What it starts must go on until it is stopped: nothing else can be stopped.

    Args:
        factory: called without arguments; gives a backend, or an async context manager of one. A
            class will do, and a coroutine function. A backend that exists already, too.
        budget: the bound of each stop.
        prompt: what each turn asks for; a word that tells it apart is added.
        unable: as `Probe.unable`.
    """
    return _BareProbe(factory, budget, prompt, unable or {})


@attrs.define(eq=False)
class _Together:
    """The obligations that need no lever, played at once, each in rooms of its own."""

    make_probe: Callable[[], Any]
    told: Callable[[Row], object]
    rows: list[Row] = attrs.field(factory=list)
    unfit: str = ""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _waiting: dict[str, trio.CancelScope] = attrs.field(factory=dict)

    async def check(self, obligations: Iterable[Obligation]) -> None:
        with self.scope, quiet_kernel():
            async with open_private_nursery() as nursery:
                for number, one in enumerate(obligations, 1):
                    # Before anything is started, so that each of them can be given up.
                    self._waiting[one.name] = trio.CancelScope()
                    nursery.start_soon(self._check, one, f"-{number}")

    async def _check(self, one: Obligation, suffix: str) -> None:
        probe = self.make_probe()
        probe.note_unfit, probe.suffix = self._note_unfit, suffix
        stage, began = Stage(probe, suffix), time.perf_counter()
        reasons: list[str] = []
        with noting(reasons), self._waiting[one.name] as scope:
            await in_real_time(one, stage)
        if scope.cancelled_caught:
            text = "not waited for, since the work does not end when it is stopped"
            row = Row(one, Outcome.NOT_RUN, text)
        else:
            verdict = judge("".join(reasons), self._excuse(one, probe))
            row = Row(one, *verdict, observe(stage), time.perf_counter() - began)
        del self._waiting[one.name]
        self.take(row)

    def _excuse(self, one: Obligation, probe: Probe) -> str:
        unable = dict(probe.unable)
        if all(work.session is None for work in probe.works):
            unable.setdefault("session", _NO_SESSION)
        return "; ".join(unable[need] for need in one.needs if need in unable)

    def take(self, row: Row) -> None:
        self.rows.append(row)
        self.told(row)
        # Every other stop would wait for its bound too, and tell nothing new.
        if row.obligation.name == _BASIC and row.outcome is Outcome.RED:
            for scope in self._waiting.values():
                scope.deadline = trio.current_time() + _WAITED_FOR

    def _note_unfit(self, text: str) -> None:
        self.unfit = self.unfit or text
        self.scope.cancel()


async def probe_factory(
    factory: Any,
    *,
    only: Iterable[str] = (),
    told: Callable[[Row], object] = lambda row: None,
    budget: StopBudget = BARE_BUDGET,
    prompt: str = "",
    unable: Mapping[str, str] | None = None,
    opened: Callable[[], object] = lambda: None,
) -> Report:
    """Check what needs no lever, all at once over one backend, as many rooms do.

    Where the work does not end when it is stopped, what has not come out soon after is not waited
    for. Obligations that take levers are not run.

    Args:
        factory: as `bare_probe` takes it.
        only: names of obligations; all of them by default.
        told: called with each row as it is known.
        budget: the bound of each stop.
        prompt: what each turn asks for.
        unable: as `Probe.unable`.
        opened: called when the backend is open.

    Raises:
        NotABackend: it cannot be checked; the text says why, and what to do.
        ValueError: there is no such obligation, or nothing like that could be excused.

    **Cancellation:** the turns are stopped, and the backend is closed.
    """
    found = list(chosen(only))
    name = name_of(factory)
    async with open_made(factory) as backend:
        opened()
        make_probe = partial(bare_probe, backend, budget=budget, prompt=prompt, unable=unable)
        check_claims(make_probe())
        together = _Together(make_probe, told)
        levers = [one for one in found if any(need in LEVERS for need in one.needs)]
        await together.check(one for one in found if one not in levers)
        if together.unfit:
            raise NotABackend(f"{name}: {together.unfit}")
    for one in levers:
        together.take(check_obligation(one, make_probe))
    order = list(OBLIGATIONS)
    return Report(name, sorted(together.rows, key=lambda row: order.index(row.obligation.name)))
