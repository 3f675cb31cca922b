"""Scopes: names of what is written, in segments, such as `repo/src/main.py`.

Two overlap where one is the other, or begins with all of its segments: `repo` and `repo/src`, but
not `repo/src` and `repo/src2`.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection, Iterable, Iterator
from typing import Final

from ._errors import MalformedScope

__all__ = ["below", "check_scope", "check_scopes", "covers", "upwards"]

_MOST_CHARACTERS: Final = 1000
_NO_SEGMENTS: Final = ("", ".", "..")


def check_scope(scope: str) -> str:
    """Return it as it is.

    Raises:
        MalformedScope: it names none.
        TypeError: it is no text.
    """
    if not isinstance(scope, str):
        raise TypeError(f"a scope is a str such as 'repo/src', not {scope!r}")
    if why := _fault(scope):
        raise MalformedScope(f"{scope[:80]!r} {why}; write it as in 'repo/src'")
    return scope


def _fault(scope: str) -> str:
    if len(scope) > _MOST_CHARACTERS:
        return f"has more than {_MOST_CHARACTERS} characters"
    # Two spellings of one scope would not overlap.
    if any(segment in _NO_SEGMENTS for segment in scope.split("/")):
        return "has a segment that is empty, '.' or '..'"
    if not unicodedata.is_normalized("NFC", scope):
        return "is not in Unicode's normal form NFC"
    # Also what can be no text of a file's: a lone surrogate.
    return "" if scope.isprintable() else "has a character that cannot be printed"


def check_scopes(scopes: Collection[str]) -> tuple[str, ...]:
    """Return them sorted, without those that others of them cover.

    Raises:
        MalformedScope: one of them names none.
        TypeError: they are one text, or one of them is none.
    """
    if isinstance(scopes, str):
        raise TypeError(f"scopes are several: [{scopes!r}], not {scopes!r}")
    found = {check_scope(scope) for scope in scopes}
    return tuple(sorted(one for one in found if not found & {*upwards(one)} - {one}))


def upwards(scope: str) -> Iterator[str]:
    """Itself, and everything that it is a part of."""
    while scope:
        yield scope
        scope = scope.rpartition("/")[0]


def below(scope: str) -> tuple[str, str]:
    """Between these two, in the order of code points, is everything that is a part of it."""
    # No character is between the two that end them.
    return f"{scope}/", f"{scope}0"


def covers(scopes: Iterable[str], scope: str) -> bool:
    """Whether one of them is the scope, or has it as a part."""
    return not {*scopes}.isdisjoint(upwards(scope))
