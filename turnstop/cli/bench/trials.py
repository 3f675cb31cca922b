"""One stop, watched; and many of them, so that the watching overlaps and the stopping does not."""

from __future__ import annotations

import itertools
import math
import random
import statistics
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

import attrs
import trio
import trio.lowlevel

from ..._ending import Ending
from ..._unwrap import open_private_nursery
from . import verdicts
from .model import BenchFailed, Moment, Outcome, Run, Runner, RunnerName, Target
from .verdicts import Sample, alive, lies

JITTER = 0.020
"""`starting` stops this long at most after the start call left, in seconds."""
SETTLES_WITHIN = 12.0
"""How long a stop may take, in seconds: longer than any budget of turnstop."""
NO_END = "NONE"
"""The ending of a turn that nobody has called settled by then."""
_LOOK_EVERY = 0.5
_SETUP_WITHIN = 60.0
_NEXT_WITHIN = 10.0
_OWN_ENDS = 5


@attrs.frozen
class _Taken:
    """A stop that is settled, and what is needed to watch it."""

    sample: Sample
    moment: Moment
    room: str
    token: str
    run: Run
    next_token: str
    following: Run


class Trials:
    """Stops at one moment, by one or more runners in turn.

    Args:
        target: where the work shows.
        runners: who stops.
        done: is called for each stop that is judged.
        rooms: so many are open at most for each runner; None: as many as it takes.
    """

    def __init__(
        self,
        target: Target,
        runners: Mapping[RunnerName, Runner],
        done: Callable[[], None],
        rooms: int | None = None,
    ) -> None:
        self._target = target
        self._runners = runners
        self._done = done
        self._pools = {name: _Pool(name, rooms) for name in runners}

    async def take(self, moment: Moment, n: int, seed: int = 0) -> list[Sample]:
        """Stop `n` turns by every runner."""
        delays = random.Random(seed)
        samples: list[Sample] = []
        jitter = JITTER if moment == "starting" else 0.0
        if moment == "finishing":
            jitter = await self._races_within()
        async with open_private_nursery() as watchers:
            for pair in range(n):
                delay = delays.uniform(0, jitter)
                # In turn first and second: neither always finds the machine as the other left it.
                for name in sorted(self._runners, reverse=pair % 2 == 0):
                    taken = await self._stop_one(name, moment, pair, delay)
                    samples.append(taken.sample)
                    watchers.start_soon(self._watch, taken)
        return samples

    async def _stop_one(self, name: RunnerName, moment: Moment, pair: int, delay: float) -> _Taken:
        runner, target = self._runners[name], self._target
        with _bounded(f"{name}, {moment}: a turn was not where it should be"):
            room = await self._room(name)
            token, prompt = target.prompt(moment)
            early = delay if moment == "starting" else None
            run = await runner.begin(room, prompt, early, grants=moment != "permission")
            if moment == "permission":
                await run.asks()
            if early is None:
                await target.reached(token, moment)
            next_token, next_prompt = target.prompt(None)
            following = await runner.begin(room, next_prompt)
            if moment == "finishing":
                target.finish(token)
                # Without a delay, not even a checkpoint: the end comes as close as it can.
                if delay:
                    await trio.sleep(delay)
            if early is None:
                await run.stop()
        sample = Sample(name, pair, Outcome(ending=NO_END, gone=False, settled_at=math.inf))
        with trio.move_on_after(SETTLES_WITHIN):
            sample.outcome = await run.settled()
            sample.admitted_at = await following.admitted()
        return _Taken(sample, moment, room, token, run, next_token, following)

    async def _races_within(self) -> float:
        """The median time from the release to a turn's own end, where it is not known."""
        if self._target.races_within is not None:
            return self._target.races_within
        took = []
        for name in itertools.islice(itertools.cycle(self._runners), _OWN_ENDS):
            with _bounded(f"{name}: a turn that was released had not ended"):
                room = await self._room(name)
                token, prompt = self._target.prompt("finishing")
                run = await self._runners[name].begin(room, prompt)
                await self._target.reached(token, "finishing")
                self._target.finish(token)
                released_at = trio.current_time()
                took.append((await run.settled()).settled_at - released_at)
                self._pools[name].give_back(room)
        return statistics.median(took)

    async def _room(self, name: RunnerName) -> str:
        """A room whose session exists, so that starting means starting a turn."""
        room, is_new = await self._pools[name].take()
        if is_new:
            run = await self._runners[name].begin(room, self._target.prompt(None)[1])
            outcome = await run.settled()
            if outcome.ending != Ending.FINISHED.name:
                text = f"a turn that nobody stopped ended as {outcome.ending}"
                raise BenchFailed(f"{name}: {text}")
        return room

    async def _watch(self, taken: _Taken) -> None:
        """Look for the turn's work until it may be judged, then free the room."""
        sample, token = taken.sample, taken.token
        if sample.outcome.ending == NO_END:
            sample.alive = (f"not settled within {SETTLES_WITHIN:.0f} s",)
        else:
            await self._watch_settled(taken)
        self._target.sweep(token)
        pool = self._pools[sample.runner]
        if sample.lost:
            with trio.move_on_after(_NEXT_WITHIN):
                await self._runners[sample.runner].discard(taken.room)
            pool.close()
        else:
            pool.give_back(taken.room)
        self._done()

    async def _watch_settled(self, taken: _Taken) -> None:
        sample, token = taken.sample, taken.token
        settled_at = sample.outcome.settled_at
        async with open_private_nursery() as nursery:
            nursery.start_soon(_watch_next, sample, taken.following)
            while (left := settled_at + verdicts.WATCH - trio.current_time()) > 0:
                self._target.work(token)
                await trio.sleep(min(_LOOK_EVERY, left))
        # Asked again: the peer's turn may be seen to end after the peer calls it settled.
        outcome = sample.outcome = await taken.run.settled()
        work = self._target.work(token)
        sample.alive = tuple(alive(outcome, work))
        sample.lies = tuple(lies(taken.moment, outcome, work))
        faults = (*self._target.faults(token), *self._target.faults(taken.next_token))
        sample.histories = tuple(f"an invalid history: {text}" for text in faults)
        ends = [math.inf if one.ended_at is None else one.ended_at for one in work]
        last = max(ends, default=-math.inf)
        if outcome.asked_at is not None and outcome.asked_at <= last < math.inf:
            sample.gone_at = last


class _Pool:
    """The rooms of a runner."""

    def __init__(self, name: str, most: int | None) -> None:
        self._name = name
        self._most = math.inf if most is None else most
        self._numbers = itertools.count(1)
        self._free: list[str] = []
        self._open = 0
        self._changed = trio.lowlevel.ParkingLot()

    async def take(self) -> tuple[str, bool]:
        """A room, and whether it is new."""
        while not self._free and self._open >= self._most:
            await self._changed.park()
        if self._free:
            return self._free.pop(), False
        self._open += 1
        return f"{self._name}-{next(self._numbers)}", True

    def give_back(self, room: str) -> None:
        """It may be used again."""
        self._free.append(room)
        self._changed.unpark()

    def close(self) -> None:
        """One that was taken is no more."""
        self._open -= 1
        self._changed.unpark()


async def _watch_next(sample: Sample, following: Run) -> None:
    """A session that cannot be used any more is lost, too."""
    outcome = None
    with trio.move_on_after(_NEXT_WITHIN):
        outcome = await following.settled()
    if outcome is None:
        sample.unanswered = f"the next turn not ended within {_NEXT_WITHIN:.0f} s"
    elif outcome.ending != Ending.FINISHED.name:
        sample.unanswered = f"the next turn ended as {outcome.ending}"


@contextmanager
def _bounded(what: str) -> Iterator[None]:
    with trio.CancelScope(relative_deadline=_SETUP_WITHIN) as scope:
        yield
    if scope.cancelled_caught:
        raise BenchFailed(f"{what} within {_SETUP_WITHIN:.0f} s")
