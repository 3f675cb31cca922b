"""What `turnstop.claims` relies on in a store, promise by promise: for whoever writes one.

from turnstop.testing.claims import check_claim_store

async def test_my_store():
    await check_claim_store(open_my_store)
"""

from __future__ import annotations

import inspect
import time
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TypeAlias

import attrs
import trio

from ..claims import ClaimLapsed, ClaimRefused, ClaimStore, Wanted
from ._factory import describe
from ._stage import Broken

__all__ = ["PROMISES", "MakeStore", "StorePromise", "check_claim_store"]

MakeStore: TypeAlias = Callable[[], AbstractAsyncContextManager[ClaimStore]]
"""Opens a fresh store."""
WITHIN = 20.0
SHORT = 0.8
"""Seconds that a claim lives which is to lapse."""
LONG = 60.0


@attrs.frozen
class StorePromise:
    """One promise.

    Attributes:
        name: the function's name.
        says: the promise in words.
    """

    name: str
    says: str
    _play: Callable[[ClaimStore], Awaitable[None]] = attrs.field(repr=False)

    async def check(self, make_store: MakeStore) -> None:
        """Check it on a fresh store.

        Raises:
            Broken: it is not kept.

        **Cancellation:** closes the store.
        """
        try:
            async with make_store() as store:
                with trio.fail_after(WITHIN):
                    await self._play(store)
        except Exception as error:
            text = str(error) if isinstance(error, Broken) else describe(error)
            raise Broken(f"{self.name}: {self.says}: {text}") from error


PROMISES: dict[str, StorePromise] = {}
"""Every promise by its name, in the order in which they are checked."""


async def check_claim_store(make_store: MakeStore, *, only: Iterable[str] = ()) -> None:
    """Check every promise that `turnstop.claims` relies on, each on a fresh store.

    Args:
        make_store: gives an async context manager, which yields a `turnstop.claims.ClaimStore`.
        only: names of promises; all of them by default.

    Raises:
        Broken: a promise is not kept; the text says which, and what was seen instead.
        KeyError: there is no such promise.

    **Cancellation:** closes the store.
    """
    for name in only or PROMISES:
        await PROMISES[name].check(make_store)


def _promise(
    play: Callable[[ClaimStore], Awaitable[None]],
) -> Callable[[ClaimStore], Awaitable[None]]:
    name = play.__name__.removeprefix("_")
    says = (inspect.getdoc(play) or name).rstrip(".")
    PROMISES[name] = StorePromise(name, says, play)
    return play


def _same(found: object, meant: object) -> None:
    # No assert: it has to hold where Python leaves those out.
    if found != meant:
        raise Broken(f"{found!r} where {meant!r} was meant")


async def _acquire(
    store: ClaimStore, lease: str, *scopes: str, ttl: float = LONG, within: tuple[int, ...] = ()
) -> int:
    return await store.acquire(Wanted(lease, scopes, f"holder of {lease}", ttl, within))


async def _refused(store: ClaimStore, lease: str, *scopes: str) -> tuple[str, str, str] | None:
    try:
        await _acquire(store, lease, *scopes)
    except ClaimRefused as error:
        return error.scope, error.held, error.holder
    await store.release(lease)
    return None


async def _lapsed(store: ClaimStore, token: int, scope: str, fn: Callable[[], object]) -> bool:
    try:
        await store.write(token, scope, fn)
    except ClaimLapsed:
        return True
    return False


@_promise
async def _what_overlaps_is_refused(store: ClaimStore) -> None:
    """A scope is refused that is held, or is a part of one, or has one; the holder is named."""
    await _acquire(store, "one", "a/b")
    for scope in ("a/b", "a", "a/b/c", "a/b/c/d"):
        _same(await _refused(store, "two", scope), (scope, "a/b", "holder of one"))
    for scope in ("a/bc", "a/b-c", "a/b0", "a/a", "b", "A/b"):
        _same(await _refused(store, "two", scope), None)


@_promise
async def _all_are_granted_or_none(store: ClaimStore) -> None:
    """Where one of several scopes is refused, none is granted."""
    await _acquire(store, "one", "m")
    _same(await _refused(store, "two", "a", "m", "z"), ("m", "m", "holder of one"))
    _same(await _refused(store, "three", "a", "z"), None)


@_promise
async def _of_many_at_once_one_is_granted(store: ClaimStore) -> None:
    """Of many who ask at once for what overlaps, one is granted it."""
    granted: list[str] = []

    async def ask(lease: str, scope: str) -> None:
        try:
            await _acquire(store, lease, scope)
        except ClaimRefused:
            return
        granted.append(lease)

    async with trio.open_nursery() as nursery:
        for number in range(20):
            nursery.start_soon(ask, str(number), "a" if number % 2 else "a/b")
    _same(len(granted), 1)


@_promise
async def _what_is_released_is_free(store: ClaimStore) -> None:
    """What is released is free, and its token is nobody's; it may be released once more."""
    token = await _acquire(store, "one", "a", "b")
    for _ in range(2):
        await store.release("one")
    _same(await store.check(token, "a"), False)
    _same(await store.renew("one", LONG), False)
    _same(await _refused(store, "two", "a", "b"), None)


@_promise
async def _tokens_grow(store: ClaimStore) -> None:
    """Each token is greater than all before it, also where those were released."""
    tokens = [await _acquire(store, "kept", "kept")]
    for number in range(3):
        tokens.append(await _acquire(store, str(number), "a"))
        await store.release(str(number))
    _same(tokens, sorted({*tokens}))


@_promise
async def _what_is_not_renewed_lapses_for_good(store: ClaimStore) -> None:
    """A lease lapses when its time is over, and is renewed no more, though nobody has taken it."""
    token = await _acquire(store, "one", "a", ttl=SHORT)
    _same(await store.check(token, "a"), True)
    await trio.sleep(SHORT * 1.5)
    _same(await store.check(token, "a"), False)
    _same(await store.renew("one", LONG), False)
    _same(await store.check(token, "a"), False)
    _same(await _refused(store, "two", "a"), None)


@_promise
async def _what_is_renewed_lives_on(store: ClaimStore) -> None:
    """A lease that is renewed lapses so many seconds after that."""
    token = await _acquire(store, "one", "a", ttl=SHORT)
    _same(await store.renew("one", LONG), True)
    await trio.sleep(SHORT * 1.5)
    _same(await store.check(token, "a"), True)
    _same(await _refused(store, "two", "a"), ("a", "a", "holder of one"))


@_promise
async def _a_token_is_for_its_scopes(store: ClaimStore) -> None:
    """A token is checked, and writes, for its own scopes and what is a part of them."""
    token = await _acquire(store, "one", "a/b", "c")
    other = await _acquire(store, "two", "d")
    for scope in ("a/b", "a/b/x", "c"):
        _same(await store.check(token, scope), True)
        _same(await store.write(token, scope, lambda: "written"), "written")
    for scope in ("a", "a/bc", "d", "e"):
        _same(await store.check(token, scope), False)
        _same(await _lapsed(store, token, scope, list), True)
    _same(await store.check(other + 1, "d"), False)


@_promise
async def _a_stale_token_writes_nothing(store: ClaimStore) -> None:
    """What has lapsed or was released writes nothing: the function is not called."""
    written: list[int] = []
    token = await _acquire(store, "one", "a", ttl=SHORT)
    await trio.sleep(SHORT * 1.5)
    _same(await _lapsed(store, token, "a", partial(written.append, 1)), True)
    token = await _acquire(store, "two", "a")
    await store.release("two")
    _same(await _lapsed(store, token, "a", partial(written.append, 2)), True)
    _same(written, [])


@_promise
async def _nobody_is_granted_what_is_being_written(store: ClaimStore) -> None:
    """A scope is granted to nobody while it is written, though the writer's lease lapses then."""
    told: list[str] = []

    def write() -> None:
        told.append("begun")
        time.sleep(SHORT * 1.5)
        told.append("written")

    token = await _acquire(store, "one", "a", ttl=SHORT)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(store.write, token, "a", write)
        while "begun" not in told or await _refused(store, "two", "a"):  # noqa: ASYNC110
            await trio.sleep(SHORT / 20)
        told.append("granted")
    _same(told, ["begun", "written", "granted"])


@_promise
async def _claims_around_do_not_refuse(store: ClaimStore) -> None:
    """What overlaps only with the claims around it is granted, and released for itself."""
    outer = await _acquire(store, "outer", "a")
    inner = await _acquire(store, "inner", "a/b", "c", within=(outer,))
    _same([await store.check(inner, scope) for scope in ("a/b", "c")], [True, True])
    await store.release("inner")
    _same(await _refused(store, "other", "c"), None)
    _same(await _refused(store, "other", "a/b"), ("a/b", "a", "holder of outer"))


@_promise
async def _who_is_cancelled_releases(store: ClaimStore) -> None:
    """Where asking was cancelled, releasing the lease frees what may have been granted."""
    for number in range(12):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(partial(_acquire, store, str(number), "a"))
            for _ in range(number):
                await trio.lowlevel.cancel_shielded_checkpoint()
            nursery.cancel_scope.cancel()
        await store.release(str(number))
        _same(await _refused(store, "other", "a"), None)
