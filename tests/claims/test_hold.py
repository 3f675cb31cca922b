"""A block that holds its scopes: entering, leaving, renewing, lapsing. In virtual time."""

from __future__ import annotations

import logging
import threading
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from functools import partial
from typing import Any

import attrs
import pytest
import trio

from turnstop.claims import (
    Claim,
    ClaimLapsed,
    ClaimRefused,
    Claims,
    ClaimsUnavailable,
    MalformedScope,
    Wanted,
    _claims,
    open_claims,
)

from .stores import Moody


@pytest.fixture
async def store() -> Moody:
    return Moody()


@pytest.fixture
async def claims(store: Moody) -> AsyncIterator[Claims]:
    async with open_claims(store) as claims:
        yield claims


@pytest.fixture
async def others(store: Moody) -> AsyncIterator[Claims]:
    """Another program."""
    async with open_claims(store.inner) as others:
        yield others


async def is_free(others: Claims, *scopes: str) -> bool:
    try:
        async with others.hold(scopes, holder="other"):
            return True
    except ClaimRefused:
        return False


# I4, I5: held while the work goes on, released when it has stopped.


async def test_it_is_held_until_the_block_has_left(claims: Claims, others: Claims) -> None:
    async with claims.hold(["a", "b/c"], holder="turn 1") as claim:
        assert (claim.scopes, claim.holder) == (("a", "b/c"), "turn 1")
        assert not await is_free(others, "a")
        assert not await is_free(others, "b")
        assert await is_free(others, "b/d")
        assert not claim.lost.is_set()
    assert claim.lost.is_set()
    assert claim.why_lost == "its block has left"
    assert await is_free(others, "a", "b")
    assert claims.statistics().held == 0
    assert _claims._around.get() == ()


async def test_a_cancelled_block_holds_it_as_long_as_it_works(
    claims: Claims, others: Claims
) -> None:
    """Ten times its ttl: what renews it is not cancelled with it."""
    found = []

    async def work() -> None:
        async with claims.hold(["a"], holder="turn", ttl=3) as claim:
            with trio.CancelScope(shield=True):
                for _ in range(30):
                    await trio.sleep(1)
                    found.append(await is_free(others, "a"))
                await claim.check("a")

    with trio.move_on_after(0.5):
        await work()
    assert found == [False] * 30
    assert await is_free(others, "a")


async def test_an_error_of_the_block_leaves_as_it_is(claims: Claims, others: Claims) -> None:
    error = KeyError("mine")
    with pytest.raises(KeyError) as caught:
        async with claims.hold(["a"], holder="turn"):
            raise error
    assert caught.value is error
    assert await is_free(others, "a")


async def test_a_cancellation_inside_is_the_blocks_own(claims: Claims, others: Claims) -> None:
    with trio.CancelScope() as scope:
        async with claims.hold(["a"], holder="turn"):
            scope.cancel()
            await trio.sleep_forever()
    assert scope.cancelled_caught
    assert await is_free(others, "a")


# I8: all or none, and the holder is named.


async def test_all_or_none(claims: Claims, others: Claims) -> None:
    async with others.hold(["b/x"], holder="turn 7", ttl=60):
        await trio.sleep(10)
        with pytest.raises(ClaimRefused) as caught:
            async with claims.hold(["a", "b", "c"], holder="turn 8"):
                raise AssertionError
        assert str(caught.value) == "'b': turn 7 holds 'b/x'; wait for its end, or stop it"
        assert 40 <= caught.value.lapses_in <= 60
        assert await is_free(others, "a", "c")
        assert claims.statistics().refused == 1
    assert await is_free(claims, "a", "b", "c")


@pytest.mark.parametrize("scopes", [["a", ""], ["a", "b//c"]])
async def test_malformed_ones_claim_nothing(
    claims: Claims, store: Moody, scopes: list[str]
) -> None:
    with pytest.raises(MalformedScope):
        async with claims.hold(scopes, holder="turn"):
            raise AssertionError
    assert store.asked == []


async def test_none_ask_nobody(claims: Claims, store: Moody) -> None:
    store.failing = {"acquire", "renew", "release", "check", "write"}
    async with claims.hold((), holder="turn", ttl=1) as claim:
        await trio.sleep(10)
        assert claim.token is None
        assert not claim.lost.is_set()
        with pytest.raises(ClaimLapsed, match="no claim holds 'a'"):
            await claim.write("a", list)
    assert store.asked == []


@pytest.mark.parametrize(
    ("more", "error"),
    [
        ({"ttl": 0}, ValueError),
        ({"ttl": float("nan")}, ValueError),
        ({"ttl": float("inf")}, ValueError),
        ({"ttl": 30, "progress_within": 29}, ValueError),
        ({"holder": " "}, ValueError),
        ({"holder": None}, TypeError),
    ],
)
async def test_misuse(claims: Claims, more: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        async with claims.hold(["a"], **{"holder": "turn", **more}):
            raise AssertionError


# Re-entrant: only whoever acquired it freshly releases it.


async def test_a_part_of_it_is_the_same_claim(claims: Claims, others: Claims) -> None:
    async with claims.hold(["a", "b"], holder="turn") as claim:
        async with claims.hold(["a/x", "b"], holder="its step") as inner:
            assert (inner.token, inner.scopes) == (claim.token, claim.scopes)
        assert not claim.lost.is_set()
        assert not await is_free(others, "a")
    assert await is_free(others, "a", "b")


async def test_what_goes_beyond_it_is_claimed_beside_it(claims: Claims, others: Claims) -> None:
    async with claims.hold(["a"], holder="turn") as claim:
        async with claims.hold(["a/x", "c"], holder="step") as inner:
            assert inner.token > claim.token
            await inner.check("a/x")
            await inner.check("c")
            assert not await is_free(others, "c")
        assert await is_free(others, "c")
        assert not await is_free(others, "a/x")
        await claim.check("a/x")


async def test_the_same_name_is_not_the_same_holder(claims: Claims) -> None:
    """Two turns of one program that call themselves alike."""
    found = []

    async def work() -> None:
        try:
            async with claims.hold(["a"], holder="my agent"):
                found.append("held")
                await trio.sleep(1)
        except ClaimRefused:
            found.append("refused")

    async with trio.open_nursery() as nursery:
        nursery.start_soon(work)
        nursery.start_soon(work)
    assert sorted(found) == ["held", "refused"]


async def test_siblings_inside_refuse_each_other_outside_of_it(claims: Claims) -> None:
    found = []

    async def step(*scopes: str) -> None:
        try:
            async with claims.hold(scopes, holder="step"):
                await trio.sleep(1)
                found.append(scopes)
        except ClaimRefused:
            found.append("refused")

    async with claims.hold(["a"], holder="turn"), trio.open_nursery() as nursery:
        nursery.start_soon(step, "a/x")
        nursery.start_soon(step, "a/x")
        nursery.start_soon(step, "a", "c")
        nursery.start_soon(step, "c/y")
    assert found.count(("a/x",)) == 2
    assert found.count("refused") == 1
    assert len({*found} & {("a", "c"), ("c/y",)}) == 1


async def test_a_hold_inside_does_not_end_what_others_work_under(
    claims: Claims, others: Claims
) -> None:
    async with claims.hold(["a"], holder="server", ttl=30) as claim:
        async with claims.hold(["a/x"], holder="task") as inside:
            inside.let_lapse()
        await trio.sleep(100)
        await claim.check("a/y")
        assert not await is_free(others, "a/y")


async def test_the_first_token_of_a_store_may_be_0(others: Claims) -> None:
    class FromZero(Moody):
        async def acquire(self, wanted: Any) -> int:
            return await super().acquire(attrs.evolve(wanted, within=())) - 1

    async with open_claims(FromZero()) as claims, claims.hold(["a"], holder="me") as claim:
        async with claims.hold(["a/x"], holder="me") as inside:
            assert claim.token == inside.token == 0


async def test_who_outlives_the_block_holds_nothing(claims: Claims, others: Claims) -> None:
    lost, token, left = [], 0, trio.Event()

    async def outlive(started: trio.Event) -> None:
        async with claims.hold(["a/x"], holder="helper") as claim:
            started.set()
            await claim.lost.wait()
            lost.append(claim.why_lost)
            with pytest.raises(ClaimLapsed):
                await claim.write("a/x", list)
            # Who asks by its token is told what the store knows, and that is told last.
            await left.wait()
            with pytest.raises(ClaimLapsed):
                await claims.write(token, "a/x", list)
            # What was around it is over: this is claimed for itself.
            async with claims.hold(["a/x"], holder="helper") as anew:
                assert anew.token > token
                assert not await is_free(others, "a")

    async with trio.open_nursery() as nursery:
        async with claims.hold(["a"], holder="turn") as claim:
            token = claim.token or 0
            started = trio.Event()
            nursery.start_soon(outlive, started)
            await started.wait()
        left.set()
    assert lost == ["its block has left"]
    assert claims.statistics().stale == 2


async def test_what_has_lapsed_is_not_entered_once_more(claims: Claims, store: Moody) -> None:
    async with claims.hold(["a"], holder="turn") as claim:
        await store.inner.release(claim._lease.wanted.lease)
        with pytest.raises(ClaimLapsed):
            async with claims.hold(["a/x"], holder="step"):
                raise AssertionError
        assert claim.why_lost == "the store holds it no more"


@pytest.mark.parametrize("how", ["inside", "renewed no more", "check"])
async def test_a_store_may_say_by_an_error_that_it_has_lapsed(
    how: str, claims: Claims, store: Moody
) -> None:
    async with claims.hold(["a"], holder="turn", ttl=30) as claim:
        store.denying = {"renew", "check"}
        if how == "renewed no more":
            claim.let_lapse()
        with pytest.raises(ClaimLapsed):
            if how == "check":
                await claim.check("a")
            else:
                async with claims.hold(["a/x"], holder="step"):
                    raise AssertionError
        assert claim.lost.is_set() == (how != "check")


async def test_a_renewal_that_finds_it_lapsed_ends_no_block(claims: Claims, store: Moody) -> None:
    async with claims.hold(["a"], holder="turn", ttl=30) as claim:
        store.denying = {"renew", "release"}
        await trio.sleep(20)
        assert claim.why_lost == "the store holds it no more"


# I7, I9: renewing.


async def test_it_is_renewed_each_third(claims: Claims, store: Moody) -> None:
    async with claims.hold(["a"], holder="turn", ttl=300) as claim:
        await trio.sleep(1050)
        assert store.asked.count("renew") == 10
        await claim.check("a")


async def test_a_store_that_fails_for_a_while_is_lived_with(
    claims: Claims, store: Moody, others: Claims, caplog: pytest.LogCaptureFixture
) -> None:
    async with claims.hold(["a"], holder="turn", ttl=30) as claim:
        store.failing = {"renew"}
        await trio.sleep(25)
        store.failing, store.asked = set(), []
        await trio.sleep(100)
        # No more often than before.
        assert 8 <= store.asked.count("renew") <= 12
        await claim.check("a")
        assert not await is_free(others, "a")
    assert claims.statistics().failed > 3
    assert caplog.text.count("is not renewed: the claims' store does not answer") == 1


@pytest.mark.parametrize("mood", ["failing", "hanging"])
async def test_a_store_that_stays_away_loses_it_and_not_the_work(
    claims: Claims, store: Moody, others: Claims, mood: str
) -> None:
    begun = trio.current_time()
    async with claims.hold(["a"], holder="turn", ttl=30) as claim:
        setattr(store, mood, {"renew"})
        await claim.lost.wait()
        # Not later than others may be granted it.
        assert trio.current_time() - begun == pytest.approx(30)
        await trio.sleep(5)
        assert await is_free(others, "a")
        setattr(store, mood, set())
        with pytest.raises(ClaimLapsed):
            await claim.write("a", list)
    stats = claims.statistics()
    assert (stats.lost, stats.stale, stats.held) == (1, 1, 0)


async def test_work_that_is_over_is_not_renewed(claims: Claims, others: Claims) -> None:
    begun = trio.current_time()
    async with claims.hold(["a"], holder="wedged", ttl=30) as claim:
        await trio.sleep(25)
        claim.let_lapse()
        await claim.check("a")
        await claim.lost.wait()
        assert trio.current_time() - begun == pytest.approx(50)
        assert claim.why_lost == "its work counts as over"
        assert await is_free(others, "a")


@pytest.mark.parametrize("why", ["counts as over", "no progress"])
async def test_a_hold_inside_does_not_renew_what_is_renewed_no_more(
    why: str, claims: Claims, others: Claims
) -> None:
    within = 30 if why == "no progress" else None
    async with claims.hold(["a"], holder="wedged", ttl=30, progress_within=within) as claim:
        if within is None:
            claim.let_lapse()
        while not claim.lost.is_set():
            async with claims.hold(["a/b"], holder="inside") as inner:
                assert inner.token == claim.token
            await trio.sleep(7)
            assert trio.current_time() < 70
        assert why in claim.why_lost
        assert await is_free(others, "a")


async def test_a_hold_inside_sees_that_a_claim_which_is_renewed_no_more_has_lapsed(
    claims: Claims, store: Moody
) -> None:
    async with claims.hold(["a"], holder="wedged", ttl=30) as claim:
        claim.let_lapse()
        await store.inner.release(claim._lease.wanted.lease)
        with pytest.raises(ClaimLapsed):
            async with claims.hold(["a"], holder="inside"):
                pass
        assert claim.why_lost == "the store holds it no more"


async def test_what_is_left_held_is_not_released_but_lapses(
    claims: Claims, others: Claims, caplog: pytest.LogCaptureFixture
) -> None:
    async with claims.hold(["a"], holder="has a thread", ttl=30) as claim:
        await trio.sleep(100)
        claim.leave_held()
    assert claim.lost.is_set()
    with pytest.raises(ClaimLapsed):
        await claim.write("a", print)
    assert not await is_free(others, "a")
    assert "has a thread" in caplog.text
    await trio.sleep(31)
    assert await is_free(others, "a")
    assert claims.statistics().held == 0


async def test_work_without_progress_is_not_renewed(claims: Claims, others: Claims) -> None:
    begun = trio.current_time()
    async with claims.hold(["a"], holder="wedged", ttl=30, progress_within=60) as claim:
        for _ in range(5):
            await trio.sleep(55)
            await claim.check("a")
            claim.note_progress()
        await claim.lost.wait()
        # The last was at 275, and the last renewal at 330.
        assert trio.current_time() - begun == pytest.approx(360)
        assert claim.why_lost == "there was no progress for 60 s"
        assert await is_free(others, "a")


async def test_progress_before_it_has_lapsed_renews_it_again(claims: Claims) -> None:
    async with claims.hold(["a"], holder="slow", ttl=30, progress_within=60) as claim:
        await trio.sleep(75)
        claim.note_progress()
        await trio.sleep(50)
        await claim.check("a")


async def test_a_thread_notes_progress(claims: Claims) -> None:
    async with claims.hold(["a"], holder="in a thread", ttl=30, progress_within=30) as claim:
        for _ in range(3):
            await trio.sleep(25)
            # Without Trio's own help, which would have the clock jump.
            thread = threading.Thread(target=claim.note_progress)
            thread.start()
            thread.join()
        await claim.check("a")


async def test_a_renewal_that_answers_late_takes_no_time_away(claims: Claims, store: Moody) -> None:
    renew, slow = store.inner.renew, [True]

    async def answer_late(lease: str, ttl: float) -> bool:
        late, slow[0] = slow[0], False
        found = await renew(lease, ttl)
        if late:
            await trio.sleep(9)
        return found

    store.inner.renew = answer_late  # type: ignore[method-assign]
    begun = trio.current_time()
    async with claims.hold(["a"], holder="turn", ttl=30) as claim:
        await trio.sleep(18)
        async with claims.hold(["a/x"], holder="step"):
            store.failing = {"renew"}
        await claim.lost.wait()
        # Counted from when it was asked for.
        assert trio.current_time() - begun == pytest.approx(48)


async def test_a_thread_that_stood_still_has_lost_it(store: Moody) -> None:
    """Trio's own thread was busy for longer than the ttl: nothing was renewed meanwhile."""
    clock: Any = trio.lowlevel.current_clock()
    async with open_claims(store) as claims:
        async with claims.hold(["a"], holder="busy", ttl=30) as claim:
            clock.jump(31)
            await claim.lost.wait()
            assert claim.why_lost == "there was no time to renew it"
            with pytest.raises(ClaimLapsed):
                await claims.write(claim.token or 0, "a", list)


async def test_what_has_lapsed_never_lives_again(store: Moody) -> None:
    """Also where nobody was granted it since."""
    inner = store.inner
    token = await inner.acquire(Wanted("x", ("a",), "me", 3))
    await trio.sleep(2)
    assert await inner.renew("x", 3)
    await trio.sleep(3.5)
    assert not await inner.check(token, "a")
    assert not await inner.renew("x", 3)
    assert not await inner.check(token, "a")


# Store down: unclaimed, loudly, by choice.


async def test_a_store_that_is_down_refuses(claims: Claims, store: Moody) -> None:
    store.failing = {"acquire", "release"}
    with pytest.raises(ClaimsUnavailable, match="no route to the store") as caught:
        async with claims.hold(["a"], holder="turn"):
            raise AssertionError
    assert isinstance(caught.value.__cause__, OSError)


async def test_an_answer_that_comes_after_its_time_is_no_claim(
    claims: Claims, others: Claims, store: Moody
) -> None:
    store.slow = {"acquire": 30}
    with pytest.raises(ClaimsUnavailable, match=r"over 30 s to answer"):
        async with claims.hold(["a"], holder="turn", ttl=30):
            raise AssertionError
    assert await is_free(others, "a")
    async with claims.hold(["a"], holder="turn", ttl=30.5) as claim:
        await claim.check("a")


async def test_by_choice_it_works_without(
    claims: Claims, store: Moody, caplog: pytest.LogCaptureFixture
) -> None:
    store.failing = {"acquire", "renew", "release"}
    async with claims.hold(["a"], holder="turn", ttl=3, or_unclaimed=True) as claim:
        assert claim.token is None
        assert claims.statistics().unclaimed == 1
        assert not claim.lost.is_set()
        await claim.check("a/x")
        assert await claim.write("a/x", len, "four") == 4
        with pytest.raises(ClaimLapsed):
            await claim.write("b", list)
        store.failing = set()
        async with claims.hold(["a/y"], holder="step") as inner:
            assert inner.token is not None
    with pytest.raises(ClaimLapsed):
        await claim.write("a/x", list)
    errors = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert ["turn works without a claim" in one.getMessage() for one in errors] == [True]
    assert claims.statistics().unclaimed == 0


async def test_a_refusal_is_no_reason_to_work_without(claims: Claims, others: Claims) -> None:
    async with others.hold(["a"], holder="other"):
        with pytest.raises(ClaimRefused):
            async with claims.hold(["a"], holder="turn", or_unclaimed=True):
                raise AssertionError


# Entering and leaving are cancelled, or take their time.


@pytest.mark.parametrize("mood", ["hanging", "mute"])
async def test_who_is_cancelled_while_entering_holds_nothing(
    claims: Claims, store: Moody, others: Claims, mood: str
) -> None:
    setattr(store, mood, {"acquire"})
    with trio.move_on_after(1) as scope:
        async with claims.hold(["a"], holder="turn"):
            raise AssertionError
    assert scope.cancelled_caught
    assert await is_free(others, "a")


async def test_an_answer_that_got_lost_is_no_claim(
    claims: Claims, store: Moody, others: Claims
) -> None:
    acquire = store.inner.acquire

    async def broken(wanted: Any) -> int:
        await acquire(wanted)
        raise OSError("reset by peer")

    store.inner.acquire = broken  # type: ignore[method-assign]
    with pytest.raises(ClaimsUnavailable):
        async with claims.hold(["a"], holder="turn"):
            raise AssertionError
    store.inner.acquire = acquire  # type: ignore[method-assign]
    assert await is_free(others, "a")


@pytest.mark.parametrize("mood", ["hanging", "failing"])
async def test_a_release_that_fails_is_told_and_bounded(
    claims: Claims, store: Moody, others: Claims, mood: str, caplog: pytest.LogCaptureFixture
) -> None:
    setattr(store, mood, {"release"})
    begun = trio.current_time()
    with trio.CancelScope() as scope:
        async with claims.hold(["a"], holder="turn", ttl=30) as claim:
            await trio.sleep(5)
            scope.cancel()
    assert trio.current_time() - begun <= 7.01
    assert claim.lost.is_set()
    assert "is left to lapse within 30 s" in caplog.text
    assert not await is_free(others, "a")
    await trio.sleep(30)
    assert await is_free(others, "a")


async def test_many_come_and_go_and_leave_nothing(claims: Claims, store: Moody) -> None:
    """Of those that overlap, one at a time."""
    inside: list[tuple[str, ...]] = []
    entered = 0

    async def work(number: int) -> None:
        nonlocal entered
        scopes = (f"s{number % 7}", f"s{number % 3}/x{number % 2}")
        with suppress(ClaimRefused), trio.move_on_after(number % 5):
            async with claims.hold(scopes, holder=str(number)) as claim:
                mine = {scope.split("/")[0] for scope in claim.scopes if "/" not in scope}
                assert not any(mine & {one.split("/")[0] for one in other} for other in inside)
                inside.append(claim.scopes)
                entered += 1
                try:
                    await trio.sleep(number % 4)
                finally:
                    inside.remove(claim.scopes)

    async with trio.open_nursery() as nursery:
        for number in range(200):
            nursery.start_soon(work, number)
            await trio.sleep(0.3)
    assert entered > 40
    rows = store.inner._database.execute
    assert rows("SELECT COUNT(*) FROM leases").fetchall() == [(0,)]
    assert rows("SELECT COUNT(*) FROM scopes").fetchall() == [(0,)]


@asynccontextmanager
async def held(claims: Claims, *scopes: str) -> AsyncIterator[Claim]:
    async with AsyncExitStack() as stack:
        yield await stack.enter_async_context(claims.hold(scopes, holder="stacked"))


async def test_its_repr_tells_its_state(claims: Claims) -> None:
    async with held(claims, "a", "b") as claim:
        assert repr(claim) == "<Claim 1 of 'stacked' on a, b: held>"
    assert repr(claim) == "<Claim 1 of 'stacked' on a, b: lost, its block has left>"


async def test_whoever_holds_it_not_is_told_so(claims: Claims) -> None:
    with pytest.raises(ClaimLapsed, match="claim 999 does not hold 'a'"):
        await claims.write(999, "a", list)
    async with claims.hold(["a"], holder="me") as claim:
        with pytest.raises(ClaimLapsed, match="claim 1 does not hold 'b'"):
            await claim.check("b")


async def test_what_is_async_would_not_be_guarded(claims: Claims) -> None:
    async def write() -> None:
        raise AssertionError

    async with claims.hold(["a"], holder="me") as claim:
        for call in (partial(claim.write, "a"), partial(claims.write, 1, "a")):
            with pytest.raises(TypeError, match="is async"):
                await call(write)


class Writes:
    async def __call__(self) -> None:
        raise AssertionError


@pytest.mark.parametrize("fn", [Writes(), lambda: Writes()(), lambda: (x for x in "x")])
async def test_what_would_write_later_is_not_taken_for_written(claims: Claims, fn: Any) -> None:
    async with claims.hold(["a"], holder="me") as claim:
        for call in (partial(claim.write, "a"), partial(claims.write, 1, "a")):
            with pytest.raises(TypeError, match="an ordinary function's call"):
                await call(fn)


async def test_nor_where_it_works_without(claims: Claims, store: Moody) -> None:
    store.failing = {"acquire", "release"}
    async with claims.hold(["a"], holder="me", or_unclaimed=True) as claim:
        with pytest.raises(TypeError, match="an ordinary function's call"):
            await claim.write("a", lambda: (x for x in "x"))


@pytest.mark.parametrize("store", [None, 3, b"claims.db"])
async def test_what_is_no_store_is_refused(store: Any) -> None:
    with pytest.raises(TypeError, match="neither a path nor a ClaimStore"):
        async with open_claims(store):
            raise AssertionError
