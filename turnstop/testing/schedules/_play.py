"""Playing a schedule, from the first step to the verdict."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import attrs
import trio

from ..._records import Settlement
from ..._rooms import open_rooms
from ..._unwrap import open_private_nursery
from .._determinism import deterministic
from .._run import MakeProbe
from ..clock import Stalled, run_in_real_time, run_in_virtual_time
from ._checks import check_all
from ._conduct import Conductor
from ._crash import told, where
from ._draw import draw
from ._person import NEVER, Boom, Fault
from ._schedule import Schedule
from ._world import World

__all__ = ["BLOCKS", "Played", "play", "replay", "replay_within"]

WITHIN = 30.0
REAL = 120.0
BLOCKS = "blocks"
FAR_END = "the probe's far end"


@attrs.frozen
class Played:
    """What came of one schedule.

    Attributes:
        schedule: it.
        faults: the promises that were not kept; empty where all were.
        lines: the trace: seconds, who, what.
        endings: what became of them.
    """

    schedule: Schedule
    faults: tuple[Fault, ...]
    lines: tuple[tuple[float, str, str], ...] = attrs.field(repr=False)
    endings: tuple[str, ...] = attrs.field(repr=False)

    @property
    def trace(self) -> str:
        """The trace as text."""
        return "\n".join(f"{time:9.4f}  {who:10} {what}" for time, who, what in self.lines)


def play(make_probe: MakeProbe, seed: int) -> Played:
    """Play what a seed decides on a fresh probe.

    In virtual time the same seed gives the same run; in real time, nearly the same.

    Args:
        make_probe: makes the probe; a subclass of `Probe` will do.
        seed: any number.
    """
    return replay(make_probe, draw(seed, make_probe()))


def replay(make_probe: MakeProbe, schedule: Schedule) -> Played:
    """Play a schedule on a fresh probe, as `play` does.

    Raises:
        ValueError: the schedule cannot be played.
    """
    return replay_within(make_probe, schedule, WITHIN)


def replay_within(make_probe: MakeProbe, schedule: Schedule, within: float) -> Played:
    """As `replay`; what plays in virtual time has stalled after so many seconds of real time."""
    schedule.check()
    world = World(make_probe())
    with deterministic(schedule.seed):
        try:
            if world.probe.clock == "virtual":
                run_in_virtual_time(_main, world, schedule, within=within)
            else:
                run_in_real_time(_main, world, schedule, within=REAL)
            check_all(world)
        except Stalled as stalled:
            _note_stall(world, stalled)
        except _Crash as crash:
            _note_crash(world, "far end", FAR_END, crash.error)
        except Exception as error:
            _note_crash(world, "leak", "the run", error)
    settlements = [person.turn.settlement for person in world.people.values()]
    endings = tuple(settlement.ending.value for settlement in settlements if settlement)
    return Played(schedule, tuple(world.faults), tuple(world.lines), endings)


class _Crash(Exception):
    """The probe's far end has raised."""

    def __init__(self, error: Exception) -> None:
        super().__init__(error)
        self.error = error


def _note_stall(world: World, stalled: Stalled) -> None:
    text = str(stalled).partition("\n")[0]
    promise = BLOCKS if text.startswith("a step has not returned") else "hang"
    world.faults.insert(0, Fault(promise, "the rooms", text))
    world.lines.append((NEVER, "FAULT", str(stalled)))
    if isinstance(stalled.__cause__, _Crash):
        _note_crash(world, "far end", FAR_END, stalled.__cause__.error)


def _note_crash(world: World, promise: str, who: str, error: Exception) -> None:
    # It comes first: what a schedule is shrunk to must break this.
    world.faults.insert(0, Fault(promise, who, f"raises {told(error)}"))
    world.lines.append((NEVER, "FAULT", f"{who} raises {error!r}\n{where(error)}"))


async def _main(world: World, schedule: Schedule) -> None:
    own: list[Exception] = []
    try:
        async with trio.open_nursery() as world.probe.far_end:
            try:
                await _perform(world, schedule)
            except Exception as error:
                own.append(error)
            world.over = True
            world.probe.far_end.cancel_scope.cancel()
    except Exception as error:
        raise _Crash(error) from None
    if own:
        raise own[0]


async def _perform(world: World, schedule: Schedule) -> None:
    async with trio.open_nursery() as world._aside, trio.open_nursery() as outside:
        with trio.CancelScope() as outer:
            try:
                await _open(world, schedule, outer, outside)
            except Boom:
                world.say("the rooms", "raise their own error")
            except Exception as error:
                world.blame("leak", "the rooms", f"raise {told(error)}")
        world.over = True
        # Who has left its block says so in a pass of its own.
        await trio.sleep(0.01)
        for person in world.people.values():
            if person.here:
                world.blame("hang", person.name, "is in its block after the rooms are left")
        for nursery in (outside, world.aside):
            nursery.cancel_scope.cancel()


async def _open(
    world: World,
    schedule: Schedule,
    outer: trio.CancelScope,
    outside: trio.Nursery,
) -> None:
    closed, world.inside = trio.Event(), schedule.inside

    def close(how: str) -> None:
        world.say("the rooms", f"close: {how}")
        world.closing, world.how = trio.current_time(), how
        world.cancelled = how == "cancel" or schedule.inside
        if how == "cancel":
            outer.cancel()
        closed.set()

    async with _open_rooms(world), open_private_nursery() as inside:
        people = inside if schedule.inside else outside
        world.aside.start_soon(_conduct, Conductor(world, schedule, people, outside, close))
        await closed.wait()
        if world.how == "raise":
            raise Boom("of the rooms")
        inside.cancel_scope.cancel()


@asynccontextmanager
async def _open_rooms(world: World) -> AsyncGenerator[None, None]:
    def observe(settlement: Settlement) -> None:
        person = world.people[settlement.turn_id]
        person.told.append(settlement)
        world.say(person.name, f"is settled: {settlement.ending.value}")
        if person.left_behind:
            person.alive_then = person.left_behind & world.alive()
        world.look_for_swept(person)

    probe = world.probe
    try:
        async with probe.open() as backend:
            async with open_rooms(
                backend, budget=probe.budget, observers=[observe]
            ) as world._rooms:
                yield
    finally:
        if world._rooms is not None:
            _check_empty(world)


def _check_empty(world: World) -> None:
    found = world.rooms.statistics()
    counts = (found.rooms, found.live, found.waiting, found.stopping, found.stragglers)
    if any(counts):
        world.blame("statistics", "the rooms", f"are left, and count {found}")


async def _conduct(conductor: Conductor) -> None:
    try:
        await conductor.run()
        await _see_all_leave(conductor.world)
    finally:
        # Whoever goes on in spite of everything keeps the rooms' exit waiting.
        conductor.world.probe.release()


async def _see_all_leave(world: World) -> None:
    with trio.move_on_after(_patience(world)):
        while any(person.here for person in world.people.values()):  # noqa: ASYNC110  nobody tells
            await trio.sleep(0.05)
    for person in world.people.values():
        if person.here:
            where = f"its turn is {person.turn.state}"
            world.blame("hang", person.name, f"has not left its block long after closing: {where}")


def _patience(world: World) -> float:
    """Within how many seconds of the closing everybody has left."""
    budget = world.probe.budget
    shields = sum(person.step.lasts for person in world.people.values())
    settled_within = budget.cancel_within + 2 * budget.kill_within
    # Twice: who comes while the others leave is stopped only after that.
    return 2 * settled_within + shields + 1.0 + world.tolerance
