"""A feed in a file: what survives, who may serve it, and what it says when it cannot be used."""

from __future__ import annotations

import os
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from turnstop import Control
from turnstop.feeds import Claim, Standing
from turnstop.feeds.sqlite import FeedInUse, open_sqlite_feed

from .posting import PLAY, STOP, post, press, received

OPEN = """
import sys, trio
from turnstop.feeds.sqlite import open_sqlite_feed

async def main():
    async with open_sqlite_feed(sys.argv[1], serve=sys.argv[2] == "serve") as feed:
        await feed.post("a", "from another process", id="other")

trio.run(main)
"""


async def run_another(path: Path, how: str) -> subprocess.CompletedProcess[str]:
    root = Path(__file__).parents[2]
    done: subprocess.CompletedProcess[bytes] = await trio.run_process(
        [sys.executable, "-c", OPEN, str(path), how],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(root), *sys.path])},
        capture_stdout=True,
        capture_stderr=True,
        check=False,
    )
    return subprocess.CompletedProcess(done.args, done.returncode, "", done.stderr.decode())


async def test_what_is_not_finished_survives_and_what_is_does_not(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path, attempts=2) as feed:
        one, two, three = await post(feed, "a", "1", "2", "3")
        for message in (one, two):
            assert await feed.claim(message) is Claim.MINE
        await feed.acknowledge(one)
        await feed.fail(two, "why")
        await feed.applied(Control(STOP), ["b"])
    async with open_sqlite_feed(path, attempts=2) as feed:
        assert await feed.rooms() == {"a": Standing(waiting=True), "b": Standing(paused=True)}
        again = await feed.next("a")
        assert (again.id, again.attempt, again.content) == ("2", 1, {"work": "2"})
        assert [message.id for message in await received(feed, 2)] == ["2", "3"]
        await feed.acknowledge(again)
        assert await feed.next("a") == three
        # An id is posted once, finished or not.
        assert await post(feed, "a", "1") == [None]
        await feed.acknowledge(three)
        assert await feed.next("a") is None


async def test_a_control_comes_again_until_it_was_applied(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path) as feed:
        await press(feed, STOP, "a", id="one")
        await press(feed, STOP, "a", id="two")
        one, two = await received(feed, 2)
        await feed.applied(one, ["a"])
    async with open_sqlite_feed(path) as feed:
        again = await feed.receive()
        assert again == two
        await press(feed, STOP, "b")
        three = await feed.receive()
        await feed.applied(again, ["a"])
        await feed.applied(three, ["b"])
    async with open_sqlite_feed(path) as feed:
        with trio.move_on_after(0.1) as scope:
            await feed.receive()
        assert scope.cancelled_caught


async def test_a_control_that_was_told_in_vain_is_told_again(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path) as feed:
        await press(feed, STOP, "a")
        control = await feed.receive()
        with fill(feed), pytest.raises(sqlite3.OperationalError, match="full"):
            await feed.applied(control, [f"room {number}" for number in range(10_000)])
        await feed.applied(control, ["a"])
    async with open_sqlite_feed(path) as feed:
        with trio.move_on_after(0.1) as scope:
            await feed.receive()
        assert scope.cancelled_caught


async def test_of_two_equal_controls_each_is_its_own(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path) as feed:
        await press(feed, STOP, "a")
        await feed.receive()
        await feed.applied(Control(STOP, "a"), ["a"])
    async with open_sqlite_feed(path) as feed:
        with trio.fail_after(10):
            assert await feed.receive() == Control(STOP, "a")


async def test_a_control_is_heard_in_its_place(tmp_path: Path) -> None:
    async with open_sqlite_feed(tmp_path / "feed.db") as feed:
        await post(feed, "a", *(f"a{number}" for number in range(250)))
        await press(feed, STOP, "a")
        await post(feed, "b", "b1")
        items = await received(feed, 252)
        assert items[250] == Control(STOP, "a")
        assert items[251].id == "b1"
        # In a row, whatever the batches are.
        assert [item.id for item in items[:250]] == [f"a{number}" for number in range(250)]


async def test_one_process_serves_and_others_may_post(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path, poll_every=0.05) as feed:
        with pytest.raises(FeedInUse, match=r"another process serves .*feed\.db: end it"):
            async with open_sqlite_feed(path):
                pass
        refused = await run_another(path, "serve")
        assert refused.returncode == 1
        assert "FeedInUse: another process serves" in refused.stderr
        posted = await run_another(path, "post")
        assert (posted.returncode, posted.stderr) == (0, "")
        with trio.fail_after(20):
            message = await feed.receive()
        assert (message.id, message.content) == ("other", "from another process")
    assert (await run_another(path, "serve")).returncode == 0


@contextmanager
def fill(feed: Any) -> Iterator[None]:
    """The disk of this feed is full meanwhile."""
    database: sqlite3.Connection = feed._file._writer
    ((pages,),) = database.execute("PRAGMA page_count").fetchall()
    database.execute(f"PRAGMA max_page_count = {pages}").fetchall()
    try:
        yield
    finally:
        database.execute("PRAGMA max_page_count = 1000000").fetchall()


async def test_a_full_disk_is_told_to_whoever_posts_and_nothing_is_posted(tmp_path: Path) -> None:
    async with open_sqlite_feed(tmp_path / "feed.db") as feed:
        with fill(feed), pytest.raises(sqlite3.OperationalError, match="full"):
            await feed.post("a", "x" * 1_000_000, id="1")
        assert await feed.next("a") is None
        await feed.post("a", "x" * 1_000_000, id="1")
        assert (await feed.next("a")).id == "1"


async def test_what_is_no_json_is_not_posted(tmp_path: Path) -> None:
    async with open_sqlite_feed(tmp_path / "feed.db") as feed:
        with pytest.raises(TypeError):
            await feed.post("a", {1, 2})
        assert await feed.rooms() == {}


@pytest.mark.parametrize(
    ("content", "says"),
    [(b"this is no database at all" * 50, "not a database"), (None, "newer turnstop")],
)
async def test_a_file_that_is_none_of_ours_is_named(
    tmp_path: Path, content: bytes | None, says: str
) -> None:
    path = tmp_path / "feed.db"
    if content is None:
        with sqlite3.connect(path) as database:
            database.execute(f"PRAGMA application_id = {int.from_bytes(b'turn')}")
            database.execute("PRAGMA user_version = 99")
        database.close()
    else:
        path.write_bytes(content)
    with pytest.raises(sqlite3.DatabaseError, match=rf"feed\.db: .*{says}"):
        async with open_sqlite_feed(path):
            pass
    assert content is None or path.read_bytes() == content
    # Nobody holds it after that.
    with pytest.raises(sqlite3.DatabaseError):
        async with open_sqlite_feed(path):
            pass


async def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    for serve in (True, False):
        with pytest.raises((OSError, sqlite3.OperationalError), match=r"nowhere/feed\.db"):
            async with open_sqlite_feed(tmp_path / "nowhere" / "feed.db", serve=serve):
                pass


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anything")
async def test_a_file_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path):
        pass
    path.chmod(0o400)
    with pytest.raises(sqlite3.OperationalError, match=r"feed\.db: .*readonly"):
        async with open_sqlite_feed(path):
            pass


async def test_another_that_writes_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path) as feed, open_sqlite_feed(path, serve=False) as other:
        async with trio.open_nursery() as nursery:
            for number in range(20):
                nursery.start_soon(feed.post, "a", number)
                nursery.start_soon(other.post, "a", number)
        await press(other, PLAY, None)
        assert len(await received(feed, 41)) == 41
