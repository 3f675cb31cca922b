"""A feed in a file that others have too: who reads it, who locks it, and what it keeps."""

from __future__ import annotations

import os
import sqlite3
import stat
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from turnstop import Control, ControlKind, Delivery, _sqlite, open_rooms, serve_rooms
from turnstop.adapters.local import Work, open_local
from turnstop.feeds import Claim, Standing, sqlite
from turnstop.feeds.sqlite import FeedInUse, open_sqlite_feed

from .posting import PLAY, STOP, post, press, received


@contextmanager
def kept_busy(path: Path) -> Iterator[sqlite3.Connection]:
    """Another program has begun to write, and takes its time."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield other


def rows(path: Path, query: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as database:
        return database.execute(query).fetchall()


def modes_in(folder: Path) -> dict[str, int]:
    return {one.name: stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}


async def test_who_reads_waits_for_nobody_who_writes(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path, poll_every=0.02) as feed, trio.open_nursery() as nursery:
        one, two = await post(feed, "a", "1", "2")
        with kept_busy(path):
            nursery.start_soon(feed.post, "a", "later")
            nursery.start_soon(feed.acknowledge, two)
            await trio.sleep(0.05)
            begun = time.monotonic()
            for _ in range(10):
                assert await feed.next("a") == one
                assert await feed.claim(one) is Claim.MINE
                await feed.release(one)
            assert await received(feed, 2) == [one, two]
            assert await feed.rooms() == {"a": Standing(waiting=True)}
            # It would be the time that one try to write takes, for each.
            assert time.monotonic() - begun < 1.0
            assert [len(rows(path, "SELECT * FROM messages"))] == [2]


async def test_who_is_cancelled_while_the_file_is_locked_leaves_at_once(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path) as feed:
        (one,) = await post(feed, "a", "1")
        with kept_busy(path):
            begun = time.monotonic()
            with trio.move_on_after(0.2) as scope:
                async with trio.open_nursery() as nursery:
                    for _ in range(10):
                        nursery.start_soon(feed.acknowledge, one)
            assert scope.cancelled_caught
            assert time.monotonic() - begun < 2.0
        assert await feed.next("a") == one
        await feed.acknowledge(one)
        assert await feed.next("a") is None


async def test_rooms_end_in_time_while_the_file_is_locked(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"

    async def work(work: Work) -> None:
        await trio.sleep_forever()

    async def handle(delivery: Delivery) -> None:
        async with delivery.turn() as turn:
            async for _ in turn:
                pass

    async with (
        open_sqlite_feed(path) as feed,
        open_local(work) as local,
        open_rooms(local) as rooms,
        trio.open_nursery() as nursery,
    ):
        serve = partial(serve_rooms, rooms, handle, feed, finish_within=0.3)
        inbox = await nursery.start(serve)
        for room in "abc":
            await feed.post(room, "long", id=room)
        while inbox.statistics().handling < 3:  # noqa: ASYNC110
            await trio.sleep(0.01)
        with kept_busy(path):
            for room in "abc":
                inbox.control(Control(ControlKind.INTERRUPT, room))
            begun = time.monotonic()
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                while inbox.statistics().handling:  # noqa: ASYNC110
                    await trio.sleep(0.01)
            assert time.monotonic() - begun < 3.0


async def test_a_locked_file_is_waited_for_and_then_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path) as feed:
        async with trio.open_nursery() as nursery:
            with kept_busy(path):
                nursery.start_soon(feed.post, "a", "waits")
                await trio.sleep(0.4)
        assert (await feed.next("a")).content == "waits"
        monkeypatch.setattr(_sqlite, "_PATIENCE", 0.2)
        with kept_busy(path), pytest.raises(sqlite3.OperationalError, match="locked"):
            await feed.post("b", "too late")
        assert await feed.rooms() == {"a": Standing(waiting=True)}


async def test_a_refusal_that_failed_once_is_made_again(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path) as feed:
        one, two, three = await post(feed, "a", "1", "2", "3")
        feed._file._writer.execute("PRAGMA query_only = ON")
        with pytest.raises(sqlite3.OperationalError):
            await feed.refuse(one, "no")
        feed._file._writer.execute("PRAGMA query_only = OFF")
        with trio.CancelScope() as scope:
            scope.cancel()
            await feed.refuse(two, "no")
        assert await feed.claim(two) is Claim.MINE
        await feed.refuse(one, "no")
        assert await feed.claim(one) is Claim.FINISHED
        assert await feed.next("a") == two
        assert await feed.claim(three) is Claim.MINE


async def test_what_is_refused_and_claimed_at_once_is_one_of_both(tmp_path: Path) -> None:
    async with open_sqlite_feed(tmp_path / "feed.db") as feed:
        for number in range(40):
            (one,) = await post(feed, "a", str(number))
            claims: list[Claim] = []

            async def claim(one: Any = one, claims: list[Claim] = claims) -> None:
                claims.append(await feed.claim(one))

            async with trio.open_nursery() as nursery:
                for fn in (claim, partial(feed.refuse, one, "no"), claim):
                    nursery.start_soon(fn)
            if Claim.MINE in claims:
                assert await feed.next("a") == one
                await feed.acknowledge(one)
            assert await feed.next("a") is None
            assert claims.count(Claim.MINE) <= 1


async def test_what_was_said_is_for_its_owner_and_goes_when_it_has_finished(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    before = os.umask(0)
    try:
        async with open_sqlite_feed(path) as feed:
            one, two, _ = await post(feed, "a", "secret", "secret too", "waits")
            await feed.acknowledge(one)
            await feed.refuse(two, "no")
            modes = modes_in(tmp_path)
    finally:
        os.umask(before)
    assert modes == dict.fromkeys(["feed.db", "feed.db-wal", "feed.db-shm", "feed.db.lock"], 0o600)
    assert rows(path, "SELECT id, content FROM messages ORDER BY number") == [
        ("secret", ""),
        ("secret too", ""),
        ("waits", '{"work": "waits"}'),
    ]


def carelessly(monkeypatch: pytest.MonkeyPatch) -> None:
    """As SQLite is where it was compiled to be fast and to leave what is deleted where it was."""
    connect = _sqlite._open

    def careless(path: Path) -> sqlite3.Connection:
        database = connect(path)
        database.execute("PRAGMA secure_delete = OFF")
        database.execute("PRAGMA synchronous = OFF")
        return database

    monkeypatch.setattr(_sqlite, "_open", careless)


async def test_what_was_said_is_not_on_the_disk_soon_after_it_has_finished(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carelessly(monkeypatch)
    path = tmp_path / "feed.db"

    def found() -> set[str]:
        return {one.name for one in tmp_path.iterdir() if b"secret" in one.read_bytes()}

    async with open_sqlite_feed(path, poll_every=0.05) as feed, trio.open_nursery() as nursery:
        messages = [await feed.post("a", "secret " * 100, id=str(number)) for number in range(50)]
        assert found()
        await received(feed, 50)
        # Whoever serves it listens.
        nursery.start_soon(received, feed, 2)
        for message in messages:
            await feed.acknowledge(message)
        with trio.fail_after(10):
            while found():  # noqa: ASYNC110
                await trio.sleep(0.02)
        # Also where another keeps it busy at first, which whoever listens is not held up by.
        more = await feed.post("a", "secret", id="more")
        await feed.acknowledge(more)
        with kept_busy(path):
            await trio.sleep(0.3)
        with trio.fail_after(10):
            while found():  # noqa: ASYNC110
                await trio.sleep(0.02)
        nursery.cancel_scope.cancel()
    assert not found()


async def test_what_was_posted_is_on_the_disk_before_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    carelessly(monkeypatch)
    full = 2
    async with open_sqlite_feed(tmp_path / "feed.db") as feed:
        assert feed._file._writer.execute("PRAGMA synchronous").fetchall() == [(full,)]


async def test_a_file_that_is_there_keeps_who_may_read_it(tmp_path: Path) -> None:
    path = tmp_path / "feed.db"
    path.touch()
    path.chmod(0o640)
    async with open_sqlite_feed(path):
        assert stat.S_IMODE(path.stat().st_mode) == 0o640


async def test_the_ids_that_finished_last_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sqlite, "REMEMBERED", 3)
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path) as feed:
        messages = await post(feed, "a", *"12345")
        # The first to be posted is the last to be finished.
        for message in reversed(messages):
            await feed.acknowledge(message)
        assert rows(path, "SELECT id FROM messages ORDER BY ended") == [("3",), ("2",), ("1",)]
    async with open_sqlite_feed(path) as feed:
        assert await post(feed, "a", "1", "3") == [None, None]
        assert [message.id for message in await post(feed, "a", "4", "5")] == ["4", "5"]
        assert (await feed.next("a")).id == "4"
        assert await feed.claim(messages[0]) is Claim.FINISHED


async def test_a_room_that_no_file_can_have_holds_up_no_other(tmp_path: Path) -> None:
    async with open_sqlite_feed(tmp_path / "feed.db") as feed:
        with pytest.raises(ValueError, match="surrogates"):
            await feed.post("\ud800", "work")
        await feed.applied(Control(STOP), ["a", "\ud800", "b"])
        assert await feed.rooms() == dict.fromkeys("ab", Standing(paused=True))
        assert await feed.next("\ud800") is None
        await feed.applied(Control(PLAY), ["\ud800", "a"])
        assert await feed.rooms() == {"b": Standing(paused=True)}


async def test_another_programs_file_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "theirs.db"
    for version in (0, 1):
        with closing(sqlite3.connect(path)) as theirs:
            theirs.executescript(f"""
                CREATE TABLE IF NOT EXISTS messages (theirs TEXT); PRAGMA user_version = {version};
            """)
        before = path.read_bytes()
        for serve in (True, False):
            with pytest.raises(sqlite3.DatabaseError, match=r"theirs\.db: another program"):
                async with open_sqlite_feed(path, serve=serve):
                    pass
        assert path.read_bytes() == before


async def test_by_another_name_it_is_the_same_file(tmp_path: Path) -> None:
    path, linked = tmp_path / "feed.db", tmp_path / "linked.db"
    linked.symlink_to(path)
    async with open_sqlite_feed(path) as feed:
        with pytest.raises(FeedInUse):
            async with open_sqlite_feed(linked):
                pass
        async with open_sqlite_feed(linked, serve=False) as other:
            await post(other, "a", "1")
        assert (await feed.next("a")).id == "1"
    linked.unlink()
    linked.hardlink_to(path)
    with pytest.raises(sqlite3.DatabaseError, match=r"linked\.db: .*several names"):
        async with open_sqlite_feed(linked):
            pass


async def test_a_row_that_is_not_understood_is_told_and_holds_up_none(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "feed.db"
    async with open_sqlite_feed(path, poll_every=0.02) as feed:
        await press(feed, STOP, "a", id="first")
        with closing(sqlite3.connect(path)) as newer:
            for text in ('{"kind": "hold"}', '{"kind": "stop", "until": 3}', "[]", "{", "{}"):
                newer.execute("INSERT INTO controls (after, control) VALUES (0, ?)", (text,))
            newer.execute("INSERT INTO messages (room, id, content) VALUES ('a', 'x', '{')")
            newer.commit()
        await press(feed, STOP, "a", id="last")
        (message,) = await post(feed, "b", "1")
        first, last, third = await received(feed, 3)
        assert (first.id, last.id, third) == ("first", "last", message)
        assert caplog.text.count("is not understood") == 6
        assert "control 2 in the file is not understood: ValueError" in caplog.text
        # Each of them is told of for itself.
        for control in (first, last):
            await feed.applied(control, ["a"])
        assert len(rows(path, "SELECT * FROM controls")) == 5


async def test_where_looking_fails_the_same_is_looked_for_once_more(tmp_path: Path) -> None:
    async with open_sqlite_feed(tmp_path / "feed.db") as feed:
        await press(feed, STOP, "a")
        (one,) = await post(feed, "a", "1")
        file: Any = feed._file
        reader = file._reader
        file._reader = Broken(reader)
        with pytest.raises(sqlite3.OperationalError, match="disk"):
            await feed.receive()
        file._reader = reader
        assert await received(feed, 2) == [Control(STOP, "a"), one]


class Broken:
    """The disk fails between two questions."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self.database = database

    def execute(self, query: str, *values: Any) -> Any:
        if "messages" in query:
            raise sqlite3.OperationalError("disk I/O error")
        return self.database.execute(query, *values)


@pytest.mark.parametrize("count", [99, 100, 101, 250])
async def test_each_of_many_controls_is_heard_in_its_place(tmp_path: Path, count: int) -> None:
    async with open_sqlite_feed(tmp_path / "feed.db") as feed:
        await post(feed, "a", "before")
        for number in range(count):
            await press(feed, STOP, "a", id=str(number))
        await post(feed, "a", "between")
        for number in range(count, 2 * count):
            await press(feed, STOP, "a", id=str(number))
        await post(feed, "a", "behind")
        items = [item.id for item in await received(feed, 2 * count + 3)]
        numbers = [str(number) for number in range(2 * count)]
        between = [*numbers[:count], "between", *numbers[count:]]
        assert items == ["before", *between, "behind"]
