"""What a factory makes of a backend, whatever form it has; told in one line where it has none."""

from __future__ import annotations

import inspect
import traceback
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from ..abc import Backend

__all__ = ["NotABackend", "describe", "name_of", "open_made"]


class NotABackend(Exception):
    """What was to be checked is no backend; the text says what it is, and what to do."""


def name_of(factory: Any) -> str:
    """What it is called in reports: `open_mine`, `Mine`."""
    return getattr(factory, "__qualname__", "") or type(factory).__qualname__


def describe(error: BaseException) -> str:
    """What was raised, all of it where it is a group, and where: in one line."""
    if isinstance(error, BaseExceptionGroup):
        return " and ".join(describe(one) for one in error.exceptions)
    return f"{type(error).__name__}: {error}{_place(error)}"


def _place(error: BaseException) -> str:
    if isinstance(error, SyntaxError):
        return ""  # its text says where
    frames = traceback.extract_tb(error.__traceback__)
    found = [one for one in frames if not one.filename.startswith("<")]
    return f" ({found[-1].filename}:{found[-1].lineno})" if found else ""


@asynccontextmanager
async def open_made(factory: Any) -> AsyncGenerator[Backend[Any], None]:
    """Call a factory, and open what it makes.

    Args:
        factory: as `bare_probe` takes it.

    Raises:
        NotABackend: that does not work, or it makes something else.

    **Cancellation:** closes what was opened.
    """
    async with AsyncExitStack() as stack:
        try:
            made = await _make(factory)
            if hasattr(made, "__aenter__"):
                made = await stack.enter_async_context(made)
        except NotABackend:
            raise
        except Exception as error:
            raise NotABackend(f"{name_of(factory)} raised {describe(error)}") from error
        if not callable(getattr(made, "start", None)):
            raise NotABackend(
                f"{name_of(factory)} gives {_show(made)}, which has no start: a backend has "
                "`async def start(self, request)`, as turnstop.abc.Backend says"
            )
        yield made


async def _make(factory: Any) -> Any:
    if not callable(factory):
        return factory
    _check_arguments(factory)
    made = factory()
    if inspect.isasyncgen(made):
        await made.aclose()
        raise NotABackend(f"{name_of(factory)} is a generator: decorate it: @asynccontextmanager")
    if inspect.isawaitable(made):
        made = await made
    if hasattr(made, "__enter__") and not hasattr(made, "__aenter__"):
        text = "is a context manager, and no async one: make it with @asynccontextmanager"
        raise NotABackend(f"what {name_of(factory)} gives {text}")
    return made


def _check_arguments(factory: Any) -> None:
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        text = f"cannot be called without arguments ({error}): name a function that can"
        raise NotABackend(f"{name_of(factory)} {text}") from None
    except ValueError:
        return  # builtins do not tell


def _show(made: Any) -> str:
    text = repr(made)
    return text if len(text) <= 80 else f"{text[:80]}…"
