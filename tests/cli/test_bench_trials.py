"""How stops are taken and judged, on a runner and a target that are a few lines each."""

from __future__ import annotations

from collections.abc import Sequence

import attrs
import pytest
import trio

from turnstop.cli.bench.model import Moment, Outcome, Work
from turnstop.cli.bench.ours import consent
from turnstop.cli.bench.trials import NO_END, SETTLES_WITHIN, Trials
from turnstop.cli.bench.verdicts import WATCH


@attrs.define(eq=False)
class FakeTarget:
    """A turn ends `ends_after` seconds after its release; nothing of it is seen."""

    races_within: float | None = 0.0
    ends_after: float = 0.2
    wrong: dict[str, list[str]] = attrs.field(factory=dict)
    told: list[str] = attrs.field(factory=list)
    released: dict[str, trio.Event] = attrs.field(factory=dict)
    released_at: dict[str, float] = attrs.field(factory=dict)

    def prompt(self, moment: Moment | None) -> tuple[str, str]:
        token = f"{moment}-{len(self.told)}"
        self.told.append(token)
        self.released[token] = trio.Event()
        return token, token

    async def reached(self, token: str, moment: Moment) -> None:
        await trio.lowlevel.checkpoint()

    def finish(self, token: str) -> None:
        self.released[token].set()
        self.released_at[token] = trio.current_time()

    def work(self, token: str) -> Sequence[Work]:
        return ()

    def faults(self, token: str) -> Sequence[str]:
        return self.wrong.get(token.partition("-")[0], [])

    def sweep(self, token: str) -> None:
        pass


@attrs.define(eq=False)
class FakeRun:
    token: str
    grants: bool
    target: FakeTarget
    deaf: bool
    asking_after: float
    asked: trio.Event = attrs.field(factory=trio.Event)
    asked_at: float | None = None
    over: trio.Event = attrs.field(factory=trio.Event)

    async def asks(self) -> None:
        await trio.sleep(self.asking_after)

    async def stop(self) -> None:
        self.asked_at = trio.current_time()
        if not self.deaf:
            self.asked.set()

    async def settled(self) -> Outcome:
        if self.token.startswith("None"):
            return Outcome(ending="FINISHED", gone=True, settled_at=trio.current_time())
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._finish, nursery.cancel_scope)
            await self.asked.wait()
            nursery.cancel_scope.cancel()
        ending = "STOPPED" if self.asked.is_set() else "FINISHED"
        now = trio.current_time()
        return Outcome(ending=ending, gone=True, asked_at=self.asked_at, settled_at=now)

    async def _finish(self, scope: trio.CancelScope) -> None:
        await self.target.released[self.token].wait()
        await trio.sleep(self.target.ends_after)
        scope.cancel()

    async def admitted(self) -> float:
        return trio.current_time()


@attrs.define(eq=False)
class FakeRunner:
    target: FakeTarget
    deaf: bool = False
    asking_after: float = 3.0
    rooms: list[str] = attrs.field(factory=list)
    runs: list[FakeRun] = attrs.field(factory=list)
    discarded: list[str] = attrs.field(factory=list)

    async def begin(
        self, room: str, content: str, stop_after: float | None = None, *, grants: bool = True
    ) -> FakeRun:
        self.rooms.append(room)
        run = FakeRun(content, grants, self.target, self.deaf, self.asking_after)
        self.runs.append(run)
        return run

    async def discard(self, room: str) -> None:
        self.discarded.append(room)


async def test_rooms_are_used_again_and_no_more_are_opened_than_may_be(
    autojump_clock: trio.testing.MockClock,
) -> None:
    runner = FakeRunner(target := FakeTarget())
    trials = Trials(target, {"turnstop": runner}, lambda: None, rooms=2)
    samples = await trials.take("running", 6)
    assert [sample.lost for sample in samples] == [()] * 6
    assert len(set(runner.rooms)) == 2
    # Two at once, and each is watched before it is free again.
    assert trio.current_time() == pytest.approx(3 * WATCH)


async def test_a_stop_that_nobody_settles_is_lost_and_its_room_with_it(
    autojump_clock: trio.testing.MockClock,
) -> None:
    runner = FakeRunner(target := FakeTarget(), deaf=True)
    trials = Trials(target, {"raw": runner}, lambda: None, rooms=1)
    samples = await trials.take("running", 2)
    assert [sample.outcome.ending for sample in samples] == [NO_END] * 2
    assert samples[0].lost == (f"not settled within {SETTLES_WITHIN:.0f} s",)
    assert runner.discarded == ["raw-1", "raw-2"]


async def test_an_invalid_history_is_lost(autojump_clock: trio.testing.MockClock) -> None:
    target = FakeTarget(wrong={"None": ["a call without its result"]})
    runner = FakeRunner(target)
    (sample,) = await Trials(target, {"turnstop": runner}, lambda: None).take("running", 1)
    assert sample.lost == ("an invalid history: a call without its result",)
    assert runner.discarded == ["turnstop-1"]


async def test_a_permission_is_waited_for_and_left_open(
    autojump_clock: trio.testing.MockClock,
) -> None:
    runner = FakeRunner(target := FakeTarget())
    await Trials(target, {"turnstop": runner}, lambda: None).take("permission", 1)
    asking = next(run for run in runner.runs if run.token.startswith("permission"))
    assert asking.asked_at == pytest.approx(runner.asking_after)
    assert [run.grants for run in runner.runs] == [run is not asking for run in runner.runs]


async def test_finishing_falls_within_the_time_that_the_turn_takes_to_its_end(
    autojump_clock: trio.testing.MockClock,
) -> None:
    target = FakeTarget(races_within=None, ends_after=0.5)
    runner = FakeRunner(target)
    samples = await Trials(target, {"turnstop": runner}, lambda: None).take("finishing", 20)
    released = [run for run in runner.runs if run.token.startswith("finishing")]
    assert sum(run.asked_at is None for run in released) == 5  # to learn what it takes
    assert {sample.outcome.ending for sample in samples} == {"STOPPED"}
    delays = [
        run.asked_at - target.released_at[run.token] for run in released if run.asked_at is not None
    ]
    assert min(delays) < 0.2
    assert 0.4 < max(delays) <= 0.5


@pytest.mark.parametrize(
    ("choices", "chosen"),
    [
        (("decline", "accept"), "accept"),
        (("allow_always", "allow_once", "reject_once"), "allow_once"),
        (("proceed_always", "proceed_once", "cancel"), "proceed_once"),
        (("always", "once", "reject"), "once"),
        (("deny", "allow"), "allow"),
        (("approved", "abort"), "approved"),
    ],
)
def test_consent_is_the_least_that_lets_it_go_on(choices: tuple[str, ...], chosen: str) -> None:
    assert consent(choices) == chosen
