"""Checking a backend that has no probe: only what needs no lever, and takes the adapter's word.

Without levers nothing is known of the far end but what the adapter says by its contract: a work
has begun when `start` has returned, is told when `cancel` calls `sent`, and has ended when `follow`
has returned its end. That is enough to see that a stop does not stop.

    check_backend(partial(bare_probe, open_mine))
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import partial
from typing import Any

from .._budget import StopBudget
from ..abc import Backend
from ._factory import NotABackend, name_of, open_made
from ._obligation import OBLIGATIONS
from ._probe import LEVERS, Probe, Work
from ._report import Report, Row
from ._run import check_claims, check_obligation, chosen
from ._together import Together
from ._watched import WatchedBackend

__all__ = ["BARE_BUDGET", "NotABackend", "bare_probe", "probe_factory"]

BARE_BUDGET = StopBudget(cancel_within=0.8, kill_within=0.4)
"""The bound of each stop, where nothing else is asked for."""


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


async def probe_factory(
    factory: Any,
    *,
    only: Iterable[str] = (),
    told: Callable[[Row], object] = lambda row: None,
    budget: StopBudget = BARE_BUDGET,
    prompt: str = "",
    unable: Mapping[str, str] | None = None,
    opened: Callable[[], object] = lambda: None,
    stuck: Callable[[str], object] = lambda unfit: None,
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
        stuck: called when this can never return, since something of the adapter cannot be
            cancelled; with why it cannot be checked, empty where the rows have it all.

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
        levers = [one for one in found if any(need in LEVERS for need in one.needs)]
        # Told before the exit, which may hang: that is of no promise.
        last = [check_obligation(one, make_probe) for one in levers]
        together = Together(make_probe, told, lambda: stuck(together.unfit), last)
        await together.check(one for one in found if one not in levers)
        if together.unfit:
            raise NotABackend(f"{name}: {together.unfit}")
    order = list(OBLIGATIONS)
    return Report(name, sorted(together.rows, key=lambda row: order.index(row.obligation.name)))
