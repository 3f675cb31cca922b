"""Ctrl-C on every line of a journal's opening and closing: nothing of it is left behind."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from contextlib import closing
from functools import partial
from pathlib import Path
from types import CodeType

import pytest
import trio
from strikes import default_handler, files_of, is_bare, lines_of, opened, sweep_lines, sweep_steps

from turnstop.journal import open_journal

__all__ = ["default_handler", "opened"]

JOURNAL = files_of("journal/_journal", "journal/_entering", "journal/_session", "_sqlite")


class Scene:
    """A journal that is opened, noted in, and closed."""

    def __init__(self, folder: Path, opened: list[sqlite3.Connection]) -> None:
        self.path = Path(tempfile.mkdtemp(dir=folder)) / "turns.db"
        self.opened = opened
        self.saved = self.noted = False

    def run(self) -> None:
        trio.run(self.main)

    async def main(self) -> None:
        async with open_journal(self.path) as journal:
            entry = journal.admit("backend", "room", "turn")
            await entry.saved()
            self.saved = True
            entry.note_address("there")
            self.noted = True

    def check(self) -> None:
        for connection in self.opened:
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                connection.execute("SELECT 1")
        self.opened.clear()
        # Its locks: whoever looks would take it for a process that lives.
        names = [os.readlink(one) for one in Path("/proc/self/fd").iterdir() if one.is_symlink()]
        assert [name for name in names if str(self.path) in name] == []
        if not (self.path.exists() and self.path.stat().st_size):
            return
        with closing(sqlite3.connect(self.path)) as database:
            if not database.execute("SELECT name FROM sqlite_master").fetchall():
                return
            assert database.execute("SELECT id FROM sessions WHERE NOT ended").fetchall() == []
            kinds = database.execute("SELECT kind FROM records ORDER BY number").fetchall()
            assert not self.saved or ("admitted",) in kinds
            assert not self.noted or ("address",) in kinds


def test_ctrl_c_on_any_line_leaves_nothing_of_a_journal(
    tmp_path: Path, opened: list[sqlite3.Connection]
) -> None:
    make = partial(Scene, tmp_path, opened)
    scene = make()
    lines = lines_of(scene.run, JOURNAL)
    scene.check()
    assert scene.saved
    assert len(lines) > 100
    assert sweep_lines(make, lines, is_bare) == []


def opens(code: CodeType) -> bool:
    return code.co_filename in JOURNAL and code.co_name in (
        "open_journal",
        "open_database",
        "enter",
    )


def test_ctrl_c_at_any_step_of_its_opening_leaves_nothing_of_a_journal(
    tmp_path: Path, opened: list[sqlite3.Connection]
) -> None:
    steps, wrong = sweep_steps(partial(Scene, tmp_path, opened), opens, every=3)
    assert steps > 100
    assert wrong == []
