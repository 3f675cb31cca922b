"""`open_claims`, and the block that holds what it claims."""

from __future__ import annotations

import logging
import math
import os
import uuid
from collections.abc import AsyncGenerator, Callable, Collection
from contextlib import asynccontextmanager
from contextvars import ContextVar
from functools import partial
from pathlib import Path
from typing import Final, TypeVar, TypeVarTuple, final

import trio
from trio.lowlevel import enable_ki_protection

from .._service import open_service, see_through
from ._claim import Claim
from ._errors import ClaimLapsed, ClaimRefused, ClaimsUnavailable
from ._lease import Lease
from ._register import Register, check_writes
from ._scopes import check_scopes, covers
from ._store import ClaimsStatistics, ClaimStore, Wanted
from ._stores import open_sqlite_store

__all__ = ["Claims", "open_claims"]

Result = TypeVar("Result")
Args = TypeVarTuple("Args")

logger = logging.getLogger("turnstop.claims")

_RELEASE_WITHIN: Final = 2.0
# By the block and not by the holder's name, which two programs may share.
_around: ContextVar[tuple[Lease, ...]] = ContextVar("turnstop claims", default=())


@final
class Claims:
    """Where one claims. Made by `open_claims`."""

    def __init__(self, store: ClaimStore) -> None:
        self._register = Register(store)

    def statistics(self) -> ClaimsStatistics:
        """How it was used."""
        one = self._register
        return ClaimsStatistics(
            one.held, one.unclaimed, one.refused, one.lost, one.failed, one.stale
        )

    @asynccontextmanager
    @enable_ki_protection
    async def hold(
        self,
        scopes: Collection[str],
        *,
        holder: str,
        ttl: float = 300.0,
        progress_within: float | None = None,
        or_unclaimed: bool = False,
    ) -> AsyncGenerator[Claim, None]:
        """Hold all of these scopes until the block has left, or enter it not at all.

        It is renewed each third of `ttl`, also while the block is being cancelled: it is released
        once the work has stopped, which is when the block has left. Inside, and in whatever tasks
        were started inside, a further `hold` of a part is given the same claim.

        Args:
            scopes: such as `["repo/src", "repo/docs"]`; with none, nobody is asked.
            holder: who it is, for whoever is refused: a turn's id, say.
            ttl: seconds after which it lapses where it is not renewed: the program was killed.
            progress_within: seconds, `ttl` or more: it is renewed only while the last
                `Claim.note_progress` is no older. Twice the longest legal silence is a good value.
                None: while the block runs.
            or_unclaimed: where the store does not answer, work without, and log an error.

        Raises:
            ClaimRefused: somebody else holds one of them.
            ClaimsUnavailable: the store does not answer, or took longer than `ttl` to do it.
            ClaimLapsed: they are a part of what a block around this one has held, and has lost.
            MalformedScope: one of them names none.
            ValueError: `ttl` or `progress_within` is out of range, or `holder` is empty.

        **Cancellation:** while entering: nothing is held, or it is released at once. Inside: of the
        block. Leaving waits up to 2 s for the store; what is not released then lapses.
        """
        _check(holder, ttl, progress_within)
        wanted = self._wanted(check_scopes(scopes), holder, ttl)
        if around := self._find_around(wanted):
            await around.affirm()
            if around.lost.is_set():
                raise self._register.stale_at(around.token, wanted.scopes[0])
            yield Claim(around, is_inside=True)
            return
        lease = await self._enter(wanted, progress_within, or_unclaimed)
        before = _around.set((*_around.get(), lease))
        try:
            # What renews it is cancelled after the block has left, and not when its app is.
            async with open_service() as service:
                if lease.token is not None:
                    service.start_soon(lease.keep)
                yield Claim(lease)
        finally:
            try:
                await self._leave(lease)
            finally:
                _around.reset(before)

    def _wanted(self, scopes: tuple[str, ...], holder: str, ttl: float) -> Wanted:
        within = [lease.token for lease in self._live_around() if lease.token is not None]
        return Wanted(uuid.uuid4().hex, scopes, holder, ttl, within)

    def _live_around(self) -> list[Lease]:
        # One that works without a claim covers nothing: the store may answer by now.
        live = [lease for lease in _around.get() if not lease.lost.is_set()]
        mine = [lease for lease in live if lease.register is self._register]
        return [lease for lease in mine if lease.token is not None]

    def _find_around(self, wanted: Wanted) -> Lease | None:
        for lease in self._live_around():
            if wanted.scopes and all(covers(lease.wanted.scopes, one) for one in wanted.scopes):
                return lease
        return None

    async def _enter(
        self, wanted: Wanted, progress_within: float | None, or_unclaimed: bool
    ) -> Lease:
        register = self._register
        asked = trio.current_time()
        make = partial(Lease, register, wanted, asked=asked, progress_within=progress_within)
        if not wanted.scopes:
            await trio.lowlevel.checkpoint()
            return make(token=None)
        try:
            token = await register.ask(register.store.acquire, wanted)
            if trio.current_time() >= asked + wanted.ttl:
                # Somebody else may have been granted it since.
                raise ClaimsUnavailable(f"the claims' store took over {wanted.ttl} s to answer")
        except ClaimRefused:
            register.refused += 1
            raise
        except ClaimsUnavailable as error:
            # It may have granted it all the same.
            await self._release(wanted)
            if not or_unclaimed:
                raise
            logger.error("%s works without a claim on %s: %s", wanted.holder, wanted.scopes, error)
            register.unclaimed += 1
            return make(token=None)
        except BaseException:
            await self._release(wanted)
            raise
        register.held += 1
        return make(token=token)

    async def _leave(self, lease: Lease) -> None:
        # Before it is released: what outlives the block is refused from here on.
        lease.lose("its block has left")
        if lease.token is not None:
            self._register.held -= 1
            if lease.is_left_held:
                told = (lease.token, lease.wanted.holder, lease.wanted.ttl)
                logger.warning("claim %s of %s is left to lapse within %s s: work goes on", *told)
            else:
                await self._release(lease.wanted)
        elif lease.wanted.scopes:
            self._register.unclaimed -= 1

    async def _release(self, wanted: Wanted) -> None:
        register = self._register
        why = f"no answer within {_RELEASE_WITHIN} s"

        async def release() -> None:
            nonlocal why
            try:
                await register.insist(register.store.release, wanted.lease)
                why = ""
            except ClaimLapsed:
                why = ""
            except ClaimsUnavailable as error:
                why = str(error)

        try:
            # Ctrl-C may be on its way, and would end the asking, which no shield hinders.
            await see_through(_RELEASE_WITHIN, release)
        finally:
            if why:
                told = (wanted.holder, wanted.scopes, wanted.ttl, why)
                logger.warning("the claim of %s on %s is left to lapse within %s s: %s", *told)

    async def check(self, token: int, scope: str) -> None:
        """See that the claim with this token, of whatever program, has the scope now.

        Whoever writes afterwards may have lapsed in between; `write` may not.

        Raises:
            ClaimLapsed: it has not.
            ClaimsUnavailable: the store does not answer.

        **Cancellation:** changes nothing.
        """
        await self._register.check(token, scope)

    async def write(
        self, token: int, scope: str, fn: Callable[[*Args], Result], *args: *Args
    ) -> Result:
        """Call a function that writes at the scope, while nobody else can be granted it.

        Args:
            token: of a claim, of whatever program.
            scope: one of its scopes, or a part of one.
            fn: short: others' claims wait until it has returned. Called in a thread.
            args: its arguments.

        Raises:
            ClaimLapsed: the claim has it not, or no more: nothing was called.
            ClaimsUnavailable: the store does not answer: nothing was called.
            TypeError: `fn` is async, or has only made something that would write later, when
                nobody guards it any more.

        **Cancellation:** it is called to its end, or not at all.
        """
        check_writes(fn)
        return await self._register.write(token, scope, partial(fn, *args))


def _check(holder: str, ttl: float, progress_within: float | None) -> None:
    if not isinstance(holder, str):
        raise TypeError(f"holder is {holder!r}: a str that names it for whoever is refused")
    if not holder.strip():
        raise ValueError("holder is empty: whoever is refused is told who holds it")
    if not 0 < ttl < math.inf:
        raise ValueError(f"ttl is {ttl}: seconds, more than 0")
    if progress_within is not None and not progress_within >= ttl:
        # In less than three renewals a work that goes on could seem to stand still.
        raise ValueError(f"progress_within is {progress_within}: ttl, {ttl} s, or more")


@asynccontextmanager
@enable_ki_protection
async def open_claims(
    store: str | os.PathLike[str] | ClaimStore,
) -> AsyncGenerator[Claims, None]:
    """Open a file of claims, or another store.

    Args:
        store: a file, made where there is none: all programs of one machine that open it claim
            against one another. Or whatever keeps them: `MemoryStore()`, or a client of a server.

    Raises:
        OSError: there is no such folder, or it cannot be written.
        sqlite3.Error: it is no file of claims, a newer turnstop's, or cannot be written.
        TypeError: it is neither a path nor a store.

    **Cancellation:** the file is closed when the body has left.
    """
    if isinstance(store, (str, os.PathLike)):
        async with open_sqlite_store(_resolve(store)) as kept:
            yield Claims(kept)
    elif callable(getattr(store, "acquire", None)):
        yield Claims(store)
    else:
        raise TypeError(f"{store!r} is neither a path nor a ClaimStore, such as MemoryStore()")


def _resolve(path: str | os.PathLike[str]) -> Path:
    # By whatever name it is opened, it is one file.
    return Path(path).resolve()
