"""One stop, watched; and many of them, so that the watching overlaps and the stopping does not."""

from __future__ import annotations

import itertools
import math
import random
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import attrs
import trio

from ..._ending import Ending
from ..._unwrap import open_private_nursery
from .model import BenchFailed, Moment, Outcome, Run, Runner, RunnerName, Target, Work

WATCH = 2.0
"""How long the work of a settled turn is looked for, in seconds."""
NOTICE = 0.010
"""Work that was seen to end this many seconds after a settlement said gone is on time: another
process closes its connections when the machine lets it. Work that begins then is lost at once."""
JITTER = 0.020
"""`starting` stops this long at most after the start call left, in seconds."""
_LOOK_EVERY = 0.5
_SETUP_WITHIN = 30.0
_NEXT_WITHIN = 10.0
# As survivors name them: other numbers, of a command line for instance, excuse nothing.
_PIDS = re.compile(r"\bpid (\d+(?:, \d+)*)")


@attrs.define(eq=False)
class Sample:
    """One stop.

    Attributes:
        pair: samples of different runners with one number were taken one after the other.
        admitted_at: when the session's next turn was let in.
        gone_at: when its last work was seen to end, where any was seen after the asking.
        lost: what was seen of its work when it should have been gone, or of its session when it
            should have answered.
    """

    runner: RunnerName
    pair: int
    outcome: Outcome
    admitted_at: float
    gone_at: float | None = None
    lost: tuple[str, ...] = ()


class Trials:
    """Stops at one moment, by one or more runners in turn."""

    def __init__(
        self, target: Target, runners: Mapping[RunnerName, Runner], done: Callable[[], None]
    ) -> None:
        self._target = target
        self._runners = runners
        self._done = done
        self._free: dict[RunnerName, list[str]] = {name: [] for name in runners}
        self._names = itertools.count(1)

    async def take(self, moment: Moment, n: int, seed: int = 0) -> list[Sample]:
        """Stop `n` turns by every runner."""
        delays = random.Random(seed)
        samples: list[Sample] = []
        async with open_private_nursery() as watchers:
            for pair in range(n):
                jitter = self._target.races_within if moment == "finishing" else JITTER
                delay = delays.uniform(0, jitter)
                # In turn first and second: neither always finds the machine as the other left it.
                for name in sorted(self._runners, reverse=pair % 2 == 0):
                    samples.append(await self._stop_one(name, moment, pair, delay, watchers))
        return samples

    async def _stop_one(
        self,
        name: RunnerName,
        moment: Moment,
        pair: int,
        delay: float,
        watchers: trio.Nursery,
    ) -> Sample:
        runner, target = self._runners[name], self._target
        with _bounded(f"{name}, {moment}: a turn was not where it should be"):
            room = await self._room(name)
            token, prompt = target.prompt(moment)
            early = delay if moment == "starting" else None
            run = await runner.begin(room, prompt, early)
            if early is None:
                await target.reached(token, moment)
            following = await runner.begin(room, target.prompt(None)[1])
            if moment == "finishing":
                target.finish(token)
                # Without a delay, not even a checkpoint: the end comes as close as it can.
                if delay:
                    await trio.sleep(delay)
            if early is None:
                await run.stop()
            outcome = await run.settled()
            admitted_at = await following.admitted()
        sample = Sample(name, pair, outcome, admitted_at)
        watchers.start_soon(self._watch, sample, room, token, run, following)
        return sample

    async def _room(self, name: RunnerName) -> str:
        """A room whose session exists, so that starting means starting a turn."""
        if self._free[name]:
            return self._free[name].pop()
        room = f"{name}-{next(self._names)}"
        run = await self._runners[name].begin(room, self._target.prompt(None)[1])
        outcome = await run.settled()
        if outcome.ending != Ending.FINISHED.name:
            raise BenchFailed(f"{name}: a turn that nobody stopped ended as {outcome.ending}")
        return room

    async def _watch(self, sample: Sample, room: str, token: str, run: Run, following: Run) -> None:
        """Look for the turn's work until it may be judged, then free the room."""
        outcome = sample.outcome
        async with open_private_nursery() as nursery:
            nursery.start_soon(_watch_next, sample, following)
            while (left := outcome.settled_at + WATCH - trio.current_time()) > 0:
                self._target.work(token)
                await trio.sleep(min(_LOOK_EVERY, left))
        # Asked again: the peer's turn may be seen to end after the peer calls it settled.
        outcome = sample.outcome = await run.settled()
        work = self._target.work(token)
        sample.lost += tuple(_lost(outcome, work))
        ends = [math.inf if one.ended_at is None else one.ended_at for one in work]
        last = max(ends, default=-math.inf)
        if outcome.asked_at is not None and outcome.asked_at <= last < math.inf:
            sample.gone_at = last
        self._target.sweep(token)
        if not sample.lost:
            self._free[sample.runner].append(room)
        self._done()


def _lost(outcome: Outcome, work: Sequence[Work]) -> list[str]:
    """The work that gives the settlement the lie."""
    named = {
        int(pid)
        for text in outcome.survivors
        for pids in _PIDS.findall(text)
        for pid in pids.split(", ")
    }
    limit = outcome.settled_at + (NOTICE if outcome.gone else WATCH)
    return [
        one.name
        for one in work
        if one.pid not in named
        and (one.ended_at is None or one.ended_at > limit or one.began_at > outcome.settled_at)
    ]


async def _watch_next(sample: Sample, following: Run) -> None:
    """A session that cannot be used any more is lost, too."""
    outcome = None
    with trio.move_on_after(_NEXT_WITHIN):
        outcome = await following.settled()
    if outcome is None:
        sample.lost += (f"the next turn not ended within {_NEXT_WITHIN:.0f} s",)
    elif outcome.ending != Ending.FINISHED.name:
        sample.lost += (f"the next turn ended as {outcome.ending}",)


@contextmanager
def _bounded(what: str) -> Iterator[None]:
    with trio.CancelScope(relative_deadline=_SETUP_WITHIN) as scope:
        yield
    if scope.cancelled_caught:
        raise BenchFailed(f"{what} within {_SETUP_WITHIN:.0f} s")
