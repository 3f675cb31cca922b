"""Calls of a feed, which fail now and then and are made again, later and later."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable
from typing import Any, final

import trio

__all__ = ["Telling"]

logger = logging.getLogger("turnstop.serve_rooms")

_OVER = (trio.ClosedResourceError, trio.EndOfChannel)
_HOPELESS = (ValueError, TypeError, OverflowError)
_TRIES = 10


@final
class Telling:
    """Makes calls of a feed.

    Attributes:
        troubles: calls that failed and were made again.

    Raises:
        ImportError: tenacity is not installed.
    """

    def __init__(self) -> None:
        # Here, since who runs turns without an inbox need not have it.
        try:
            import tenacity
        except ModuleNotFoundError as error:
            text = "serve_rooms needs tenacity: python -m pip install 'turnstop[inbox]'"
            raise ImportError(text) from error
        wait = tenacity.wait_exponential(multiplier=0.1, max=30.0) + tenacity.wait_random(0.0, 0.1)
        self.troubles = 0
        self._again = tenacity.AsyncRetrying(
            sleep=trio.sleep,
            wait=wait,
            retry=tenacity.retry_if_exception(_is_trouble),
            before_sleep=self._note,
            reraise=True,
        )
        self._give_up = self._again.copy(stop=_is_hopeless)

    async def insist(self, fn: Callable[..., Awaitable[Any]], *args: Any) -> Any:
        """Call a method until it does not raise.

        **Cancellation:** it may have been called.
        """
        return await self._call(self._again, fn, args)

    async def tell(
        self, fn: Callable[..., Awaitable[Any]], *args: Any, otherwise: object = None
    ) -> Any:
        """The same, but give up on what does not get better: a ValueError, TypeError, or overflow.

        Such a one is about what it was given: after about a minute of it, `otherwise` is returned.

        **Cancellation:** it may have been called.
        """
        try:
            return await self._call(self._give_up, fn, args)
        except _HOPELESS as error:
            name = type(error).__name__
            logger.error("the feed's %s raised %s each time: given up", _name_of(fn), name)
            logger.debug("it was", exc_info=error)
            return otherwise

    async def _call(
        self, retrying: Any, fn: Callable[..., Awaitable[Any]], args: tuple[Any, ...]
    ) -> Any:
        try:
            return await fn(*args)
        except Exception as error:
            first: list[Exception] = [error]

        async def call() -> Any:
            # Its machinery costs more than the call, which nearly always succeeds.
            if first:
                raise first.pop()
            return await fn(*args)

        call.__name__ = _name_of(fn)
        # A copy, for it keeps what a call has come to.
        return await retrying.copy()(call)

    def _note(self, state: Any) -> None:
        self.troubles += 1
        error = state.outcome.exception()
        # What it says may be what was said to the agent: not for every log.
        logger.warning(
            "the feed's %s failed (%s), and is tried again in %.1f s",
            state.fn.__name__,
            type(error).__name__,
            state.upcoming_sleep,
        )
        logger.debug("it was", exc_info=error)


def _name_of(fn: object) -> str:
    return getattr(fn, "__name__", "method")


def _is_trouble(error: BaseException) -> bool:
    return isinstance(error, Exception) and not isinstance(error, _OVER)


def _is_hopeless(state: Any) -> bool:
    return state.attempt_number >= _TRIES and isinstance(state.outcome.exception(), _HOPELESS)
