"""What a saboteur is: a kernel or an adapter with one promise removed, and how one is made."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from typing import Any, Literal, TypeVar

import attrs

from .._run import MakeProbe
from ._wrap import Sabotage, wrap

__all__ = ["SABOTEURS", "Saboteur", "in_adapter", "in_kernel"]

Made = TypeVar("Made", bound=Callable[..., Any])


@attrs.frozen
class Saboteur:
    """One promise removed.

    Attributes:
        name: the name of the function or class that does it.
        says: what it does, in words: the first line of its docstring.
        where: whose promise it removes.
        breaks: the obligations it belongs to: each must be red while it is at work.
        needs: levers without which the far end cannot show the difference.
    """

    name: str
    says: str
    where: Literal["kernel", "adapter"]
    breaks: tuple[str, ...]
    needs: tuple[str, ...]
    _apply: Callable[[MakeProbe], AbstractContextManager[MakeProbe]] = attrs.field(repr=False)

    def at_work(self, make_probe: MakeProbe) -> AbstractContextManager[MakeProbe]:
        """Remove the promise: from the kernel, inside the block; or from the probes made here."""
        return self._apply(make_probe)


SABOTEURS: dict[str, Saboteur] = {}
"""Every saboteur by its name."""


def in_kernel(
    owner: Any,
    name: str,
    *also: tuple[Any, str, Callable[..., Any]],
    breaks: tuple[str, ...],
    needs: tuple[str, ...] = (),
) -> Callable[[Made], Made]:
    """Register a saboteur of the kernel: a function that stands in for a function of it.

    Args:
        owner: the class or module whose function it is.
        name: its name there.
        also: more of this kind, each with its stand-in, where one alone removes nothing.
        breaks: see `Saboteur`, as the next ones.
        needs: see there.

    The function is given the honest one first, and then what that would have been given.
    """

    def register(stand_in: Made) -> Made:
        @contextmanager
        def apply(make_probe: MakeProbe) -> Iterator[MakeProbe]:
            with ExitStack() as stack:
                stack.enter_context(_replaced(owner, name, stand_in))
                for place, its_name, its in also:
                    stack.enter_context(_replaced(place, its_name, its))
                yield make_probe

        _register(stand_in, "kernel", breaks, needs, apply)
        return stand_in

    return register


@contextmanager
def _replaced(owner: Any, name: str, stand_in: Callable[..., Any]) -> Iterator[None]:
    honest = vars(owner)[name]
    setattr(owner, name, lambda *args, **kw: stand_in(honest, *args, **kw))
    try:
        yield
    finally:
        setattr(owner, name, honest)


def in_adapter(
    *breaks: str, needs: tuple[str, ...] = ()
) -> Callable[[type[Sabotage]], type[Sabotage]]:
    """Register a saboteur of adapters: a subclass of `Turn` or `Backend` of `_wrap`.

    Args:
        breaks: see `Saboteur`, as the next ones.
        needs: see there.
    """

    def register(kind: type[Sabotage]) -> type[Sabotage]:
        def apply(make_probe: MakeProbe) -> AbstractContextManager[MakeProbe]:
            return nullcontext(lambda: wrap(make_probe(), kind))

        _register(kind, "adapter", breaks, needs, apply)
        return kind

    return register


def _register(
    what: Any,
    where: Literal["kernel", "adapter"],
    breaks: tuple[str, ...],
    needs: tuple[str, ...],
    apply: Callable[[MakeProbe], AbstractContextManager[MakeProbe]],
) -> None:
    name = what.__name__
    if name in SABOTEURS:
        raise ValueError(f"there is a saboteur {name} already")
    says = (inspect.getdoc(what) or name).partition("\n")[0].rstrip(".")
    SABOTEURS[name] = Saboteur(name, says, where, breaks, needs, apply)
