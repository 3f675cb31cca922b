"""What is noted, when it is waited for, and what a disk that fails takes away: no stop."""

from __future__ import annotations

import logging
import math
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from turnstop import Ending, Rooms, Settlement, open_rooms
from turnstop.abc import Emit, End, How, RemoteTurn, Request
from turnstop.journal import Journal, _file, _journal, open_journal

from .conftest import Read

Records = Callable[[], list[tuple[str, Any]]]


class Turn:
    session = None
    address = "here"

    def __init__(self) -> None:
        self.over = trio.Event()

    async def follow(self, emit: Emit) -> End:
        await self.over.wait()
        return End(How.CANCELLED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        sent()
        self.over.set()


class Agent:
    """Attributes: sent: what was sent, of turns that were announced first."""

    name = "agent"

    def __init__(self, announces: bool = False) -> None:
        self.announces = announces
        self.sent: list[str] = []

    async def start(self, request: Request[str]) -> RemoteTurn:
        if self.announces:
            await request.announce(f"at {request.turn_id}")
        self.sent.append(request.turn_id)
        return Turn()


@asynccontextmanager
async def opened(path: Path, agent: Agent) -> AsyncGenerator[tuple[Journal, Rooms[str]], None]:
    async with open_journal(path) as journal, open_rooms(agent, journal=journal) as rooms:
        yield journal, rooms


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another program keeps the file."""
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


async def stop_one(rooms: Rooms[str], **more: Any) -> Any:
    async with rooms.turn("kitchen", "bake", turn_id="1") as turn:
        await trio.testing.wait_all_tasks_blocked()
        turn.stop(**more)
    return turn.settlement


async def test_a_turn_is_told_from_its_admission_to_its_end(path: Path, records: Records) -> None:
    async with opened(path, Agent()) as (_, rooms):
        await stop_one(rooms, reason="enough", source="a test")
    stop = {"kind": "stop", "reason": "enough", "source": "a test"}
    assert records() == [
        ("admitted", {"backend": "agent", "room": "kitchen", "turn_id": "1"}),
        ("address", "here"),
        ("asked", stop),
        ("settled", {"ending": "stopped", "proof": "event", "gone": True, "request": stop}),
    ]


async def wait_in_vain(rooms: Rooms[str]) -> None:
    with trio.move_on_after(0.01):
        async with rooms.turn("kitchen", "two"):
            raise AssertionError


async def test_a_turn_that_waited_for_its_room_in_vain_is_not_told(
    path: Path, records: Records
) -> None:
    async with opened(path, Agent()) as (_, rooms), rooms.turn("kitchen", "one"):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(wait_in_vain, rooms)
    assert [kind for kind, _ in records()].count("admitted") == 1


async def test_what_is_announced_is_on_the_disk_before_it_is_sent(path: Path, read: Read) -> None:
    agent, seen = Agent(announces=True), []

    class Seeing(Agent):
        async def start(self, request: Request[str]) -> RemoteTurn:
            await request.announce("there")
            seen.append(read("SELECT address FROM open"))
            return Turn()

    agent = Seeing()
    async with opened(path, agent) as (_, rooms), rooms.turn("kitchen", "bake"):
        while not seen:  # noqa: ASYNC110
            await trio.sleep(0.001)
    assert seen == [[('"there"',)]]


async def test_a_stop_does_not_wait_for_what_is_announced(path: Path) -> None:
    agent = Agent(announces=True)
    async with opened(path, agent) as (_, rooms):
        with held(path):
            begun = time.monotonic()
            async with rooms.turn("kitchen", "bake") as turn:
                await trio.sleep(0.05)
                turn.stop()
            assert time.monotonic() - begun < 0.3
    assert turn.ending is Ending.UNSTARTED
    assert agent.sent == []


async def test_a_disk_that_does_not_answer_holds_up_a_turn_for_half_a_second(path: Path) -> None:
    agent = Agent(announces=True)
    async with opened(path, agent) as (_, rooms):
        with held(path):
            for number, bound in (("1", 0.9), ("2", 0.3)):
                begun = time.monotonic()
                async with rooms.turn("kitchen", "bake", turn_id=number) as turn:
                    while number not in agent.sent:  # noqa: ASYNC110
                        await trio.sleep(0.005)
                    assert time.monotonic() - begun < bound
                assert turn.ending is Ending.STOPPED


async def test_a_full_disk_is_one_warning_and_takes_no_end_away(
    path: Path, records: Records, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_journal, "_AGAIN_AFTER", 0.02)
    async with opened(path, Agent()) as (journal, rooms):
        (pages,) = journal._database._writer.execute("PRAGMA page_count").fetchone()
        journal._database._writer.execute(f"PRAGMA max_page_count = {pages}").fetchall()
        for number in range(3):
            async with rooms.turn("kitchen", "x" * 9000, turn_id=f"{number}" * 5000) as turn:
                pass
            assert turn.settlement is not None
        while journal.statistics().failing is None:  # noqa: ASYNC110
            await trio.sleep(0.005)
        assert "full" in str(journal.statistics().failing)
        assert journal.statistics().waiting > 0
        assert [one.levelno for one in caplog.records] == [logging.WARNING]
        journal._database._writer.execute("PRAGMA max_page_count = 1000000").fetchall()
        while journal.statistics().waiting:  # noqa: ASYNC110
            await trio.sleep(0.005)
        assert journal.statistics().lost == 0
    assert [kind for kind, _ in records()].count("settled") == 3


async def test_what_waits_is_bounded(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_journal, "_MOST", 10)
    monkeypatch.setattr(_journal, "_AGAIN_AFTER", 0.01)
    async with opened(path, Agent()) as (journal, rooms):
        journal._database._writer.execute("PRAGMA query_only = ON")
        for number in range(20):
            await stop_one(rooms, reason=str(number))
            found = journal.statistics()
            assert found.waiting <= 10
        assert found.lost + found.waiting == 80
        journal._database._writer.execute("PRAGMA query_only = OFF")
    assert journal.statistics().waiting == 0


async def test_an_attempt_that_began_before_the_end_is_not_the_last(
    path: Path, records: Records, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = []

    async def fails_once(self: Journal) -> None:
        attempts.append(len(self._notes))
        if len(attempts) > 1:
            await write(self)
            return
        # The file is closed while this one is under way, and then it fails.
        await ending.wait()
        self._failing = "it was full"
        turned, self._turned = self._turned, trio.Event()
        turned.set()

    write, ending = Journal._write, trio.Event()
    monkeypatch.setattr(Journal, "_write", fails_once)
    async with open_journal(path) as journal:
        journal.admit("agent", "kitchen", "1")
        while not attempts:  # noqa: ASYNC110
            await trio.sleep(0.001)
        ending.set()
    assert [kind for kind, _ in records()] == ["admitted"]


async def test_of_what_waits_for_a_disk_only_the_text_is_kept(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_journal, "_AGAIN_AFTER", 0.01)
    monkeypatch.setattr(_journal, "_BATCH", 3)
    async with opened(path, Agent()) as (journal, rooms):
        journal._database._writer.execute("PRAGMA query_only = ON")
        for _ in range(3):
            await stop_one(rooms)
        with trio.fail_after(10):
            # Nothing is under way, and all were tried.
            while len(journal._notes) < 12 or any(  # noqa: ASYNC110
                isinstance(said, Settlement) for *_, said in journal._notes
            ):
                await trio.sleep(0.005)
        journal._database._writer.execute("PRAGMA query_only = OFF")
    assert journal.statistics().waiting == 0


async def test_what_no_file_takes_as_text_is_told_all_the_same(
    path: Path, records: Records
) -> None:
    class Wrong(Exception):
        def __str__(self) -> str:
            raise ValueError

    class Odd(Agent):
        async def start(self, request: Request[str]) -> RemoteTurn:
            raise Wrong

    async with opened(path, Odd()) as (_, rooms):
        with pytest.raises(Wrong):
            async with rooms.turn("\ud800", "bake", turn_id="\udfff") as turn:
                async for _ in turn:
                    pass
    (_, said), (_, settled) = records()
    assert (said["room"], said["turn_id"]) == ("\ud800", "\udfff")
    assert settled["errors"] == ["Wrong"]


def content(path: Path) -> bytes:
    return path.read_bytes()


async def test_what_cannot_be_told_takes_nothing_else_away(path: Path, records: Records) -> None:
    class Mute(str):
        __slots__ = ()

        def __str__(self) -> str:
            raise ValueError

    async with opened(path, Agent()) as (journal, rooms):
        async with rooms.turn("cellar", "brew"):
            settlement = await stop_one(rooms, reason=Mute("enough"))
            while journal.statistics().waiting:  # noqa: ASYNC110
                await trio.sleep(0.005)
            assert [kind for kind, _ in records()].count("admitted") == 2
        assert settlement.ending is Ending.STOPPED
        assert journal.statistics().lost == 0
    (reason,) = [said["reason"] for kind, said in records() if kind == "asked" and said["reason"]]
    assert reason == "a Mute that cannot be told"


async def test_the_writing_is_not_ended_by_ctrl_c(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    protected = []

    async def write(journal: Journal) -> None:
        protected.append(trio.lowlevel.currently_ki_protected())
        journal._notes.clear()
        await trio.lowlevel.checkpoint()

    monkeypatch.setattr(Journal, "_write", write)
    async with open_journal(path) as journal:
        journal.admit("agent", "kitchen", "1")
        with trio.fail_after(10):
            while not protected:  # noqa: ASYNC110
                await trio.sleep(0.005)
        journal._done = journal._noted
    assert set(protected) == {True}


async def test_a_session_whose_end_cannot_be_written_is_let_go_of(
    path: Path, monkeypatch: pytest.MonkeyPatch, read: Read
) -> None:
    monkeypatch.setattr(_journal, "_CLOSES_WITHIN", 0.1)
    async with AsyncExitStack() as stack:
        journal = await stack.enter_async_context(open_journal(path))
        journal.admit("agent", "kitchen", "left")
        while journal.statistics().waiting:  # noqa: ASYNC110
            await trio.sleep(0.005)
        with held(path):
            await stack.aclose()
    assert read("SELECT ended FROM sessions") == [(0,)]
    # This process lives, and the journal does not.
    async with open_journal(path) as journal:
        assert [one.turn_id for one in await journal.take_over("agent")] == ["left"]


async def test_of_a_journal_nothing_is_left_beside_the_file(path: Path) -> None:
    async with open_journal(path), open_journal(path):
        assert len(names(path)) > 3
    assert names(path) == [path.name]


def names(path: Path) -> list[str]:
    return [one.name for one in path.parent.iterdir()]


def rename(old: Path, new: Path) -> None:
    old.rename(new)


async def test_a_file_that_is_moved_away_is_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with opened(path, Agent()) as (journal, rooms):
        rename(path, path.with_suffix(".old"))
        await stop_one(rooms)
        with trio.fail_after(5):
            while journal.statistics().failing is None:  # noqa: ASYNC110
                await trio.sleep(0.005)
        assert "moved away" in caplog.text
        rename(path.with_suffix(".old"), path)
    assert journal.statistics().waiting == 0


async def test_a_journal_that_was_closed_is_told(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with open_journal(path) as journal:
        pass
    with pytest.raises(RuntimeError, match="around backends and rooms"):
        async with open_rooms(Agent(), journal=journal):
            raise AssertionError
    async with open_journal(path) as journal:
        pass

    async with opened(path, agent := Agent(announces=True)) as (journal, rooms):
        journal._closed = True
        assert await journal.take_over("agent", again=True) == ()
        begun = time.monotonic()
        async with rooms.turn("kitchen", "bake"):
            while not agent.sent:  # noqa: ASYNC110
                await trio.sleep(0.001)
        assert time.monotonic() - begun < 0.3
        assert "was closed" in caplog.text
        journal._closed = False


async def test_trio_s_thread_does_not_close_the_file(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    closed = []

    class Connection(sqlite3.Connection):
        def close(self) -> None:
            closed.append(threading.get_ident())
            super().close()

    monkeypatch.setattr("sqlite3.connect", partial(sqlite3.connect, factory=Connection))
    async with open_journal(path):
        pass
    assert len(closed) == 2
    assert threading.get_ident() not in closed


async def test_a_compaction_is_left_at_once(path: Path) -> None:
    async with open_journal(path) as journal:
        with held(path), trio.move_on_after(0.05):
            await journal.compact()
        begun, free = time.monotonic(), threading.Event()
        fn = journal._database.maintain
        journal._database._writer.create_function("wait", 0, lambda: free.wait(20) and 0)
        with trio.move_on_after(0.05):
            await fn("SELECT wait()", abandon=True)
        assert time.monotonic() - begun < 5
        free.set()


async def test_a_compaction_gives_the_room_back_while_others_have_the_file(path: Path) -> None:
    async with open_journal(path, keep_records=math.inf), open_journal(path) as journal:
        async with open_rooms(Agent(), journal=journal) as rooms:
            for _ in range(20):
                await stop_one(rooms, reason="x" * 4000)
            while journal.statistics().waiting:  # noqa: ASYNC110
                await trio.sleep(0.005)
        before = sizes(path)
        assert await journal.compact() == 80
        assert sizes(path) < min(before, 100_000)


def sizes(path: Path) -> int:
    log = path.with_name(path.name + "-wal")
    return path.stat().st_size + log.stat().st_size


async def test_to_drop_much_is_not_to_write_it_again(path: Path) -> None:
    async with open_journal(path, keep_records=math.inf) as journal:
        async with open_rooms(Agent(), journal=journal) as rooms:
            for _ in range(100):
                await stop_one(rooms, reason="x" * 4000)
            while journal.statistics().waiting:  # noqa: ASYNC110
                await trio.sleep(0.005)
        assert await journal._database.write_back()
        full = sizes(path)
        await journal._database.write(_file.compact)
        assert sizes(path) - full < full / 4


async def test_dropping_waits_for_no_other_program(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_journal(path, keep_for=0, keep_records=1e30) as journal:
        with held(path):
            begun = time.monotonic()
            await journal._drop()
            assert time.monotonic() - begun < 2
        journal._dropped_at = -math.inf
        async with open_rooms(Agent(), journal=journal) as rooms:
            await stop_one(rooms)
            while journal.statistics().waiting:  # noqa: ASYNC110
                await trio.sleep(0.005)
        journal._dropped_at = -math.inf
        await journal._drop()


def not_a_database(path: Path) -> None:
    path.write_text("my diary, not to be overwritten\n" * 100)


def of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE diary (day TEXT)")
        other.execute("PRAGMA application_id = -2")


def of_a_newer_turnstop(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA application_id = {int.from_bytes(b'tnjl')}")
        other.execute("PRAGMA user_version = 999")


def of_a_feed(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA application_id = {int.from_bytes(b'turn')}")
        other.execute("PRAGMA user_version = 1")


@pytest.mark.parametrize(
    ("make", "says"),
    [
        (not_a_database, "not a database"),
        (of_another_program, "another program has made it"),
        (of_a_newer_turnstop, "newer turnstop"),
        (of_a_feed, "it holds messages, not turns: take another file"),
    ],
)
async def test_a_file_that_is_no_journal_is_left_as_it_is(
    make: Callable[[Path], None], says: str, path: Path
) -> None:
    make(path)
    before = content(path)
    with pytest.raises(sqlite3.DatabaseError, match=says) as refused:
        async with open_journal(path):
            raise AssertionError
    assert str(path) in str(refused.value)
    assert content(path) == before


CUT = """
import sys, trio, turnstop
from turnstop.journal import open_journal
from tests.journal.test_journal import Agent

async def main(path):
    async with (
        open_journal(path) as journal,
        turnstop.open_rooms(Agent(), journal=journal) as rooms,
    ):
        for number in range(300):
            async with rooms.turn("kitchen", "bake", turn_id=str(number)):
                pass

trio.run(main, sys.argv[1])
"""


def write_and_cut(path: Path, left: float) -> bytes:
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    subprocess.run([sys.executable, "-c", CUT, str(path)], check=True, env=environment)
    os.truncate(path, int(path.stat().st_size * left))
    return path.read_bytes()


@pytest.mark.parametrize("left", [0.2, 0.5, 0.9])
async def test_a_file_that_was_cut_is_told_or_used_and_stops_go_on(left: float, path: Path) -> None:
    before = write_and_cut(path, left)
    try:
        async with opened(path, Agent()) as (_, rooms):
            assert (await stop_one(rooms)).ending is Ending.STOPPED
    except sqlite3.DatabaseError as error:
        assert str(path) in str(error)
        assert content(path) == before


async def test_a_file_that_is_kept_for_long_cannot_be_opened(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop._sqlite._PATIENCE", 0.2)
    async with open_journal(path):
        pass
    with held(path):
        with pytest.raises(sqlite3.OperationalError, match="locked") as refused:
            async with open_journal(path):
                raise AssertionError
    assert str(path) in str(refused.value)


async def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="nowhere"):
        async with open_journal(tmp_path / "nowhere" / "turns.db"):
            raise AssertionError


async def written(journal: Journal) -> None:
    while journal.statistics().waiting:  # noqa: ASYNC110 - it is a disk's clock
        await trio.sleep(0.002)


@pytest.mark.parametrize("bound", [{"keep_records": 8}, {"keep_for": 0.0}])
async def test_the_file_stops_growing(
    bound: dict[str, float], path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_journal, "_BEATS", 0.01)
    monkeypatch.setattr(_journal, "_DROPS", 3)
    async with (
        open_journal(path, **bound) as journal,
        open_rooms(Agent(), journal=journal) as rooms,
        rooms.turn("hall", "wait", turn_id="old"),
    ):
        await written(journal)
        for _ in range(30):
            await stop_one(rooms)
        await written(journal)
        with trio.fail_after(5):
            while read("SELECT COUNT(*) FROM records")[0][0] > 8 + 2:  # noqa: ASYNC110
                await trio.sleep(0.01)
        # What is open is kept, however old.
        assert read("SELECT kind FROM records, open USING (turn)") == [("admitted",), ("address",)]


async def test_without_a_bound_all_is_kept(
    path: Path, read: Read, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_journal, "_BEATS", 0.01)
    async with (
        open_journal(path, keep_for=math.inf, keep_records=math.inf) as journal,
        open_rooms(Agent(), journal=journal) as rooms,
    ):
        for _ in range(5):
            await stop_one(rooms)
        await written(journal)
        await trio.sleep(0.05)
        assert read("SELECT COUNT(*) FROM records") == [(20,)]


@pytest.mark.parametrize("bound", [{"keep_records": -1}, {"keep_for": math.nan}])
async def test_a_bound_that_is_none_is_refused(bound: dict[str, float], path: Path) -> None:
    with pytest.raises(ValueError, match="0 or more"):
        async with open_journal(path, **bound):
            raise AssertionError
    assert not (await trio.Path(path).exists())
