"""What is seen of a backend that has no probe, and what its factory may be."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial, partialmethod
from typing import Any

import attrs
import pytest
import trio
import trio.testing

from turnstop import BackendLost, BackendRefused, StopBudget
from turnstop.abc import Emit, End, How, Proof, Request
from turnstop.testing import OBLIGATIONS, Outcome, Report, Row, check_backend
from turnstop.testing._probe import LEVERS
from turnstop.testing._together import Together
from turnstop.testing.bare import NotABackend, bare_probe, probe_factory

SHORT = StopBudget(cancel_within=0.6, kill_within=0.1)
CANCELLED = End(How.CANCELLED)
BASIC = "stop_ends_the_work"


@attrs.define(eq=False)
class Turn:
    """Ends as it was made to, once it is told."""

    end: Any = CANCELLED
    session: object | None = None
    told: trio.Event = attrs.field(factory=trio.Event)

    async def follow(self, emit: Emit) -> End:
        await self.told.wait()
        if isinstance(self.end, Exception):
            raise self.end
        return self.end

    async def cancel(self, sent: Callable[[], None]) -> None:
        sent()
        self.told.set()


class DeafTurn(Turn):
    async def cancel(self, sent: Callable[[], None]) -> None:
        sent()


class SyncFollow(Turn):
    def follow(self, emit: Emit) -> Any:
        return CANCELLED


class SyncCancel(Turn):
    def cancel(self, sent: Callable[[], None]) -> Any:
        sent()


class Over(Turn):
    """Ends before anybody has told it."""

    async def follow(self, emit: Emit) -> End:
        self.told.set()
        return await super().follow(emit)


@attrs.define(eq=False)
class Backend:
    make: Callable[[], Any] = Turn
    requests: list[Request[Any]] = attrs.field(factory=list)

    async def start(self, request: Request[Any]) -> Any:
        self.requests.append(request)
        return self.make()


async def outcomes(factory: Any, *only: str, **options: Any) -> dict[str, Outcome]:
    report = await probe_factory(factory, only=only, budget=SHORT, **options)
    return {row.obligation.name: row.outcome for row in report.rows}


@asynccontextmanager
async def open_honest() -> AsyncGenerator[Backend, None]:
    yield Backend()


async def generate() -> AsyncGenerator[Backend, None]:
    yield Backend()


def generate_sync() -> Generator[Backend, None, None]:
    yield Backend()


async def make_honest() -> Backend:
    return Backend()


@pytest.mark.parametrize(
    "factory",
    [Backend, Backend(), lambda: Backend(), make_honest, open_honest, partial(Backend, Turn)],
    ids=["class", "backend", "function", "coroutine function", "context manager", "partial"],
)
async def test_a_factory_has_many_forms(factory: Any) -> None:
    assert await outcomes(factory, BASIC) == {BASIC: Outcome.GREEN}


async def test_what_needs_no_lever_is_run_and_the_rest_is_not() -> None:
    report = await probe_factory(lambda: Backend(partial(Turn, session="s")), budget=SHORT)
    assert [row.obligation.name for row in report.rows] == list(OBLIGATIONS)
    for row in report.rows:
        levers = [need for need in row.obligation.needs if need in LEVERS]
        if levers:
            assert row.outcome is Outcome.NOT_RUN
            assert row.text == f"takes the lever {', '.join(levers)}"
    assert len([row for row in report.rows if row.outcome is not Outcome.NOT_RUN]) >= 10


async def test_a_backend_without_conversations_is_excused_from_them() -> None:
    found = await outcomes(Backend, "retired_room_begins_anew", BASIC)
    assert found == {"retired_room_begins_anew": Outcome.EXCUSED, BASIC: Outcome.GREEN}


async def test_an_excuse_has_to_be_true() -> None:
    excuse = {"end_seen": "nobody tells"}
    deaf = await outcomes(partial(Backend, DeafTurn), BASIC, unable=excuse)
    assert deaf == {BASIC: Outcome.EXCUSED}
    assert await outcomes(Backend, BASIC, unable=excuse) == {BASIC: Outcome.RED}
    with pytest.raises(ValueError, match="neither a lever nor an ability"):
        await outcomes(Backend, BASIC, unable={"nonsense": "why"})


async def test_who_goes_on_in_a_retired_conversation_is_not_excused() -> None:
    backend = Backend(partial(Turn, session="for ever"))
    found = await outcomes(backend, "retired_room_begins_anew")
    assert found == {"retired_room_begins_anew": Outcome.RED}


async def test_what_does_not_end_is_red_and_others_are_not_waited_for() -> None:
    told: list[Row] = []
    report = await probe_factory(partial(Backend, DeafTurn), budget=SHORT, told=told.append)
    assert {row.obligation.name for row in told} == {*OBLIGATIONS}
    found = {row.obligation.name: row for row in report.rows}
    assert found[BASIC].outcome is Outcome.RED
    assert "the work did not end" in found[BASIC].text
    (observed,) = found[BASIC].observed
    assert 0.7 <= observed.settled < 2.0
    assert found["stop_is_told_once"].outcome is Outcome.GREEN
    assert "not waited for" in found["next_turn_waits"].text


@pytest.mark.parametrize(
    ("end", "ended"),
    [
        (End(How.CANCELLED), True),
        (End(How.SILENT, Proof.STREAM), True),
        (End(How.CANCELLED, Proof.CLAIMED), False),
        (BackendLost("gone", gone=True), True),
        (BackendLost("who knows"), False),
    ],
)
async def test_an_end_is_what_the_contract_says(end: Any, ended: bool) -> None:
    backend = Backend(partial(Turn, end))
    probe = bare_probe(backend)
    async with probe.open() as watched:
        turn = await watched.start(Request("kitchen", "1", "first"))
        await turn.cancel(lambda: None)
        try:
            await turn.follow(None)
        except BackendLost:
            pass
    (work,) = probe.works
    assert len(work.told_at) == 1
    assert (work.ended_at is not None) is ended


@attrs.define(eq=False)
class KilledTurn(Turn):
    killed: int = 0

    async def kill(self) -> None:
        self.killed += 1


async def lose(turn: Any) -> None:
    await turn.cancel(lambda: None)
    with pytest.raises(BackendLost):
        await turn.follow(None)


async def test_a_kill_ends_only_what_is_not_followed_any_more() -> None:
    turns = [KilledTurn(BackendLost("broken")) for _ in range(2)]
    probe = bare_probe(Backend(iter(turns).__next__))
    async with probe.open() as watched:
        first = await watched.start(Request("kitchen", "1", "first"))
        await first.kill()
        assert probe.works[0].runs
        await lose(first)
        second = await watched.start(Request("kitchen", "2", "second"))
        await lose(second)
        assert probe.works[1].runs
        await second.kill()
    assert [work.runs for work in probe.works] == [False, False]
    assert [turn.killed for turn in turns] == [1, 1]


async def test_an_end_is_the_first_one(autojump_clock: trio.testing.MockClock) -> None:
    probe = bare_probe(Backend(partial(KilledTurn, BackendLost("gone", gone=True))))
    async with probe.open() as watched:
        turn = await watched.start(Request("kitchen", "1", "first"))
        await lose(turn)
        ended_at = trio.current_time()
        await trio.sleep(1)
        await turn.kill()
    assert probe.works[0].ended_at == ended_at


async def test_a_work_is_told_when_its_cancel_says_so(
    autojump_clock: trio.testing.MockClock,
) -> None:
    class SlowTurn(Turn):
        async def cancel(self, sent: Callable[[], None]) -> None:
            await trio.sleep(1)
            sent()
            sent()
            await trio.sleep_forever()

    probe, heard = bare_probe(partial(Backend, SlowTurn)), []
    async with probe.open() as watched:
        turn = await watched.start(Request("kitchen", "1", "first"))
        with trio.move_on_after(3):
            await turn.cancel(lambda: heard.append(trio.current_time()))
    assert probe.works[0].told_at == [trio.current_time() - 2]
    assert len(heard) == 2


async def test_a_cancel_that_tells_nobody_anything_is_red_where_it_should_be() -> None:
    class LazyTurn(Turn):
        async def cancel(self, sent: Callable[[], None]) -> None:
            pass

    told = ("stop_is_told_at_once", "stop_is_told_once", "settlement_has_its_times")
    found = await outcomes(partial(Backend, LazyTurn), *told)
    assert found == dict.fromkeys(told, Outcome.RED)


async def test_an_end_that_comes_before_the_stop_was_sent_is_not_by_itself() -> None:
    class QuietTurn(Turn):
        async def cancel(self, sent: Callable[[], None]) -> None:
            self.told.set()

    assert await outcomes(partial(Backend, QuietTurn), BASIC) == {BASIC: Outcome.GREEN}


async def test_a_start_that_never_comes_back_is_told_once(monkeypatch: pytest.MonkeyPatch) -> None:
    class Never(Backend):
        async def start(self, request: Request[Any]) -> Any:
            await trio.sleep_forever()

    monkeypatch.setattr(Together, "__init__", partialmethod(Together.__init__, patience=2.0))
    rows: list[Row] = []
    with pytest.raises(NotABackend, match="start has not come back 2 s after it was called"):
        await probe_factory(Never, budget=SHORT, told=rows.append)
    assert rows == []


async def test_a_start_that_never_comes_back_is_told_once_where_all_waited_for_it() -> None:
    # Each of them gives up in the very moment in which nothing can be checked any more.
    class Never(Backend):
        async def start(self, request: Request[Any]) -> Any:
            await trio.sleep_forever()

    with pytest.raises(NotABackend) as caught:
        await probe_factory(Never, budget=SHORT)
    assert re.search("Never: start has not come back 2[0-9] s after", str(caught.value))


async def test_a_start_that_takes_longer_than_a_stop_is_none_of_those() -> None:
    class Slow(Backend):
        async def start(self, request: Request[Any]) -> Any:
            await trio.sleep(1.5)
            return await super().start(request)

    found = await outcomes(Slow, "error_in_the_body_is_a_stop", BASIC)
    assert found[BASIC] is Outcome.GREEN


@pytest.mark.parametrize("name", ["start", "follow", "cancel"])
async def test_what_cannot_be_cancelled_is_named(name: str) -> None:
    over = trio.Event()

    async def cling() -> None:
        with trio.CancelScope(shield=True):
            await over.wait()

    class Clinging(Turn):
        async def follow(self, emit: Emit) -> End:
            if name == "follow":
                await cling()
            return await super().follow(emit)

        async def cancel(self, sent: Callable[[], None]) -> None:
            sent()
            if name == "cancel":
                await cling()
            self.told.set()

    class ClingingBackend(Backend):
        async def start(self, request: Request[Any]) -> Any:
            if name == "start":
                await cling()
            return await super().start(request)

    rows, stuck = [], []

    def let_go(unfit: str) -> None:
        stuck.append(unfit)
        over.set()

    factory = partial(ClingingBackend, Clinging)
    only = ["stop_is_told_once", "error_in_the_body_is_a_stop", "leftovers_are_swept"]
    with suppress(NotABackend):
        await probe_factory(factory, only=only, budget=SHORT, told=rows.append, stuck=let_go)
    if name == "start":
        assert rows == []
        assert stuck[0].startswith("start() of turn first-1 cannot be cancelled")
        return
    assert stuck == [""]
    assert [row.outcome for row in rows] == [Outcome.RED, Outcome.NOT_RUN, Outcome.NOT_RUN]
    text = f"{name}() of turn first-1 cannot be cancelled: it has not come back 4 s after"
    assert text in rows[0].text
    assert "takes the lever" in rows[2].text


async def test_a_refused_start_begins_nothing() -> None:
    class Refusing(Backend):
        async def start(self, request: Request[Any]) -> Any:
            raise BackendRefused("no")

    probe = bare_probe(Refusing)
    async with probe.open() as watched:
        with pytest.raises(BackendRefused):
            await watched.start(Request("kitchen", "1", "first"))
    assert probe.works[0].began_at is None


async def test_only_a_backend_that_never_started_anything_is_unfit() -> None:
    class Once(Backend):
        async def start(self, request: Request[Any]) -> Any:
            if self.requests:
                raise BackendLost("only one at a time")
            return await super().start(request)

    probe, told = bare_probe(Once), []
    probe.note_unfit = told.append
    async with probe.open() as watched:
        await watched.start(Request("kitchen", "1", "first"))
        with pytest.raises(BackendLost):
            await watched.start(Request("kitchen", "2", "second"))
    assert told == []


def test_optional_members_are_there_where_the_adapter_has_them() -> None:
    class Sweeping(Turn):
        acknowledges = False

        async def leftovers(self) -> list[object]:
            return []

    async def members(make: Any) -> list[bool]:
        async with bare_probe(partial(Backend, make)).open() as watched:
            turn = await watched.start(Request("kitchen", "1", "first"))
            names = ("kill", "leftovers", "acknowledges", "sweep")
            return [hasattr(watched, "forget"), *(hasattr(turn, name) for name in names)]

    assert trio.run(members, Sweeping) == [False, False, True, True, False]
    assert trio.run(members, Turn) == [False, False, False, False, False]


async def test_no_two_turns_of_a_shared_backend_have_the_same_name() -> None:
    backend = Backend()
    await probe_factory(backend, budget=SHORT)
    turns = [(request.room, request.turn_id) for request in backend.requests]
    assert len(turns) > 10
    assert len({*turns}) == len(turns)
    assert len({turn_id for _, turn_id in turns}) == len(turns)


async def test_the_prompt_is_what_is_asked() -> None:
    backend = Backend()
    await probe_factory(backend, only=[BASIC], budget=SHORT, prompt="count to a million")
    assert [one.content for one in backend.requests] == ["count to a million (first)"]


@pytest.mark.parametrize(
    ("factory", "why"),
    [
        (lambda: 3, "gives 3, which has no start"),
        (lambda url: Backend(), "cannot be called without arguments"),
        (lambda: 1 / 0, "raised ZeroDivisionError: division by zero"),
        (partial(Backend, lambda: None), "start returned None, which has no follow"),
        (partial(Backend, lambda: 1 / 0), "start raised ZeroDivisionError"),
        (partial(Backend, partial(Over, OSError("broken pipe"))), "follow raised OSError: broken"),
        (generate, "generate is a generator: decorate it: @asynccontextmanager"),
        (contextmanager(generate_sync), "is a context manager, and no async one"),
        (partial(Backend, SyncFollow), "follow is no coroutine function: write `async def follow("),
        (partial(Backend, SyncCancel), "cancel is no coroutine function: write `async def cancel("),
        (type("Sync", (), {"start": lambda self, request: Turn()}), "`async def start"),
        ("Backend", "gives 'Backend', which has no start"),
    ],
)
async def test_what_cannot_be_checked_is_told(factory: Any, why: str) -> None:
    with pytest.raises(NotABackend) as caught:
        await outcomes(factory, BASIC)
    assert why in str(caught.value)


async def test_work_that_is_over_by_itself_cannot_be_stopped() -> None:
    with pytest.raises(NotABackend, match="its work was over by itself"):
        await outcomes(partial(Backend, partial(Over, End(How.COMPLETED))), BASIC)


async def test_an_unknown_obligation_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="there is no obligation nope"):
        await outcomes(Backend, "nope")


def test_it_is_a_probe_as_any_other() -> None:
    report: Report = check_backend(partial(bare_probe, Backend), only=[BASIC, "stop_is_told_once"])
    assert [row.outcome for row in report.rows] == [Outcome.GREEN, Outcome.GREEN]
    assert report.probe == "Backend"
