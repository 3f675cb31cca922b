"""Playing what needs no lever all at once over one backend, as many rooms do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import attrs
import trio

from .._unwrap import open_private_nursery
from ._determinism import quiet_kernel
from ._obligation import OBLIGATIONS, Obligation
from ._probe import Probe
from ._report import Outcome, Row
from ._run import in_real_time, judge, noting, observe
from ._stage import Stage

__all__ = ["Together"]

_BASIC = "stop_ends_the_work"
_WAITED_FOR = 0.4
_CLINGS_FOR = 4.0
_LOOKS_EVERY = 0.1
_NO_SESSION = "it keeps no conversation: the session of its turns is None"


@attrs.define(eq=False)
class Together:
    """The obligations that need no lever, played at once, each in rooms of its own.

    Attributes:
        make_probe: makes a bare probe over the one backend.
        told: called with each row as it is known.
        stuck: called when something cannot be cancelled: `check` never returns then.
        last: rows of others, taken when all are done, or given up.
        patience: for how many seconds the first start may take.
        rows: what came of them.
        unfit: why nothing can be checked; empty where it can.
        scope: of all that is under way.
    """

    make_probe: Callable[[], Any]
    told: Callable[[Row], object]
    stuck: Callable[[], object]
    last: Sequence[Row] = ()
    patience: float = 20.0
    rows: list[Row] = attrs.field(factory=list)
    unfit: str = ""
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope)
    _began: float = attrs.field(factory=time.perf_counter)
    _waiting: dict[str, trio.CancelScope] = attrs.field(factory=dict)
    _stages: dict[str, Stage] = attrs.field(factory=dict)

    async def check(self, obligations: Iterable[Obligation]) -> None:
        """Play them.

        **Cancellation:** leaves every stage.
        """
        with self.scope, quiet_kernel():
            async with open_private_nursery() as watching:
                watching.start_soon(self._watch)
                await self._check_all(obligations)
                watching.cancel_scope.cancel()
        if not self.unfit:
            self._take_last()

    async def _check_all(self, obligations: Iterable[Obligation]) -> None:
        async with open_private_nursery() as nursery:
            for number, one in enumerate(obligations, 1):
                # Before anything is started, so that each of them can be given up.
                self._waiting[one.name] = trio.CancelScope()
                nursery.start_soon(self._check, one, f"-{number}")

    async def _check(self, one: Obligation, suffix: str) -> None:
        probe = self.make_probe()
        probe.note_unfit, probe.suffix = self._note_unfit, suffix
        self._stages[one.name] = stage = Stage(probe, suffix)
        reasons: list[str] = []
        with noting(reasons), self._waiting[one.name] as scope:
            await in_real_time(one, stage)
        if scope.cancelled_caught:
            text = "not waited for, since the work does not end when it is stopped"
            row = Row(one, Outcome.NOT_RUN, text)
        else:
            verdict = judge("".join(reasons), self._excuse(one, probe) or stage.lacks)
            took = time.perf_counter() - self._began
            row = Row(one, *verdict, observe(stage), took)
        await self._see_something_begin()
        # What was given up may come back all the same.
        if self._waiting.pop(one.name, None) is not None:
            self._take(row)

    def _excuse(self, one: Obligation, probe: Probe) -> str:
        unable = dict(probe.unable)
        if all(work.session is None for work in probe.works):
            unable.setdefault("session", _NO_SESSION)
        return "; ".join(unable[need] for need in one.needs if need in unable)

    def _take_all(self, rows: Iterable[Row]) -> None:
        for row in rows:
            self._take(row)

    def _take_last(self) -> None:
        last, self.last = self.last, ()
        self._take_all(last)

    def _take(self, row: Row) -> None:
        self.rows.append(row)
        self.told(row)
        # Every other stop would wait for its bound too, and tell nothing new.
        if row.obligation.name == _BASIC and row.outcome is Outcome.RED:
            for scope in self._waiting.values():
                scope.deadline = trio.current_time() + _WAITED_FOR

    # What never comes back.

    async def _see_something_begin(self) -> None:
        """What comes out before any start has come back says nothing."""
        while seconds := self._nothing_for():
            if seconds > self.patience:
                text = f"start has not come back {seconds:.0f} s after it was called"
                self._note_unfit(text)
            await trio.sleep(_LOOKS_EVERY)

    def _nothing_for(self) -> float:
        """For how many seconds nothing has begun that was asked for; 0: something has."""
        works = [work for stage in self._stages.values() for work in stage.probe.works]
        if not works or any(work.began_at is not None for work in works):
            return 0.0
        return trio.current_time() - min(work.asked_at for work in works)

    async def _watch(self) -> None:
        """See that what was cancelled comes back: what does not lets nothing come to its end."""
        since: dict[str, float] = {}
        while True:
            await trio.sleep(_LOOKS_EVERY)
            now = trio.current_time()
            clinging = [name for name in self._waiting if _list_clinging(self._stages.get(name))]
            since = {name: since.get(name, now) for name in clinging}
            if since and now - min(since.values()) > _CLINGS_FOR:
                self._give_up(min(since, key=list(OBLIGATIONS).index))
                return

    def _give_up(self, name: str) -> None:
        stage = self._stages[name]
        seconds = f"has not come back {_CLINGS_FOR:g} s after it was cancelled"
        text = f"{_list_clinging(stage)[0]} cannot be cancelled: it {seconds}"
        if self._nothing_for():
            self._note_unfit(text)
        else:
            self._take_stuck(name, text)
            self._take_last()
        self.scope.cancel()
        self.stuck()

    def _take_stuck(self, name: str, text: str) -> None:
        stage = self._stages[name]
        others = [one for one in self._waiting if one != name]
        self._waiting.clear()
        lines = [*([str(stage.broken)] if stage.broken else []), text]
        took = time.perf_counter() - self._began
        self._take(Row(OBLIGATIONS[name], Outcome.RED, "\n".join(lines), observe(stage), took))
        why = f"not played to its end: {text}"
        self._take_all(Row(OBLIGATIONS[one], Outcome.NOT_RUN, why) for one in others)

    def _note_unfit(self, text: str) -> None:
        self.unfit = self.unfit or text
        self._waiting.clear()
        self.scope.cancel()


def _list_clinging(stage: Stage | None) -> list[str]:
    """The calls of a stage that were cancelled, and have not come back."""
    if stage is None or stage._rooms is None:
        return []
    stragglers = stage._rooms._house.stragglers
    return [f"{call.name}() of turn {whose}" for call, whose in stragglers.items()]
