"""A file of turnstop's own of which something else is wanted is told by what it holds."""

from __future__ import annotations

import itertools
import sqlite3
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Final

import pytest

from turnstop.claims import open_claims
from turnstop.feeds.sqlite import open_sqlite_feed
from turnstop.journal import open_journal

OPENERS: Final[dict[str, Callable[[Path], AbstractAsyncContextManager[Any]]]] = {
    "messages": open_sqlite_feed,
    "turns": open_journal,
    "claims": open_claims,
}


@pytest.mark.parametrize(("held", "wanted"), [*itertools.permutations(OPENERS, 2)])
async def test_a_file_of_another_kind_says_which(held: str, wanted: str, tmp_path: Path) -> None:
    path = tmp_path / "kept.db"
    async with OPENERS[held](path):
        pass
    with pytest.raises(sqlite3.DatabaseError) as refused:
        async with OPENERS[wanted](path):
            raise AssertionError
    assert str(refused.value) == f"{path}: it holds {held}, not {wanted}: take another file"
    async with OPENERS[held](path):
        pass
