"""What the tests of the journal have in common."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

Read = Callable[[str], list[Any]]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "turns.db"


@pytest.fixture
def read(path: Path) -> Read:
    """Read what is in the file, as another program does."""

    def run(query: str) -> list[Any]:
        with closing(sqlite3.connect(path)) as database:
            return database.execute(query).fetchall()

    return run


@pytest.fixture
def records(read: Read) -> Callable[[], list[tuple[str, Any]]]:
    """The kinds of the records and what they say, in their order."""

    def run() -> list[tuple[str, Any]]:
        rows = read("SELECT kind, said FROM records ORDER BY number")
        return [(kind, json.loads(said)) for kind, said in rows]

    return run
