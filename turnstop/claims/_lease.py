"""How long a claim is held, and what renews it.

The store decides who holds what; here is only how much of that is known. A claim counts from the
moment *before* the store was asked, so it is lost here before it has lapsed there. Once lost, it
stays lost: somebody else may have written since.
"""

from __future__ import annotations

import logging
from contextlib import suppress
from typing import Final

import attrs
import trio
from trio.lowlevel import enable_ki_protection

from ._errors import ClaimsUnavailable
from ._register import Register
from ._store import Wanted

__all__ = ["Lease"]

logger = logging.getLogger("turnstop.claims")

_OFTEN: Final = 3
_SOON: Final = 12


@attrs.define(eq=False)
class Lease:
    """What a block holds, or works without.

    Attributes:
        token: None where nobody was asked, or nobody answered.
        asked: when the store was, in Trio's time.
        progress_within: see `Claims.hold`.
        progressed: when its work last said so.
        is_over: it is renewed no more.
        is_left_held: it is not released when its block is left.
        clock: Trio's, for whoever is in another thread.
    """

    register: Register
    wanted: Wanted
    token: int | None
    asked: float
    progress_within: float | None
    clock: trio.abc.Clock = attrs.field(factory=trio.lowlevel.current_clock, init=False)
    lost: trio.Event = attrs.field(factory=trio.Event, init=False)
    why_lost: str = attrs.field(default="", init=False)
    progressed: float = attrs.field(init=False)
    is_over: bool = attrs.field(default=False, init=False)
    is_left_held: bool = attrs.field(default=False, init=False)
    _until: float = attrs.field(init=False)
    _due: float = attrs.field(init=False)
    _not_renewed: str = attrs.field(default="", init=False)

    def __attrs_post_init__(self) -> None:
        self.progressed = self.asked
        self._until = self.asked + self.wanted.ttl
        self._due = self.asked + self.wanted.ttl / _OFTEN

    def lose(self, why: str) -> None:
        """It is held no more, and never again."""
        if not self.lost.is_set():
            self.why_lost = why
            self.lost.set()

    @enable_ki_protection
    async def keep(self) -> None:
        """Renew it each third of its time, until it is lost."""
        while not self.lost.is_set():
            await trio.sleep_until(min(self._due, self._until))
            now = trio.current_time()
            if now >= self._until:
                self._lapse(self._not_renewed or "there was no time to renew it")
                return
            if why := self._why_not(now):
                self._leave_it(why)
            else:
                await self.renew()
            # Its time runs out: there are some more tries in it.
            self._due = now + self.wanted.ttl / (_SOON if self._not_renewed else _OFTEN)

    def _why_not(self, now: float) -> str:
        if self.is_over:
            return "its work counts as over"
        within = self.progress_within
        if within is not None and now - self.progressed >= within:
            return f"there was no progress for {within} s"
        return ""

    async def affirm(self) -> None:
        """For a hold inside: renew it. Where it is renewed no more: see that it has not lapsed."""
        if not self._why_not(trio.current_time()):
            await self.renew()
            return
        assert self.token is not None
        check, scope = self.register.store.check, self.wanted.scopes[0]
        with trio.move_on_at(self._until):
            # That the store fails is no reason to give it up.
            with suppress(ClaimsUnavailable):
                if not await self.register.is_live(check, self.token, scope):
                    self._lapse("the store holds it no more")

    async def renew(self) -> None:
        """Renew it once. That the store fails is no reason to give it up: it has its time."""
        asked = trio.current_time()
        store = self.register.store
        # Where it does not answer in that time there is nothing left to be renewed.
        with trio.move_on_at(self._until):
            try:
                is_live = await self.register.is_live(
                    store.renew, self.wanted.lease, self.wanted.ttl
                )
            except ClaimsUnavailable as error:
                self._leave_it(str(error))
            else:
                self._note_renewal(is_live, asked)

    def _note_renewal(self, is_live: bool, asked: float) -> None:
        if is_live:
            # A hold inside renews it too, and its answer may come first.
            self._until = max(self._until, asked + self.wanted.ttl)
            self._not_renewed = ""
        else:
            self._lapse("the store holds it no more")

    def _leave_it(self, why: str) -> None:
        if why != self._not_renewed:
            self._not_renewed = why
            logger.warning("claim %s of %s is not renewed: %s", self.token, self.wanted.holder, why)

    def _lapse(self, why: str) -> None:
        if not self.lost.is_set():
            self.register.lost += 1
            self.lose(why)
            logger.error("claim %s of %s has lapsed: %s", self.token, self.wanted.holder, why)
