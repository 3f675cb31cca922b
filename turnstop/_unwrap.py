"""A nursery that is an implementation detail: its own exception group never leaks needlessly."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from typing import NoReturn

import trio
from trio.lowlevel import enable_ki_protection


@asynccontextmanager
@enable_ki_protection
async def open_private_nursery() -> AsyncGenerator[trio.Nursery, None]:
    """Like `trio.open_nursery`, but one error leaves as itself.

    Only the group that this nursery made is taken apart, and only where nothing is lost: it has
    one member, or the same one several times, or nothing but cancellations and what ends a program,
    Ctrl-C or an exit. A group that the body or a child raised stays whole.

    **Cancellation:** as with `trio.open_nursery`.
    """
    try:
        async with trio.open_nursery(strict_exception_groups=True) as nursery:
            yield nursery
    except BaseExceptionGroup as group:
        only = _only_member(group)
        if only is None:
            raise
        reraise(only)


def reraise(error: BaseException) -> NoReturn:
    """Raise an error as it is: `raise` alone would put what is being handled in its context."""
    context = error.__context__
    try:
        raise error
    finally:
        error.__context__ = context
        del error, context


def _only_member(group: BaseExceptionGroup[BaseException]) -> BaseException | None:
    members = group.exceptions
    if all(member is members[0] for member in members):
        return members[0]
    others = [member for member in members if not isinstance(member, trio.Cancelled)]
    if not others:
        return members[0]
    # Either comes while what was cancelled is waited for: the program ends, whatever was cancelled.
    for kind in (KeyboardInterrupt, SystemExit):
        if all(isinstance(member, kind) for member in others):
            return others[0]
    return None
