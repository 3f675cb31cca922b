"""Each store keeps what claims rely on, and one that does not is found."""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from trio.testing import MockClock

from turnstop.claims import ClaimLapsed, ClaimRefused, MemoryStore
from turnstop.claims._stores import open_sqlite_store
from turnstop.testing import Broken
from turnstop.testing.claims import PROMISES, check_claim_store


@asynccontextmanager
async def in_memory() -> AsyncIterator[MemoryStore]:
    yield MemoryStore()


@pytest.mark.parametrize("promise", PROMISES)
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
async def test_keeps(kind: str, promise: str, tmp_path: Path) -> None:
    makers: dict[str, Any] = {
        "memory": in_memory,
        "sqlite": lambda: open_sqlite_store(tmp_path / "claims.db"),
    }
    await check_claim_store(makers[kind], only=[promise])


def without_parts(store: Any, call: Any) -> Any:
    async def acquire(wanted: Any) -> int:
        try:
            return await call(wanted)
        except ClaimRefused as error:
            if error.scope == error.held:
                raise
            return 99

    return acquire


def one_after_the_other(store: Any, call: Any) -> Any:
    async def acquire(wanted: Any) -> int:
        token = 0
        for scope in wanted.scopes:
            lease = wanted.lease if scope == wanted.scopes[-1] else f"{wanted.lease} {scope}"
            token = await call(type(wanted)(lease, (scope,), wanted.holder, wanted.ttl))
        return token

    return acquire


def looking_first(store: Any, call: Any) -> Any:
    async def acquire(wanted: Any) -> int:
        try:
            token = await call(wanted)
        except ClaimRefused:
            if store.asked_at == trio.current_time():
                return 99
            raise
        store.asked_at = trio.current_time()
        return token

    return acquire


def without_release(store: Any, call: Any) -> Any:
    async def release(lease: str) -> None:
        await trio.lowlevel.checkpoint()

    return release


def with_tokens_of_old(store: Any, call: Any) -> Any:
    async def acquire(wanted: Any) -> int:
        return 7 if await call(wanted) else 0

    return acquire


def reviving(store: Any, call: Any) -> Any:
    async def renew(lease: str, ttl: float) -> bool:
        update = "UPDATE leases SET lapses = ?, ttl = ? WHERE lease = ?"
        values = (trio.current_time() + ttl, ttl, lease)
        return bool(store._database.execute(update, values).rowcount)

    return renew


def forgetting(store: Any, call: Any) -> Any:
    async def renew(lease: str, ttl: float) -> bool:
        await trio.lowlevel.checkpoint()
        return True

    return renew


def trusting(store: Any, call: Any) -> Any:
    async def check(token: int, scope: str) -> bool:
        return bool(await call(token, "a/b")) or bool(await call(token, scope))

    return check


def calling_first(store: Any, call: Any) -> Any:
    async def write(token: int, scope: str, fn: Callable[[], Any]) -> Any:
        found = fn()
        if not await store.check(token, scope):
            raise ClaimLapsed(token, scope)
        return found

    return write


def checking_first(store: Any, call: Any) -> Any:
    async def write(token: int, scope: str, fn: Callable[[], Any]) -> Any:
        if not await store.check(token, scope):
            raise ClaimLapsed(token, scope)
        return await trio.to_thread.run_sync(fn)

    return write


def alone(store: Any, call: Any) -> Any:
    async def acquire(wanted: Any) -> int:
        return await call(type(wanted)(wanted.lease, wanted.scopes, wanted.holder, wanted.ttl))

    return acquire


WRONG = [
    ("what_overlaps_is_refused", "acquire", without_parts),
    ("all_are_granted_or_none", "acquire", one_after_the_other),
    ("of_many_at_once_one_is_granted", "acquire", looking_first),
    ("what_is_released_is_free", "release", without_release),
    ("tokens_grow", "acquire", with_tokens_of_old),
    ("what_is_not_renewed_lapses_for_good", "renew", reviving),
    ("what_is_renewed_lives_on", "renew", forgetting),
    ("a_token_is_for_its_scopes", "check", trusting),
    ("a_stale_token_writes_nothing", "write", calling_first),
    ("nobody_is_granted_what_is_being_written", "write", checking_first),
    ("claims_around_do_not_refuse", "acquire", alone),
    ("who_is_cancelled_releases", "release", without_release),
]


@pytest.mark.parametrize(
    ("promise", "method", "wrong"), WRONG, ids=[wrong.__name__ for _, _, wrong in WRONG]
)
async def test_finds(promise: str, method: str, wrong: Any, autojump_clock: MockClock) -> None:
    if promise == "nobody_is_granted_what_is_being_written":
        autojump_clock.autojump_threshold, autojump_clock.rate = float("inf"), 1

    @asynccontextmanager
    async def make() -> AsyncIterator[Any]:
        store: Any = MemoryStore()
        store.asked_at = -1.0
        setattr(store, method, wrong(store, getattr(store, method)))
        yield store

    with pytest.raises(Broken, match=f"^{promise}: "):
        await check_claim_store(make, only=[promise])


def test_each_promise_has_a_store_that_breaks_it() -> None:
    assert sorted(promise for promise, *_ in WRONG) == sorted(PROMISES)


async def test_a_store_in_memory_may_be_let_go_of_in_any_thread(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    ignored: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", ignored.append)
    stores = [MemoryStore()]
    await trio.to_thread.run_sync(stores.clear)
    assert ignored == []
