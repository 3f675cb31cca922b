"""Which agent is served: an adapter by its name, a factory, or the one that demonstrates."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, TypeAlias

from ...testing._loading import Missing
from ...testing.inventory import read_inventory
from ..probe.naming import Unnamed, find, near
from .demo import open_demo

__all__ = ["NoAgent", "Opener", "opener_of"]

Opener: TypeAlias = Callable[[], AbstractAsyncContextManager[Any]]


class NoAgent(Exception):
    """There is no such agent, or it cannot be opened like that; the text is one line."""


def opener_of(adapter: str | None, args: Sequence[str]) -> Opener:
    """What opens the agent that is meant.

    Args:
        adapter: an adapter's name, or `module:factory`; None: the demonstration.
        args: what its `open_*` is given: what it takes by position, or a command line.

    Raises:
        NoAgent: there is none, or it takes other arguments.
    """
    if adapter is None:
        return open_demo
    open_it = _factory(adapter) if ":" in adapter else _of_adapter(adapter)
    try:
        signature = inspect.signature(open_it)
    except (TypeError, ValueError):
        return lambda: _opening(adapter, lambda: open_it(*args))
    given: tuple[Any, ...] = tuple(args)
    if adapter == "local":
        given = tuple(map(_factory, args))
    if args and next(iter(signature.parameters), "") == "command":
        given = ([*args],)
    try:
        signature.bind(*given)
    except TypeError:
        words = " ".join(name.upper() for name in _needed(signature))
        text = f"it takes {words} behind its name" if words else "it takes no more arguments"
        raise NoAgent(f"{adapter} cannot be opened with {list(args)}: {text}") from None
    return lambda: _opening(adapter, lambda: open_it(*given))


@asynccontextmanager
async def _opening(name: str, call: Callable[[], Any]) -> AsyncGenerator[Any, None]:
    opened = call()
    text = f"{name} is no factory of a backend: it has to return an async context manager"
    if not hasattr(type(opened), "__aenter__"):
        if inspect.iscoroutine(opened):
            opened.close()
        raise NoAgent(f"{text}, and returns a {type(opened).__name__}")
    async with opened as backend:
        if not callable(getattr(backend, "start", None)):
            raise NoAgent(f"{text} that yields a backend, and it yields a {type(backend).__name__}")
        yield backend


def _needed(signature: inspect.Signature) -> list[str]:
    return [
        one.name
        for one in signature.parameters.values()
        if one.default is one.empty and one.kind is one.POSITIONAL_OR_KEYWORD
    ]


def _factory(target: str) -> Callable[..., Any]:
    try:
        found = find(target)
    except (Unnamed, Missing) as error:
        raise NoAgent(str(error)) from None
    if not callable(found):
        raise NoAgent(f"{target} is no factory of a backend: it cannot be called")
    call: Callable[..., Any] = found
    return call


def _of_adapter(name: str) -> Callable[..., Any]:
    adapters = read_inventory().adapters
    if name not in adapters:
        close = near(name, [*adapters]) or f": there are {', '.join(sorted(adapters))}"
        raise NoAgent(f"there is no adapter {name}{close}")
    module, _, attribute = adapters[name].partition(":")
    try:
        found = importlib.import_module(module)
    except ImportError as error:
        if (error.name or "").startswith("turnstop."):
            raise
        if error.name is None:  # it has said itself what it needs
            raise NoAgent(str(error)) from None
        text = f"python -m pip install 'turnstop[{name}]'"
        raise NoAgent(f"{name} needs {error.name}, which is not installed: {text}") from None
    call: Callable[..., Any] = getattr(found, attribute or f"open_{name}")
    return call
