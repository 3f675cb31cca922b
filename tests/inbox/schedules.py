"""Random messages and controls: the script of one run, how it is played, and what must hold.

    python tests/inbox/schedules.py 10000 [seed]

A step is a tuple: its name, and what it needs. Time is virtual; `passes` are passes of Trio's
scheduler, so that steps meet in the middle of what the inbox does.
"""

from __future__ import annotations

import logging
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn
from unittest import mock

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parent.parent))
    __package__ = "inbox"

import attrs
import trio
from hypothesis import HealthCheck, Phase, seed, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    rule,
    run_state_machine_as_test,
)
from kernel.backend import COMPLETED, FAILED, Act, Recorder, ending, passes, settle
from trio.testing import MockClock

from turnstop import Applied, Control, ControlKind, Delivery, Ending, Inbox, Message, Turn
from turnstop.feeds import MemoryFeed

from .world import INTERRUPT, PLAY, STOP, Tap, World, serving

ROOMS = ("a", "b", "c")
BROKEN = ("receive", "next", "claim", "release", "acknowledge", "fail", "applied")
PACED = ("next", "claim", "applied")
PACES = (0.0, 0.0, 0.1, 0.3, 0.7, 1.0)
TERMINAL = {"acknowledge", "fail"}


@attrs.frozen
class Setting:
    """How a run is set up.

    Attributes:
        paced: calls of the feed take their time before they are what they are, and behind that:
            each for itself, by chance, from this seed.
    """

    cancel: str = "at once"
    starts_in: float = 0.0
    hydrates_in: float = 0.0
    turns: int = 1
    after: float = 0.0
    raises: str = "never"
    attempts: int = 1
    at_once: int = 32
    within: float = float("inf")
    retire_after: float | None = None
    probe_every: float = 60.0
    paced: int | None = None

    def backend(self) -> Recorder:
        acts = {
            "at once": ending(),
            "late": ending(takes=0.5),
            "too late": ending(COMPLETED),
            "at last": Act(takes=1e6),
        }
        return Recorder(start=Act(takes=self.starts_in), cancel=acts[self.cancel])


@attrs.define(eq=False)
class Try:
    """What one call of the handler came to.

    Attributes:
        block: the turn whose block is open.
        entered: turns whose blocks were.
        returned, raised: how it ended; neither: it was cut, or has not ended.
        shut: what cut it was the end of the inbox, whatever it raised then.
        racing: what of `entered` a first control had to race against begins here.
    """

    block: Turn | None = None
    entered: list[Turn] = attrs.field(factory=list)
    returned: bool = False
    raised: bool = False
    shut: bool = False
    racing: int | None = None

    def race(self) -> None:
        if self.racing is None:
            self.racing = len(self.entered) - (self.block is not None)

    @property
    def is_done(self) -> bool:
        """The work was done, whatever was pressed."""
        raced = [] if self.racing is None else self.entered[self.racing :]
        if raced and not self.raised:
            return raced[-1].ending is Ending.FINISHED
        return self.returned


class Ledger(World):
    """A world that notes what happens, and raises what must not."""

    def __init__(self, setting: Setting) -> None:
        super().__init__(setting.backend(), Tap(MemoryFeed(attempts=setting.attempts)))
        self.setting = setting
        self.posted: dict[str, list[str]] = {room: [] for room in ROOMS}
        self.made: dict[str, list[str]] = {room: [] for room in ROOMS}
        self.over: dict[str, str] = {}
        self.begun: dict[str, list[str]] = {room: [] for room in ROOMS}
        self.paused: set[str] = set()
        self.stopped: set[str] = set()
        self.chance = random.Random(setting.paced)
        self.decided: dict[Delivery, ControlKind] = {}
        self.tries: dict[Delivery, Try] = {}
        self.failures: dict[str, set[Delivery | None]] = {}
        self.pressed: list[Control] = []
        self.asked: list[str] = []
        self.shutting = False
        self.faults: list[AssertionError] = []
        self._attach()

    # What it overhears.

    def _attach(self) -> None:
        if self.setting.paced is not None:
            for name in PACED:
                self.feed.levers[name] = self._pace
        for name in ("acknowledge", "fail", "release"):
            self.feed.levers[name] = self._hear(name)

    async def _pace(self, call: Any, *args: Any) -> Any:
        await trio.sleep(self.chance.choice(PACES))
        found = await call(*args)
        await trio.sleep(self.chance.choice(PACES))
        return found

    def _hear(self, name: str) -> Any:
        async def heard(call: Any, message: Message, *more: Any) -> None:
            try:
                self.judge(name, message)
            except AssertionError as fault:
                # The inbox would only try again.
                self.faults.append(fault)
            await call(message, *more)
            if name in TERMINAL and message.id not in {m.id for m in self._unfinished()}:
                self.over.setdefault(message.id, name)

        return heard

    def _unfinished(self) -> list[Message]:
        return [message for room in ROOMS for message in self.feed.unfinished(room)]

    def judge(self, name: str, message: Message) -> None:
        """What the feed is told agrees with what was pressed and with what the handler did."""
        served = self.inbox._served.get(message.room)
        delivery = None if served is None else served.delivery
        tried = Try() if delivery is None else self.tries.get(delivery, Try())
        decided = None if delivery is None else self.decided.get(delivery)
        told = f"the feed was told {name} of {message.id}: {decided}, {tried}"
        if decided is None:
            may = {"acknowledge"} if tried.returned else {"fail"}
            if not (tried.returned or tried.raised or self.setting.within < float("inf")):
                may.clear()
        elif tried.is_done:
            may = {"acknowledge"}
        else:
            may = {"release"} if decided is STOP else {"acknowledge"}
        if self.shutting and decided is not INTERRUPT:
            may = {"release"} if tried.shut else {*may, "release"}
        assert name in may, told
        if name == "fail":
            self.failures.setdefault(message.id, set()).add(delivery)

    async def handle(self, delivery: Delivery) -> None:
        room, name = delivery.room, delivery.message.id
        try:
            self.check_begin(room, name, delivery)
        except AssertionError as fault:
            self.faults.append(fault)
        tried = self.tries[delivery] = Try()
        try:
            async with self.handling(delivery):
                await self._work(delivery, tried)
            if self.setting.raises == "at first" and self.begun[room].count(name) == 1:
                raise ValueError
        except BaseException as error:
            tried.block, tried.raised = None, isinstance(error, Exception)
            tried.shut = self.shutting and not tried.raised
            if isinstance(error, trio.Cancelled) and self.setting.raises == "when cut":
                tried.raised = True
                self._complain()
            raise
        tried.returned = True

    @staticmethod
    def _complain() -> NoReturn:
        raise ValueError

    async def _work(self, delivery: Delivery, tried: Try) -> None:
        for _ in range(self.setting.turns):
            tried.block = delivery.turn()
            tried.entered.append(tried.block)
            async with tried.block as turn:
                async for _event in turn:
                    pass
            tried.block = None
            if self.setting.after:
                await trio.sleep(self.setting.after)

    def check_begin(self, room: str, name: str, delivery: Delivery) -> None:
        assert room not in self.paused, f"{name} was begun in a paused room"
        failed = len(self.failures.get(name, ()))
        assert delivery.message.attempt <= failed, f"{name} failed {failed} times: {delivery}"
        assert name not in self.over, f"{name} was begun, and is over"
        mine = {*self.posted[room], *self.made[room]}
        assert not mine & {*self.live}, f"{name} was begun beside {self.live}"
        if not delivery.message.synthetic:
            before = self.posted[room][: self.posted[room].index(name)]
            assert {*before} <= {*self.over}, f"{name} was begun before {before}"
        self.begun[room].append(name)

    def overhear(self, original: Callable[[Inbox, Control], Applied]) -> Any:
        """What takes the place of `Inbox.control`."""

        def control(inbox: Inbox, control: Control) -> Applied:
            self.check_paused(inbox)
            known = {*inbox._served, *inbox._retired}
            if control.room is None and control.kind is INTERRUPT:
                known -= {*inbox._retired}
            reached = {room for room in known if control.room in (None, room)}
            for room in reached:
                self._decide(inbox, room, control)
            applied = original(inbox, control)
            self.check_paused(inbox)
            self.pressed.append(control)
            if control.turn_id is None and not applied.repeated and {*applied.rooms} != reached:
                self.faults.append(AssertionError(f"{control} reached only {applied}"))
            self.asked += applied.turn_ids
            return applied

        return control

    def _decide(self, inbox: Inbox, room: str, control: Control) -> None:
        if control.kind is PLAY:
            self.paused.discard(room)
            if control.key not in inbox._applied:
                self.stopped.discard(room)
            return
        if control.key in inbox._applied:
            return
        served = inbox._served.get(room)
        delivery = None if served is None else served.delivery
        if control.turn_id is not None and (
            delivery is None or control.turn_id not in delivery.turn_ids
        ):
            return
        if delivery is not None and delivery._open:
            self.decided[delivery] = control.kind
            if delivery in self.tries:
                self.tries[delivery].race()
        if control.kind is STOP:
            self.paused.add(room)
            self.stopped.add(room)

    def check_paused(self, inbox: Inbox) -> None:
        """No room is paused but by a STOP that no PLAY came behind."""
        found = {room for room in ROOMS if inbox.is_paused(room)} - self.stopped
        if found:
            self.faults.append(AssertionError(f"paused, though they were resumed: {found}"))

    # What it does.

    async def play(self, steps: list[tuple[Any, ...]]) -> None:
        position: int | None = 0
        while position is not None:
            position = await self._serve(steps, position)
        self.check_end()

    async def _serve(self, steps: list[tuple[Any, ...]], position: int) -> int | None:
        self.shutting = False
        # What it was not told in time, it does not know.
        standings = await self.feed.feed.rooms()
        self.stopped = {room for room, standing in standings.items() if standing.paused}
        hydrate = self.setting.hydrates_in

        async def hydration(delivery: Delivery) -> None:
            await trio.sleep(hydrate)

        async with serving(
            world=self,
            hydrate=hydration if hydrate else None,
            at_once=self.setting.at_once,
            handle_within=self.setting.within,
            retire_after=self.setting.retire_after,
            probe_every=self.setting.probe_every,
            # What a feed is not told in time, it does not know: that is judged elsewhere.
            finish_within=2.0 if self.setting.paced is None else 1000.0,
        ):
            for number, (name, *more) in enumerate(steps[position:], position + 1):
                if name == "restart":
                    self._mend()
                    self.shutting = True
                    return number
                await getattr(self, f"do_{name}")(*more)
                self.check_paused(self.inbox)
            await self._drain()
            self.shutting = True
        return None

    def _mend(self) -> None:
        self.feed.levers.clear()
        self._attach()

    async def do_post(self, room: str) -> None:
        name = f"{room}{len(self.posted[room])}"
        self.posted[room].append(name)
        self.feed.post(room, "work", id=name)

    async def do_make(self, room: str) -> None:
        name = f"{room}-made-{len(self.made[room])}"
        self.made[room].append(name)
        self.inbox.synthesize(room, "work", id=name)

    async def do_press(self, kind: str, room: str | None, id: str | None, named: bool) -> None:
        control = self._control(kind, room, id, named)
        self.inbox.control(control)

    async def do_send(self, kind: str, room: str | None, id: str | None, named: bool) -> None:
        control = self._control(kind, room, id, named)
        if control.kind is PLAY:
            # From here on a probe may find the room resumed.
            self.paused -= {*ROOMS} if room is None else {room}
        self.feed.control(control)

    def _control(self, kind: str, room: str | None, id: str | None, named: bool) -> Control:
        turn_id = self.backend.remotes[-1].turn_id if named and self.backend.remotes else None
        return Control(ControlKind(kind), room, turn_id, id)

    async def do_finish(self, how: str) -> None:
        for remote in self.backend.remotes[-1:]:
            ends = {"well": COMPLETED, "badly": FAILED, "lost": OSError("lost")}
            remote.finish(ends[how])

    async def do_lull(self) -> None:
        """All that can be done is done, and some time goes by."""
        for _ in range(4):
            for remote in self.backend.remotes:
                remote.finish(COMPLETED)
            await trio.sleep(3)

    async def do_drop(self, room: str) -> None:
        self.inbox.drop(room)

    async def do_wait(self, seconds: float) -> None:
        await trio.sleep(seconds)

    async def do_pass(self, count: int) -> None:
        await passes(count)

    async def do_break(self, call: str, times: int) -> None:
        self._after(call, lambda: self.feed.break_(call, times))

    async def do_slow(self, call: str, seconds: float, late: bool) -> None:
        slow = self.feed.answer_late if late else self.feed.slow
        self._after(call, lambda: slow(call, seconds))

    def _after(self, call: str, change: Any) -> None:
        """A lever behind the ear, where there is one."""
        ear = self.feed.levers.get(call)
        change()
        if ear is not None:
            lever = self.feed.levers[call]

            async def both(real: Any, *args: Any) -> Any:
                async def late(*inner: Any) -> Any:
                    return await lever(real, *inner)

                return await ear(late, *args)

            self.feed.levers[call] = both

    async def _drain(self) -> None:
        """Everything is resumed and finishes, whatever it takes."""
        self._mend()
        await trio.sleep(200)
        self.check_paused(self.inbox)
        self.check_waiting()
        for _ in range(2000):
            self.inbox.control(Control(PLAY))
            await settle()
            for remote in self.backend.remotes:
                remote.finish(COMPLETED)
            await trio.sleep(10)
            waiting = any(room.synthetic or room.delivery for room in self.inbox._served.values())
            if not self._unfinished() and not waiting:
                return
        raise AssertionError(f"never finished: {self._unfinished()}, {self.inbox._served}")

    def check_waiting(self) -> None:
        """Nothing waits in a room that is neither paused nor at work, though nobody probes."""
        inbox = self.inbox
        waiting = {message.room for message in self._unfinished()}
        idle = {
            room
            for room in waiting
            if not inbox.is_paused(room) and inbox._served[room]._sleeping is not None
        }
        assert not idle, f"nobody looks after {idle}: {inbox._served}"

    def check_end(self) -> None:
        if self.faults:
            raise self.faults[0]
        for name, last in self.over.items():
            failed = len(self.failures.get(name, ()))
            assert last != "fail" or failed >= self.setting.attempts, f"{name} was given up"
        for room in ROOMS:
            assert {*self.posted[room]} <= {*self.over}, f"lost of {room}: {self.over}"
            first = list(dict.fromkeys(self.begun[room]))
            for kind in (self.posted[room], self.made[room]):
                order = [name for name in first if name in kind]
                assert order == [name for name in kind if name in order], f"order: {order}"
        told = [kind for _, kind in self.feed.told("applied")]
        wanted = iter(told)
        assert all(control.kind.value in wanted for control in self.pressed), "not told of all"
        found = {one.turn_id: one for one in self.settlements}
        for turn_id in self.asked:
            request, how = found[turn_id].request, found[turn_id].ending
            assert request is not None or how in (Ending.FINISHED, Ending.FAILED)


def play(setting: Setting, steps: list[tuple[Any, ...]]) -> None:
    """Play one script in virtual time."""
    ledger = Ledger(setting)
    with mock.patch.object(Inbox, "control", ledger.overhear(Inbox.control)):
        trio.run(ledger.play, steps, clock=MockClock(autojump_threshold=0))


class Schedules(RuleBasedStateMachine):
    """Writes a script, step by step, and plays it at the end."""

    def __init__(self) -> None:
        super().__init__()
        self.setting = Setting()
        self.steps: list[tuple[Any, ...]] = []

    @initialize(
        setting=st.builds(
            Setting,
            cancel=st.sampled_from(["at once", "late", "too late", "at last"]),
            starts_in=st.sampled_from([0.0, 0.3]),
            hydrates_in=st.sampled_from([0.0, 0.2]),
            turns=st.sampled_from([1, 2]),
            after=st.sampled_from([0.0, 0.3]),
            raises=st.sampled_from(["never", "never", "at first", "when cut"]),
            attempts=st.sampled_from([1, 3]),
            at_once=st.sampled_from([32, 1]),
            within=st.sampled_from([float("inf"), 20.0]),
            retire_after=st.sampled_from([None, 5.0]),
            probe_every=st.sampled_from([60.0, 1e6]),
            paced=st.none() | st.integers(0, 99),
        )
    )
    def set_up(self, setting: Setting) -> None:
        self.setting = setting

    @rule(room=st.sampled_from(ROOMS))
    def post(self, room: str) -> None:
        self.steps.append(("post", room))

    @rule(room=st.sampled_from(ROOMS))
    def post_once_more(self, room: str) -> None:
        self.steps.append(("post", room))

    @rule(room=st.sampled_from(ROOMS))
    def make(self, room: str) -> None:
        self.steps.append(("make", room))

    @rule(
        way=st.sampled_from(["press", "send"]),
        kind=st.sampled_from(["stop", "interrupt", "play"]),
        room=st.sampled_from([*ROOMS, *ROOMS, None]),
        id=st.sampled_from([None, None, "x", "y"]),
        named=st.sampled_from([False, False, True]),
    )
    def control(self, way: str, kind: str, room: str | None, id: str | None, named: bool) -> None:
        self.steps.append((way, kind, room, id, named and kind != "play"))

    @rule(how=st.sampled_from(["well", "well", "badly", "lost"]))
    def finish(self, how: str) -> None:
        self.steps.append(("finish", how))

    @rule(room=st.sampled_from(ROOMS))
    def work(self, room: str) -> None:
        self.steps += [("post", room), ("wait", 1.0)]

    @rule()
    def lull(self) -> None:
        self.steps.append(("lull",))

    @rule(room=st.sampled_from(ROOMS))
    def drop(self, room: str) -> None:
        self.steps += [("lull",), ("drop", room)]

    @rule(seconds=st.sampled_from([0.1, 0.25, 0.5, 3.0, 10.0, 70.0]))
    def wait(self, seconds: float) -> None:
        self.steps.append(("wait", seconds))

    @rule(count=st.integers(1, 8))
    def pass_(self, count: int) -> None:
        self.steps.append(("pass", count))

    @rule(
        call=st.sampled_from(BROKEN),
        times=st.integers(1, 3),
    )
    def break_(self, call: str, times: int) -> None:
        self.steps.append(("break", call, times))

    @rule(
        call=st.sampled_from(BROKEN),
        seconds=st.sampled_from([0.1, 2.0]),
        late=st.booleans(),
    )
    def slow(self, call: str, seconds: float, late: bool) -> None:
        self.steps.append(("slow", call, seconds, late and call != "receive"))

    @rule()
    def restart(self) -> None:
        self.steps.append(("restart",))

    def teardown(self) -> None:
        play(self.setting, self.steps)


def main() -> None:
    """Play as many schedules as the first argument says, a thousand with each seed."""
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    logging.disable()
    for number, begin in enumerate(range(0, count, 1000)):
        _play_some(min(count - begin, 1000), first + number)
        print(f"{min(count, begin + 1000)} schedules, seed {first + number}", flush=True)
    print(f"{count} schedules: no control lost, no message lost, none twice at once, order kept")


def _play_some(count: int, number: int) -> None:
    how = settings(
        max_examples=count,
        stateful_step_count=40,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        phases=[Phase.generate, Phase.shrink],
    )
    run_state_machine_as_test(seed(number)(Schedules), settings=how)


if __name__ == "__main__":
    main()
