"""Seeded schedules: green over honest probes, and each planted fault is found and shrunk."""

from __future__ import annotations

import json
import sys
import time
from collections import Counter
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from turnstop._admission import Door
from turnstop._gate import Gate
from turnstop._records import StopRequest, StopVerdict
from turnstop._turn import Turn
from turnstop._workers import Workers
from turnstop.testing import Probe, Work
from turnstop.testing.inventory import Missing, load_probes
from turnstop.testing.probes.codex import CodexProbe
from turnstop.testing.probes.local import LocalProbe
from turnstop.testing.recording.codex import RecordingCodex
from turnstop.testing.saboteurs import SABOTEURS
from turnstop.testing.schedules import (
    BODIES,
    CLOSINGS,
    Schedule,
    ScheduleBroken,
    Step,
    check_schedules,
    draw,
    play,
    replay,
    shrink,
)
from turnstop.testing.schedules.__main__ import main
from turnstop.testing.schedules._shrink import shrink_played

LOCAL = "turnstop.testing.probes.local:LocalProbe"


def probes_of(name: str, *seeds: int) -> list[Any]:
    try:
        return list(zip(load_probes(name), seeds, strict=True))
    except Missing as missing:
        return [pytest.param(None, 0, id=name, marks=pytest.mark.skip(reason=str(missing)))]


PROBES = [
    (LocalProbe, 80),
    (CodexProbe, 60),
    *probes_of("a2a", 40, 15, 15),
    *probes_of("letta", 40, 15),
    *probes_of("copilot", 40),
    *probes_of("opencode", 40),
    *probes_of("parlant", 40),
]


@pytest.mark.parametrize(("probe", "seeds"), PROBES, ids=lambda one: getattr(one, "name", ""))
def test_probes_keep_every_promise(probe: type[Probe], seeds: int) -> None:
    check_schedules(probe, range(seeds))


def test_a_seed_decides_everything() -> None:
    for seed in range(8):
        first, again = play(CodexProbe, seed), play(CodexProbe, seed)
        assert first.lines == again.lines
        assert first.schedule == again.schedule


def test_seeds_differ() -> None:
    assert len({play(LocalProbe, seed).trace for seed in range(10)}) == 10


def test_what_is_printed_can_be_played() -> None:
    for seed in range(20):
        schedule = draw(seed, CodexProbe())
        assert eval(repr(schedule), {"Schedule": Schedule, "Step": Step}) == schedule


def test_any_step_can_be_left_out() -> None:
    for seed in range(12):
        steps = draw(seed, CodexProbe()).steps
        for part in (steps[::2], steps[1::2], ()):
            assert replay(CodexProbe, Schedule(seed, part)).faults == ()


def test_a_probe_without_the_lever_leaves_the_step_out() -> None:
    steps = draw(5, CodexProbe()).steps
    levers = (Step(0.0, "die"), Step(0.0, "refuse_starts"), Step(0.0, "leave", "t01"))
    assert replay(LocalProbe, Schedule(5, steps[:2] + levers + steps[2:])).faults == ()


ENTER = Step(0.0, "enter", "t01", room="kitchen", how="read")


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (Step(0.0, "stopp"), "no step 'stopp'"),
        (Step(0.0, "enter", "t02", room="kitchen", how="reed"), "'reed'"),
        (Step(0.0, "close", how="slam"), "'slam'"),
        (ENTER, "'t01' is entered twice"),
    ],
)
def test_what_cannot_be_played_is_said_by_name(step: Step, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        replay(LocalProbe, Schedule(0, (ENTER, step)))


def test_schedules_meet_what_they_are_about() -> None:
    met: Counter[str] = Counter()
    for seed in range(100):
        played = play(CodexProbe, seed)
        met.update(played.endings)
        met.update(step.what for step in played.schedule.steps)
        met.update(step.how for step in played.schedule.steps)
        met.update(what.partition(" ")[0] for _, who, what in played.lines if who == "far end")
        met["shut out"] += any("RoomsClosed" in what for _, _, what in played.lines)
        met["outside"] += not played.schedule.inside
    wanted = [*BODIES, *CLOSINGS, "outside", "enter", "stop", "stop_room", "stop_all", "cancel"]
    wanted += ["retire", "answer", "say", "ask", "finish", "fail", "say_end_again", "leave", "die"]
    wanted += ["cut", "babble", "hold_starts", "release_starts", "refuse_starts", "hold_cancels"]
    wanted += ["refuse_cancels", "ignore_cancels", "hold_acknowledgements", "end_late"]
    wanted += ["finished", "stopped", "unconfirmed", "unstarted", "failed"]
    assert [name for name in wanted if not met[name]] == []


FOUND = [
    # The fault, and the far end that shows it soon. What takes more seeds is left out.
    ("CancelDoesNothing", LocalProbe),
    ("CancelIsSentTwice", CodexProbe),
    ("CancelWaits", LocalProbe),
    ("CancelIsOfEverybody", CodexProbe),
    ("CancelSwallowsErrors", CodexProbe),
    ("AskingIsTheEnd", LocalProbe),
    ("AcknowledgementIsTheEnd", CodexProbe),
    ("CompletedIsCancelled", LocalProbe),
    ("FailedIsCompleted", LocalProbe),
    ("LeftoversAreNotTold", CodexProbe),
    ("WordsComeTwice", LocalProbe),
    ("SlowStartIsRepeated", CodexProbe),
    ("SessionIsDropped", LocalProbe),
    ("RefusalIsALoss", CodexProbe),
    ("the_stop_is_not_told", LocalProbe),
    ("the_stop_is_told_when_the_body_is_out", LocalProbe),
    ("an_early_stop_settles", CodexProbe),
    ("a_stopped_waiter_begins", LocalProbe),
    ("the_queue_hears_no_stop", LocalProbe),
    ("leaving_does_not_wait", LocalProbe),
    ("nobody_waits_for_a_room", LocalProbe),
    ("a_stop_opens_the_room", CodexProbe),
    ("a_stop_has_no_bound", LocalProbe),
    ("half_the_bound_is_enough", LocalProbe),
    ("observers_are_told_twice", LocalProbe),
    ("failures_are_not_raised", LocalProbe),
    ("failures_are_raised_again", LocalProbe),
    ("a_stop_leaves_the_gate_open", CodexProbe),
    ("a_stop_is_of_every_room", LocalProbe),
    ("reasons_are_not_kept", LocalProbe),
    ("SilenceIsConsent", CodexProbe),
    ("EveryAnswerIsConsent", CodexProbe),
    ("WordsWaitForStops", CodexProbe),
    ("StartsWaitForStops", CodexProbe),
    ("LossIsARefusal", CodexProbe),
    ("every_stop_is_of_the_whole_room", CodexProbe),
    ("receipts_wait_for_one", CodexProbe),
    ("nobody_notes_when_it_ended", CodexProbe),
]


@pytest.mark.parametrize(("name", "probe"), FOUND)
def test_a_planted_fault_is_found(name: str, probe: type[Probe]) -> None:
    with SABOTEURS[name].at_work(probe) as make_probe:
        assert any(play(make_probe, seed).faults for seed in range(100))


LEFT = Schedule(
    0,
    (
        Step(0.0, "enter", "t01", room="kitchen", how="read"),
        Step(0.0, "enter", "t02", room="attic", how="read"),
        Step(0.5, "leave", "t01"),
        Step(0.5, "leave", "t02"),
        Step(0.5, "stop", "t01"),
        Step(0.5, "say", "t02"),
    ),
)


def test_a_sweep_of_somebody_elses_is_found() -> None:
    with SABOTEURS["SweepIsOfEverybody"].at_work(CodexProbe) as make_probe:
        (fault,) = replay(make_probe, LEFT).faults
    assert (fault.promise, fault.who) == ("leftovers", "t02")
    assert replay(CodexProbe, LEFT).faults == ()


def test_what_is_left_has_a_name_of_its_own() -> None:
    class OneName(CodexProbe):
        @property
        def alive(self) -> list[str]:
            return ["child" for _ in super().alive[:1]]

    fault, *_ = replay(OneName, LEFT).faults
    assert (fault.promise, fault.who) == ("lever", "leave of t02")


async def _hand_over_late(self: Door, guest: Any, **more: Any) -> None:
    await _wait(self, guest, **more)
    with trio.CancelScope(shield=True):
        await trio.sleep(0.3)


def _hand_over_to_the_last(self: Door) -> None:
    if self.waiting:
        self.waiting.move_to_end(next(reversed(self.waiting)), last=False)
    _hand_over(self)


async def _leave_late(self: Turn, *exc: Any) -> bool:
    try:
        return await _aexit(self, *exc)
    finally:
        with trio.CancelScope(shield=True):
            await trio.sleep(0.3)


def _stop_no_body(self: Turn, request: StopRequest) -> StopVerdict:
    body, self._body = self._body, trio.CancelScope()
    verdict = _ask(self, request)
    self._body = body
    return verdict


_wait, _hand_over, _aexit, _ask = Door.wait, Door.hand_over, Turn.__aexit__, Turn.ask

OWN: list[tuple[type, str, Any, str]] = [
    (Door, "wait", _hand_over_late, "handover"),
    (Door, "hand_over", _hand_over_to_the_last, "order"),
    (Turn, "__aexit__", _leave_late, "block"),
    (Turn, "ask", _stop_no_body, "body"),
    (Gate, "_wake", lambda gate: None, "reader"),
    (Workers, "dismiss", lambda workers: None, "hang"),
]


@pytest.mark.parametrize(("owner", "name", "broken", "promise"), OWN)
def test_what_no_saboteur_breaks_is_found_too(
    owner: type, name: str, broken: Any, promise: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, broken)
    found = {fault.promise for seed in range(60) for fault in play(LocalProbe, seed).faults}
    assert promise in found


def test_a_fault_is_shrunk_to_a_handful_of_steps() -> None:
    with SABOTEURS["nobody_waits_for_a_room"].at_work(LocalProbe) as make_probe:
        with pytest.raises(ScheduleBroken) as caught:
            check_schedules(make_probe)
        error = caught.value
        assert error.shrunk is not None
        small, seed = error.shrunk.schedule, error.played.schedule.seed
        assert shrink(make_probe, seed) == small
        assert len(small.steps) <= 4 < len(error.played.schedule.steps)
        promises = {fault.promise for fault in replay(make_probe, small).faults}
        assert error.played.faults[0].promise in promises
    assert replay(LocalProbe, small).faults == ()


def test_what_broke_is_said_with_all_that_helps() -> None:
    with SABOTEURS["observers_are_told_twice"].at_work(LocalProbe) as make_probe:
        with pytest.raises(AssertionError) as caught:
            check_schedules(make_probe, [3])
    text = str(caught.value)
    assert text.startswith("seed 3 breaks a promise:\n  settled: ")
    assert "observers were told 2 times" in text
    assert "\nSchedule(\n    seed=3,\n" in text
    assert f"python -m turnstop.testing.schedules {LOCAL} --seed 3 -v" in text
    assert " is settled: " in text


def test_what_only_a_function_makes_has_no_command() -> None:
    with SABOTEURS["CancelDoesNothing"].at_work(LocalProbe) as make_probe:
        with pytest.raises(ScheduleBroken) as caught:
            check_schedules(partial(make_probe))
    assert "python -m" not in str(caught.value)


def test_shrinking_says_what_it_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "hypothesis", None)
    with SABOTEURS["CancelDoesNothing"].at_work(LocalProbe) as make_probe:
        with pytest.raises(ImportError, match=r"pip install 'turnstop\[testing\]'"):
            shrink(make_probe, 1)
        with pytest.raises(ScheduleBroken, match=r"pip install 'turnstop\[testing\]'") as caught:
            check_schedules(make_probe)
    assert caught.value.shrunk is None


def test_what_breaks_nothing_is_left_as_it_is() -> None:
    schedule = draw(1, LocalProbe())
    assert shrink(LocalProbe, schedule) == schedule


def test_the_number_of_tries_is_bounded() -> None:
    made: list[Probe] = []

    with SABOTEURS["CancelDoesNothing"].at_work(LocalProbe) as sabotaged:

        def make_probe() -> Probe:
            made.append(sabotaged())
            return made[-1]

        shrink(make_probe, 1, tries=5)
    assert len(made) <= 7


class Unmade(LocalProbe):
    def __init__(self) -> None:
        raise KeyError("the key")


class Faulty(LocalProbe):
    """Its far end raises when it is to say something, and its levers raise or wait."""

    async def say(self, work: Work, text: str) -> None:
        self.far_end.start_soon(self.crash)

    async def crash(self) -> None:
        raise KeyError("what was said")

    async def finish(self, work: Work) -> None:
        raise KeyError(work.name)

    async def fail(self, work: Work) -> None:
        await trio.sleep_forever()

    def hold_cancels(self) -> None:
        raise KeyError("held")


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (Step(0.5, "say", "t01"), "far end: the probe's far end: raises KeyError('what was said')"),
        (Step(0.5, "finish", "t01"), "lever: finish of t01: the probe's lever finish of t01 rai"),
        (
            Step(0.5, "fail", "t01"),
            "lever: fail of t01: the probe's lever fail of t01 did not come",
        ),
        (Step(0.5, "hold_cancels"), "lever: hold_cancels: the probe's lever hold_cancels raises"),
    ],
)
def test_a_fault_of_the_probe_is_told_as_such_and_first(step: Step, says: str) -> None:
    faults = replay(Faulty, Schedule(0, (ENTER, step))).faults
    assert str(faults[0]).startswith(says)
    assert "test_schedules.py:" in faults[0].text or step.what == "fail"


def test_where_a_far_end_crashes_nothing_else_is_blamed() -> None:
    """Also where a work goes on in spite of its cancel, which keeps the rooms waiting."""

    class Crashes(Faulty):
        hold_cancels = LocalProbe.hold_cancels

    with pytest.raises(ScheduleBroken) as caught:
        check_schedules(Crashes)
    played, shrunk = caught.value.played, caught.value.shrunk
    assert shrunk is not None
    assert [fault.promise for fault in (*played.faults, *shrunk.faults)] == ["far end", "far end"]
    assert len(shrunk.schedule.steps) == 2
    text = str(caught.value)
    assert ", line " in text
    assert "site-packages" not in text


def test_what_blocks_is_told_and_not_shrunk(monkeypatch: pytest.MonkeyPatch) -> None:
    class Blocks(LocalProbe):
        async def finish(self, work: Work) -> None:
            time.sleep(60)  # noqa: ASYNC251  the fault

    monkeypatch.setattr("turnstop.testing.schedules._play.WITHIN", 0.2)
    schedule = Schedule(0, (ENTER, Step(0.5, "finish", "t01"), Step(0.0, "stop_all")))
    played = replay(Blocks, schedule)
    assert played.faults[0].promise == "blocks"
    assert "in finish: time.sleep(60)" in played.trace
    assert shrink_played(Blocks, played) is played


def test_what_was_found_is_not_lost_in_shrinking() -> None:
    made: list[Probe] = []

    def make_probe() -> Probe:
        if len(made) > 4:
            raise OSError("no such far end any more")
        made.append(sabotaged())
        return made[-1]

    with SABOTEURS["CancelDoesNothing"].at_work(LocalProbe) as sabotaged:
        with pytest.raises(ScheduleBroken) as caught:
            check_schedules(make_probe, [1])
    assert str(caught.value).startswith("seed 1 breaks a promise:")
    assert "no such far end any more" in str(caught.value)


def test_no_work_speaks_before_its_start_is_answered() -> None:
    met: Counter[str] = Counter()
    let_go: dict[Work, float] = {}

    class Watched(CodexProbe):
        def release_starts(self) -> None:
            let_go.update(dict.fromkeys(self.codex._kept_back, trio.current_time()))
            super().release_starts()

        async def say(self, work: Work, text: str) -> None:
            assert work not in self.codex._kept_back
            assert let_go.get(work, -1.0) < trio.current_time()
            met["late"] += work in let_go
            await super().say(work, text)

    check_schedules(Watched, range(150))
    assert met["late"]


class _GoneWhenOver(RecordingCodex):
    """Nothing reaches a turn that is over, as where each turn is a process."""

    async def _answered(self, frame: dict[str, Any]) -> None:
        if self._asked[frame["id"]][0].runs:
            await super()._answered(frame)


class GoneWhenOver(CodexProbe):
    def __init__(self) -> None:
        self.codex = _GoneWhenOver()


@pytest.mark.parametrize("then", ["finish", "fail", "stop", "answer"])
def test_nobody_answers_a_question_of_a_work_that_is_over(then: str) -> None:
    steps = (ENTER, Step(1.0, "ask", "t01"), Step(0.0, then, "t01"), Step(0.0, "finish", "t01"))
    for wait in (0.0, 0.5):
        given = (*steps[:2], attrs.evolve(steps[2], wait=wait), steps[3])
        for seed in range(10):
            assert replay(GoneWhenOver, Schedule(seed, given)).faults == ()


def test_a_work_that_goes_on_is_answered_by_its_stop() -> None:
    class Deaf(RecordingCodex):
        async def _answered(self, frame: dict[str, Any]) -> None:
            pass

    class DeafProbe(CodexProbe):
        def __init__(self) -> None:
            self.codex = Deaf()

    steps = (Step(0.0, "end_late", lasts=1.0), ENTER, Step(1.0, "ask", "t01"))
    faults = replay(DeafProbe, Schedule(0, (*steps, Step(0.5, "stop", "t01")))).faults
    assert [fault.promise for fault in faults] == ["asks", "asks"]


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "--seeds", "5", "--first", "2", "--json"]) == 0
    (found,) = json.loads(capsys.readouterr().out)
    assert (found["probe"], found["seeds"], found["first"]) == ("local", 5, 2)
    assert found["failed"] is None
    assert found["turns"] == sum(found["endings"].values()) > 0


def test_the_command_shows_one_seed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([LOCAL, "--seed", "4", "-v"]) == 0
    shown = capsys.readouterr()
    assert "Schedule(\n    seed=4," in shown.err
    assert "1 seeds" in shown.out
    assert "all promises kept" in shown.out


def test_the_command_fails(capsys: pytest.CaptureFixture[str]) -> None:
    with SABOTEURS["observers_are_told_twice"].at_work(LocalProbe):
        assert main([LOCAL, "--seed", "3", "--json"]) == 1
    shown = capsys.readouterr()
    (found,) = json.loads(shown.out)
    assert found["failed"]["seed"] == 3
    assert found["failed"]["faults"][0]["promise"] == "settled"
    assert found["failed"]["shrunk"].startswith("Schedule(")
    assert shown.err.startswith("seed 3 breaks a promise:")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("nobody", "there is no adapter nobody"),
        ("no_such_module:Probe", "No module named 'no_such_module'"),
        ("turnstop.testing:NoSuchProbe", "NoSuchProbe"),
        ("turnstop.testing:LEVERS", "makes nothing"),
        (f"{__name__}:Unmade", "makes nothing: it raises KeyError('the key') (in __init__, test_"),
    ],
)
def test_the_command_knows_no_such_probe(
    name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([name]) == 2
    shown = capsys.readouterr()
    assert says in shown.err
    assert shown.out == ""
