"""One seed: six users and two rooms, from the first draw to the verdict."""

from __future__ import annotations

import logging
import math
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import attrs
import trio
import trio._core._run as trio_run
from trio.testing import MockClock

from turnstop import Rooms, Settlement, StopBudget, open_rooms

from .chaos import Chaos, close
from .check import check_all
from .program import USERS, Boom, Program, User
from .script import Dice, Plan
from .world import World

LIMIT = 10_000.0
# What a stuck run leaves: were its coroutines collected, they would run on inside the next seed.
_wrecks: list[BaseException] = []


class Stuck(Exception):
    """Nothing will ever happen again, or too much has."""


@attrs.define(eq=False)
class Played:
    """What came of one seed.

    Attributes:
        faults: empty, or what is wrong.
        lines: the trace: time, who, what.
        counts: how much of each thing there was, so that a run can show what it has seen.
    """

    seed: int
    faults: list[str]
    lines: list[tuple[float, str, str]]
    counts: Counter[str]

    def trace(self) -> str:
        return "\n".join(f"{time:9.4f}  {who:22} {what}" for time, who, what in self.lines)


@contextmanager
def _deterministic(seed: int) -> Generator[None]:
    """Trio's own entry point for Hypothesis: the batch is sorted, then shuffled by its Random."""
    logger = logging.getLogger("turnstop")
    before, state = trio_run._ALLOW_DETERMINISTIC_SCHEDULING, trio_run._r.getstate()
    trio_run._ALLOW_DETERMINISTIC_SCHEDULING = True  # type: ignore[misc]
    trio_run._r.seed(seed)
    logger.disabled = True
    try:
        yield
    finally:
        trio_run._ALLOW_DETERMINISTIC_SCHEDULING = before  # type: ignore[misc]
        trio_run._r.setstate(state)
        logger.disabled = False


def _watched_clock() -> MockClock:
    clock = MockClock(autojump_threshold=0)
    jump = clock._autojump

    def autojump() -> None:
        ahead = trio.lowlevel.current_statistics().seconds_to_next_deadline
        if ahead == math.inf or clock.current_time() > LIMIT:
            raise Stuck(f"nothing moves at {clock.current_time()}")
        jump()

    clock._autojump = autojump  # type: ignore[method-assign]
    return clock


def play(seed: int) -> Played:
    """Play one seed; the same seed gives the same run."""
    found: list[World] = []
    stuck = ""
    with _deterministic(seed):
        try:
            trio.run(_main, Dice(seed), found, clock=_watched_clock())
        except trio.TrioInternalError as error:
            stuck = f"stuck: {error.__cause__!r}"
            _wrecks.append(error)
        except Exception as error:
            stuck = f"the rooms raised {error!r}"
    world = found[0]
    if stuck:
        world.faults.append(stuck)
    else:
        check_all(world)
    return Played(seed, world.faults, world.lines, _count(world))


def _count(world: World) -> Counter[str]:
    counts: Counter[str] = Counter()
    for record in world.records.values():
        settlement = record.turn.settlement
        counts["turns"] += 1
        counts.update(f"{name}()" for name in record.calls)
        if settlement is not None:
            counts[settlement.ending.name] += 1
            counts[f"by {settlement.request and settlement.request.kind}"] += 1
            counts["with survivors"] += bool(settlement.survivors)
    return counts


async def _main(r: Dice, found: list[World]) -> None:
    r.coarse = r.random() < 0.4
    budget = StopBudget(
        cancel_within=r.choice((0.5, 1.0, 0.25 + r.moment())),
        kill_within=r.choice((0.5, 1.0, 0.25 + r.moment(0.5))),
    )
    async with trio.open_nursery() as asker:
        forgetting = [Plan.draw(r, ok=3, raises=1) for _ in range(3)]
        world = World(budget, asker, forgetting, sweep=r.random() < 0.8)
        found.append(world)
        try:
            await _lay_out(world, r)
        except* Boom:
            pass
        # Whoever still waits for an answer after this has been forgotten: `Record.asks` tells.
        await trio.sleep(10.0)
        asker.cancel_scope.cancel()


async def _lay_out(world: World, r: Dice) -> None:
    """Users are inside the rooms' block, or outside and cancelled with it, or beyond that."""
    how = r.pick(none=4, leave=2, cancel=3, error=1)
    layout = "inside" if how == "none" else r.pick(inside=1, outside=1, beyond=1)
    world.say("rooms", f"{world.budget}, users are {layout}, end: {how}")
    async with trio.open_nursery() as beyond:
        with trio.CancelScope() as outer:
            async with trio.open_nursery() as outside:
                where = {"beyond": beyond, "outside": outside}.get(layout)
                try:
                    await _open(world, r, outer, how, where)
                except Exception as error:
                    only = error.exceptions[0] if isinstance(error, ExceptionGroup) else error
                    if not isinstance(only, Boom) or (where is None) is (only is error):
                        world.blame("rooms", f"raised {error!r}")
                    raise Boom from error


async def _open(
    world: World, r: Dice, outer: trio.CancelScope, how: str, where: trio.Nursery | None
) -> None:
    def observe(settlement: Settlement) -> None:
        world.records[settlement.turn_id].told.append(settlement)
        world.say(settlement.turn_id, f"is settled: {settlement.ending.name}")
        if meddling.random() < 0.03:
            program.note_stop(rooms.stop(settlement.room), f"observed stop of {settlement.room}")

    def bad_observer(settlement: Settlement) -> None:
        raise ValueError(settlement)

    rooms: Rooms[Any]
    program: Program
    observers = (bad_observer, observe)
    meddling = r.another()
    try:
        async with open_rooms(
            world, budget=world.budget, sweep=world.sweep, observers=observers
        ) as rooms:
            program = Program(world, rooms, outer)
            try:
                await _fill(program, r, how, where)
            finally:
                program.shut()
    finally:
        _check_empty(world, rooms)


async def _fill(program: Program, r: Dice, how: str, where: trio.Nursery | None) -> None:
    for _ in range(2):
        program.world.asker.start_soon(Chaos(program, r.another()).run)
    async with trio.open_nursery() as inside:
        for name in USERS:
            (where or inside).start_soon(User(name, program, r.another()).run)
        if where is None and how == "error":
            inside.start_soon(close, program, r, how)
        elif where is None and how != "none":
            await close(program, r, how)
    if where is not None:
        await close(program, r, how)


def _check_empty(world: World, rooms: Rooms[Any]) -> None:
    found = rooms.statistics()
    if (found.rooms, found.live, found.waiting, found.stopping, found.stragglers) != (0,) * 5:
        world.blame("statistics", f"{found} at the end")
    settlements = [record.turn.settlement for record in world.records.values()]
    if found.dropped < sum(settlement.dropped for settlement in settlements if settlement):
        world.blame("statistics", f"{found}, less than the settlements' sum")
