"""Files that are no journal, and disks that take none: told, left as they are, and no stop waits.

A file system that is full, or cannot be written, is a real one where we may mount one.
"""

from __future__ import annotations

import errno
import json
import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from turnstop import Ending, open_rooms
from turnstop.journal import open_journal
from turnstop.journal._reading import list_open

from .remote import Folders, obey
from .test_journal import Agent, stop_one, write_and_cut
from .test_recovery import owner, recover

ROOT = Path(__file__).parents[2]
NOBODY = 65534
Mount = Callable[..., None]


def may_be_looked_into(folder: Path) -> bool:
    return all(one.stat().st_mode & 0o001 for one in (folder, *folder.parents))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that anybody may look into."""
    roots = [root for root in (Path(tempfile.gettempdir()), Path("/tmp")) if root.is_dir()]
    if (root := next(filter(may_be_looked_into, roots), None)) is None:
        pytest.skip("there is no temporary folder that anybody may look into")
    folder = Path(tempfile.mkdtemp(dir=root))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture
def mount(place: Path) -> Iterator[Mount]:
    """Mount a small file system there, or change how it is mounted."""
    mounted = []

    def run(options: str) -> None:
        command = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(place)]
        try:
            subprocess.run(command, check=True, capture_output=True)
        except (OSError, subprocess.CalledProcessError):
            pytest.skip("nothing can be mounted here")
        mounted.append(place)

    yield run
    if mounted:
        subprocess.run(["umount", str(place)], check=True)


def run(module: str, *arguments: object) -> Any:
    command = [sys.executable, "-m", f"tests.journal.{module}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    found = subprocess.run(
        command, check=True, capture_output=True, env=environment, cwd=ROOT, timeout=60
    )
    return json.loads(found.stdout)


def opened_by(path: Path, user: int = 0) -> dict[str, str]:
    found: dict[str, str] = run("opening", path, user)
    return found


def contents(folder: Path) -> dict[str, bytes]:
    return {one.name: one.read_bytes() for one in folder.iterdir() if one.is_file()}


def is_told(found: dict[str, str], path: Path, *says: str) -> bool:
    return str(path) in found["text"] and any(one in found["text"].lower() for one in says)


async def make(path: Path) -> None:
    async with open_journal(path) as journal, open_rooms(Agent(), journal=journal) as rooms:
        await stop_one(rooms)


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become somebody who may do less")
@pytest.mark.parametrize(("folder_mode", "file_mode"), [(0o755, 0o644), (0o777, 0o444), (0o777, 0)])
async def test_a_file_that_is_not_ours_to_write(
    folder_mode: int, file_mode: int, place: Path
) -> None:
    path = place / "turns.db"
    await make(path)
    os.chmod(path, file_mode)
    os.chmod(place, folder_mode)
    before = contents(place)
    found = opened_by(path, NOBODY)
    assert is_told(found, path, "cannot be written"), found
    assert contents(place)["turns.db"] == before["turns.db"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs to become somebody who may do less")
def test_a_folder_that_is_not_ours_to_write(place: Path) -> None:
    path = place / "turns.db"
    found = opened_by(path, NOBODY)
    assert is_told(found, path, "permission"), found
    assert contents(place) == {}


async def test_a_file_system_that_cannot_be_written(place: Path, mount: Mount) -> None:
    mount("size=1m")
    path = place / "turns.db"
    await make(path)
    before = contents(place)
    mount("remount,ro")
    for name, says in ((path, "cannot be written"), (place / "another.db", "read-only")):
        found = opened_by(name)
        assert is_told(found, name, says), found
    assert contents(place) == before
    # It can still be looked at.
    assert await list_open(path) == []


def test_a_file_system_that_is_full_from_the_beginning(place: Path, mount: Mount) -> None:
    mount("size=512k")
    (place / "ballast").write_bytes(b"x" * 500 * 1024)
    path = place / "turns.db"
    found = opened_by(path)
    assert is_told(found, path, "full"), found
    (place / "ballast").unlink()
    # What was begun is in nobody's way.
    assert opened_by(path) == {"opened": str(path)}


@pytest.mark.parametrize("how", ["small", "removed", "full"])
def test_a_disk_that_breaks_takes_no_stop_away(
    how: str, place: Path, request: pytest.FixtureRequest
) -> None:
    if how == "full":
        request.getfixturevalue("mount")("size=512k")
    path = place / "turns.db"
    found = run("breaking", path, how)
    for turn in (found["first"], found["later"]):
        assert turn["ending"] == "stopped"
        # It waits for no disk: that would be tried again after a twentieth of a second.
        assert turn["took"] < 0.05
    assert found["waiting"] > 0
    (warning,) = found["warnings"]
    assert str(path) in warning
    assert found["failing"].partition(": ")[2] in warning
    # Once it is mended nothing is lost.
    assert (found["mended"], found["lost"]) == (None, 0)
    with sqlite3.connect(path) as database:
        kinds = database.execute("SELECT kind, COUNT(*) FROM records GROUP BY kind").fetchall()
        assert dict(kinds)["settled"] == dict(kinds)["asked"] == dict(kinds)["admitted"] == 2
        assert database.execute("SELECT * FROM open").fetchall() == []
    database.close()


def a_folder(path: Path) -> None:
    path.mkdir()
    (path / "inside").write_text("kept")


def a_pipe(path: Path) -> None:
    os.mkfifo(path)


def a_loop(path: Path) -> None:
    path.symlink_to(path)


def a_link_to_nowhere(path: Path) -> None:
    path.symlink_to(path.parent / "nowhere" / "turns.db")


@pytest.mark.parametrize(
    ("make_it", "says"),
    [
        (a_folder, "no regular file"),
        (a_pipe, "no regular file"),
        (a_loop, "leads to itself"),
        (a_link_to_nowhere, "no such file"),
    ],
)
def test_what_is_no_file(make_it: Callable[[Path], None], says: str, place: Path) -> None:
    path = place / "turns.db"
    make_it(path)
    before = sorted(place.rglob("*"))
    found = opened_by(path)
    where = "nowhere" if make_it is a_link_to_nowhere else str(path)
    assert is_told(found, Path(where), says), found
    assert sorted(place.rglob("*")) == before


async def test_a_file_with_several_names(path: Path) -> None:
    await make(path)
    os.link(path, path.with_name("another.db"))
    before = contents(path.parent)
    with pytest.raises(sqlite3.DatabaseError, match="several names") as refused:
        async with open_journal(path):
            raise AssertionError
    assert str(path) in str(refused.value)
    assert contents(path.parent) == before


async def test_a_name_that_leads_to_the_file_is_the_file(path: Path) -> None:
    link = path.with_name("link.db")
    link.symlink_to(path)
    for name in (link, path):
        await make(name)
    assert link.is_symlink()
    with sqlite3.connect(path) as database:
        assert database.execute("SELECT COUNT(*) FROM records").fetchall() == [(8,)]
    database.close()


ODD = ["a b", "100%", "%41", "a?b=c", "#1", "it's", 'a"b', "ü", "\udcff", "a\nb", ":memory:", "-x"]


@pytest.mark.parametrize("name", ODD)
async def test_an_odd_name(name: str, tmp_path: Path) -> None:
    path = tmp_path / name
    await make(path)
    assert path.read_bytes().startswith(b"SQLite format 3")
    assert await list_open(path) == []
    assert all(one.startswith(name) for one in os.listdir(tmp_path))


async def test_a_name_that_is_too_long(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="too long") as refused:
        async with open_journal(tmp_path / ("x" * 300)):
            raise AssertionError
    assert refused.value.errno == errno.ENAMETOOLONG


@pytest.mark.parametrize("name", ["", "a\0b"])
async def test_a_name_that_no_file_can_have(name: str) -> None:
    with pytest.raises(ValueError, match="none can have such a name") as refused:
        async with open_journal(name):
            raise AssertionError
    assert str(refused.value).endswith(f": got {name!r}")


async def test_a_file_whose_tables_are_gone(path: Path) -> None:
    with sqlite3.connect(path) as database:
        database.execute(f"PRAGMA application_id = {int.from_bytes(b'tnjl')}")
        database.execute("PRAGMA user_version = 1")
    database.close()
    with pytest.raises(sqlite3.OperationalError, match="it is damaged: move it away"):
        async with open_journal(path):
            raise AssertionError


def write_over(path: Path) -> bytes:
    before = bytearray(write_and_cut(path, 1.0))
    for page in range(1, len(before) // 4096):
        before[page * 4096 : page * 4096 + 64] = b"\xff" * 64
    path.write_bytes(before)
    return bytes(before)


async def test_a_page_that_was_written_over(path: Path) -> None:
    before = write_over(path)
    with pytest.raises(sqlite3.DatabaseError, match="malformed") as refused:
        async with open_journal(path):
            raise AssertionError
    assert str(path) in str(refused.value)
    assert contents(path.parent)[path.name] == before


@pytest.mark.parametrize("left", [0.3, 0.6, 0.95])
async def test_a_log_that_was_cut_in_a_record_keeps_what_was_before(
    left: float, path: Path, tmp_path: Path, nursery: Any
) -> None:
    root, ids = tmp_path / "agents", [f"{room}-1" for room in "abcdefgh"]
    with owner(path, root, *ids):
        pass
    log = path.with_name(path.name + "-wal")
    # Neither a page nor the head of one ends there.
    os.truncate(log, int(log.stat().st_size * left) | 1)
    nursery.start_soon(obey, root)
    found = await recover(path, Folders(root))
    assert {one.ending for one in found} <= {Ending.STOPPED}
    told = {one.turn_id for one in found}
    assert {id for id in ids if (root / id / "stop").exists()} == told
    await make(path)


async def test_a_clock_that_went_back_hides_nothing(
    path: Path, tmp_path: Path, nursery: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, now = tmp_path / "agents", time.time
    with owner(path, root, "a-1"):
        pass
    nursery.start_soon(obey, root)
    monkeypatch.setattr(time, "time", lambda: now() - 3600.0)
    (found,) = await recover(path, Folders(root))
    assert found.ending is Ending.STOPPED
    with sqlite3.connect(path) as database:
        rows = database.execute("SELECT kind FROM records ORDER BY number").fetchall()
        assert database.execute("SELECT * FROM open").fetchall() == []
    database.close()
    assert [kind for (kind,) in rows][-2:] == ["asked", "settled"]
