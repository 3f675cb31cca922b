"""A process dies in the middle of turns, and the next one ends them. Its death is a real one."""

from __future__ import annotations

import errno
import os
import signal
import sqlite3
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from turnstop import Ending, Settlement, StopBudget, open_rooms
from turnstop._identity import find_host
from turnstop.journal import open_journal
from turnstop.journal._reading import list_open

from .conftest import Read
from .remote import Folders, obey, stand_still

ROOT = Path(__file__).parents[2]
OWNER = """
import sys, trio, turnstop
from pathlib import Path
from turnstop.journal import open_journal
from tests.journal.remote import Folders

async def main(path, root, announces, *ids):
    backend = Folders(Path(root), announces == "announces")
    async with (
        open_journal(path) as journal,
        turnstop.open_rooms(backend, journal=journal) as rooms,
    ):
        async def take(id):
            async with rooms.turn(id.partition("-")[0], "work", turn_id=id) as turn:
                async for _ in turn: pass
        async with trio.open_nursery() as nursery:
            for id in ids:
                nursery.start_soon(take, id)
            while not all((Path(root) / id / "content").exists() for id in ids):
                await trio.sleep(0.002)
            while journal.statistics().waiting:
                await trio.sleep(0.002)
            print("begun", flush=True)

trio.run(main, *sys.argv[1:])
"""


@contextmanager
def owner(
    path: Path,
    root: Path,
    *ids: str,
    announces: bool = True,
    program: str = OWNER,
    inside: Sequence[str] = (),
) -> Iterator[int]:
    """A process whose turns are under way; it is killed by whoever leaves this."""
    how = "announces" if announces else "reveals"
    more = [how, *ids] if program is OWNER else []
    command = [*inside, sys.executable, "-c", program, str(path), str(root), *more]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"begun\n"
            yield process.pid
        finally:
            process.send_signal(signal.SIGKILL)


async def recover(path: Path, backend: Any, budget: StopBudget | None = None) -> list[Settlement]:
    """Open rooms and close them again."""
    found: list[Settlement] = []
    async with (
        open_journal(path) as journal,
        open_rooms(backend, journal=journal, budget=budget, observers=[found.append]) as rooms,
    ):
        while rooms.statistics().rooms:  # noqa: ASYNC110
            await trio.sleep(0.005)
    return found


async def logged(backend: Folders, what: str) -> None:
    while what not in backend.log:  # noqa: ASYNC110 - it is another program's clock
        await trio.sleep(0.005)


async def test_what_a_dead_process_left_is_stopped(
    path: Path, tmp_path: Path, records: Callable[[], list[Any]], nursery: trio.Nursery
) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1", "b-1", announces=False):
        pass
    nursery.start_soon(obey, root)
    found = await recover(path, backend := Folders(root))
    assert sorted((one.room, one.turn_id, one.ending) for one in found) == [
        ("a", "a-1", Ending.STOPPED),
        ("b", "b-1", Ending.STOPPED),
    ]
    assert {one.request.kind for one in found if one.request} == {"recovery"}
    assert sorted(backend.log) == ["attach a-1", "attach b-1"]
    assert [(root / one / "stop").read_text() for one in ("a-1", "b-1")] == ["stop\n"] * 2
    kinds = [kind for kind, _ in records()]
    assert sorted(kinds) == sorted(["admitted", "address", "asked", "settled"] * 2)
    # Once and for all.
    assert await recover(path, backend) == []
    assert [kind for kind, _ in records()] == kinds


async def test_a_room_waits_for_its_old_turn_and_no_other_does(
    path: Path, tmp_path: Path, nursery: trio.Nursery
) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1"):
        pass
    backend = Folders(root)
    async with open_journal(path) as journal, open_rooms(backend, journal=journal) as rooms:
        assert rooms.statistics().stopping == 1

        async def take(room: str) -> None:
            async with rooms.turn(room, "next", turn_id=f"{room}-2"):
                await trio.sleep_forever()

        nursery.start_soon(take, "a")
        nursery.start_soon(take, "b")
        await logged(backend, "start b-2")
        await trio.sleep(0.05)
        assert "start a-2" not in backend.log
        nursery.start_soon(obey, root)
        await logged(backend, "start a-2")
        assert (root / "a-1" / "ended").exists()
        await rooms.stop_all().settled()


async def test_what_had_ended_meanwhile_is_recorded_so(path: Path, tmp_path: Path) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1"):
        pass
    (root / "a-1" / "ended").write_text("completed")
    (found,) = await recover(path, Folders(root))
    assert found.ending is Ending.FINISHED


async def test_what_never_began_is_unstarted(path: Path, tmp_path: Path) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1"):
        pass
    (root / "a-1").rename(tmp_path / "away")
    (found,) = await recover(path, Folders(root))
    assert (found.ending, found.gone) == (Ending.UNSTARTED, True)


async def test_what_cannot_be_found_may_be_alive(path: Path, tmp_path: Path) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1"):
        pass
    (found,) = await recover(path, Folders(tmp_path / "others"))
    assert (found.ending, found.gone) == (Ending.UNCONFIRMED, False)
    assert "is another's" in str(found.errors[0])


async def test_a_turn_that_does_not_stop_is_unconfirmed_in_budget(
    path: Path, tmp_path: Path, read: Read
) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1"):
        pass
    with trio.fail_after(3):
        (found,) = await recover(path, Folders(root), StopBudget(0.2, 0.1))
    assert found.ending is Ending.UNCONFIRMED
    assert read("SELECT * FROM open") == []


async def test_what_a_live_process_has_open_is_left_alone(path: Path, tmp_path: Path) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1") as pid:
        backend = Folders(root)
        stand_still(pid, path)
        try:
            assert await recover(path, backend) == []
        finally:
            os.kill(pid, signal.SIGCONT)
        assert backend.log == []


async def test_of_two_that_open_it_one_recovers(
    path: Path, tmp_path: Path, nursery: trio.Nursery
) -> None:
    root = tmp_path / "agents"
    ids = [f"{room}-1" for room in "abcdefgh"]
    with owner(path, root, *ids):
        pass
    nursery.start_soon(obey, root)
    found: list[str] = []

    async def one() -> None:
        found.extend(each.turn_id for each in await recover(path, Folders(root)))

    async with trio.open_nursery() as both:
        both.start_soon(one)
        both.start_soon(one)
    assert sorted(found) == ids


async def test_who_dies_while_recovering_is_recovered_from(
    path: Path, tmp_path: Path, nursery: trio.Nursery
) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1"):
        pass
    # It takes the turn over, and nothing obeys; then it is killed too.
    with owner(path, root, "b-1"):
        pass
    nursery.start_soon(obey, root)
    found = await recover(path, Folders(root))
    assert sorted(one.turn_id for one in found) == ["a-1", "b-1"]


async def lose_the_address(path: Path) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE open SET address = NULL")


@pytest.mark.parametrize("announces", [True, False])
async def test_a_turn_whose_address_is_not_known_may_be_alive(
    announces: bool, path: Path, tmp_path: Path
) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1"):
        pass
    await lose_the_address(path)
    (found,) = await recover(path, Folders(root, announces))
    assert (found.ending, found.gone) == (Ending.UNCONFIRMED, False)


SLOW = """
import sqlite3, sys, trio, turnstop
from pathlib import Path
from turnstop.journal import open_journal
from tests.journal.remote import Folders

class Slow(Folders):
    async def start(self, request):
        await trio.sleep(0.1)
        # From here on the disk takes nothing.
        other = sqlite3.connect(sys.argv[1], isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        turn = await super().start(request)
        print("begun", flush=True)
        return turn

async def main(path, root):
    async with (
        open_journal(path) as journal,
        turnstop.open_rooms(Slow(Path(root)), journal=journal) as rooms,
        rooms.turn("a", "work", turn_id="a-1"),
    ):
        await trio.sleep_forever()

trio.run(main, *sys.argv[1:])
"""


async def test_what_was_sent_although_the_disk_had_not_taken_it_is_never_said_to_be_gone(
    path: Path, tmp_path: Path
) -> None:
    root = tmp_path / "agents"
    with owner(path, root, program=SLOW):
        assert (root / "a-1" / "content").exists()
    found = await recover(path, Folders(root))
    assert [one for one in found if one.gone] == []


async def taken(path: Path) -> list[str]:
    """The turns that another process takes up now."""
    async with open_journal(path) as journal:
        return [one.turn_id for one in await journal.take_over("folders")]


EXEC = """
import os, sys, trio, turnstop
from pathlib import Path
from turnstop.journal import open_journal
from tests.journal.remote import Folders

async def main(path, root):
    async with (
        open_journal(path) as journal,
        turnstop.open_rooms(Folders(Path(root)), journal=journal) as rooms,
        rooms.turn("a", "work", turn_id="a-1"),
    ):
        while not (Path(root) / "a-1" / "content").exists() or journal.statistics().waiting:
            await trio.sleep(0.01)
        print("begun", flush=True)
        os.execv("/bin/sleep", ["sleep", "60"])

trio.run(main, *sys.argv[1:])
"""


def program_of(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text()


async def test_a_process_that_has_become_another_program_is_gone(
    path: Path, tmp_path: Path
) -> None:
    with owner(path, tmp_path / "agents", program=EXEC) as pid:
        with trio.fail_after(10):
            while program_of(pid) != "sleep\n":  # noqa: ASYNC110
                await trio.sleep(0.01)
        assert await taken(path) == ["a-1"]


@pytest.mark.parametrize("change", ["pid:[1]", "boot", "name"])
async def test_a_process_of_another_container_or_boot_is_seen_to_be_gone_at_once(
    change: str, path: Path, tmp_path: Path
) -> None:
    with owner(path, tmp_path / "agents", "a-1"):
        name, boot, place = find_host().split()
        host = {
            "pid:[1]": f"other {boot} pid:[1]",
            "boot": f"{name} other {place}",
            "name": f"renamed {boot} {place}",
        }[change]
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE sessions SET host = ?", (host,))
        assert await taken(path) == []
    assert await taken(path) == ["a-1"]


CONTAINER = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child")


def has_containers() -> bool:
    try:
        return subprocess.run([*CONTAINER, "true"], capture_output=True).returncode == 0
    except OSError:
        return False


@pytest.mark.skipif(not has_containers(), reason="no namespace can be made: see `unshare true`")
async def test_of_a_container_that_is_killed_turns_are_taken_up_at_once(
    path: Path, tmp_path: Path
) -> None:
    with owner(path, tmp_path / "agents", "a-1", inside=[*CONTAINER, "--mount-proc"]):
        assert await taken(path) == []
    with trio.fail_after(10):
        # Its child is ended by the kernel, in a moment.
        while (found := await taken(path)) == []:  # noqa: ASYNC110
            await trio.sleep(0.01)
    assert found == ["a-1"]


async def test_a_process_of_another_container_that_stands_still_is_not_gone(
    path: Path, tmp_path: Path
) -> None:
    with owner(path, tmp_path / "agents", "a-1") as pid:
        stand_still(pid, path)
        _, boot, _ = find_host().split()
        with closing(sqlite3.connect(path)) as database, database:
            host = f"other {boot} pid:[1]"
            database.execute("UPDATE sessions SET host = ?, beat = ?", (host, time.time() - 99))
        assert await taken(path) == []
        assert [one.alive for one in await list_open(path)] == [True]
    assert [one.alive for one in await list_open(path)] == [False]


async def test_a_process_that_cannot_be_looked_at_is_not_gone(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from turnstop import _identity

    def no_file_left(*_: object) -> None:
        raise OSError(errno.EMFILE, "Too many open files")

    with owner(path, tmp_path / "agents", "a-1"):
        async with open_journal(path) as journal:
            with monkeypatch.context() as patch:
                patch.setattr(_identity, "open", no_file_left, raising=False)
                assert await journal.take_over("folders") == []
    assert await taken(path) == ["a-1"]


async def test_what_was_taken_over_in_vain_is_found_again(path: Path, tmp_path: Path) -> None:
    with owner(path, tmp_path / "agents", "a-1", "b-1"):
        pass
    async with open_journal(path) as journal:
        write = journal._database.write

        async def cancelled(*args: Any, **more: Any) -> Any:
            found = await write(*args, **more)
            scope.cancel()
            await trio.lowlevel.checkpoint()
            return found

        journal._database.write = cancelled  # type: ignore[method-assign]
        with trio.CancelScope() as scope:
            await journal.take_over("folders")
        assert scope.cancelled_caught
        journal._database.write = write  # type: ignore[method-assign]
        found = await journal.take_over("folders")
        assert sorted(one.turn_id for one in found) == ["a-1", "b-1"]
        assert await journal.take_over("folders") == []
        found[0].entry.note_left()
        assert [one.turn_id for one in await journal.take_over("folders")] == [found[0].turn_id]


async def test_a_row_that_makes_no_sense_ends_nobody(
    path: Path, tmp_path: Path, nursery: trio.Nursery, caplog: pytest.LogCaptureFixture
) -> None:
    root = tmp_path / "agents"
    with owner(path, root, "a-1", "b-1", "c-1", "d-1"):
        pass
    with closing(sqlite3.connect(path)) as database, database:
        for turn_id, what in (
            ("b-1", "said = '{cut'"),
            ("c-1", "said = '[1]'"),
            ("d-1", "address = '{cut'"),
        ):
            database.execute(f"UPDATE open SET {what} WHERE said LIKE '%{turn_id}%'")
    nursery.start_soon(obey, root)
    found = await recover(path, Folders(root))
    assert sorted((one.turn_id, one.ending) for one in found) == [
        ("a-1", Ending.STOPPED),
        ("d-1", Ending.UNCONFIRMED),
    ]
    listed = await list_open(path)
    assert [one.turn_id for one in listed] == ["?", "?"]
    # Nobody takes them up, so it is said; once, however often it is looked.
    assert caplog.text.count("cannot be read, so that nobody takes it up") == 2
    async with open_journal(path) as journal:
        for _ in range(2):
            assert await journal.take_over("folders") == []
            assert await journal.take_over("another") == []
    assert caplog.text.count("cannot be read, so that nobody takes it up") == 4


@pytest.mark.parametrize("turn_id", [uuid.uuid4(), 0, 7, b"1"])
async def test_an_id_that_no_journal_could_tell_is_refused(
    turn_id: Any, path: Path, tmp_path: Path
) -> None:
    async with (
        open_journal(path) as journal,
        open_rooms(Folders(tmp_path), journal=journal) as rooms,
    ):
        with pytest.raises(TypeError) as refused:
            rooms.turn("kitchen", "work", turn_id=turn_id)
    assert str(refused.value) == f"a turn's id is a str: got {turn_id!r}"


async def test_a_backend_that_cannot_take_up_turns(path: Path, tmp_path: Path) -> None:
    class Deaf:
        name = "folders"

        async def start(self, request: Any) -> Any:
            raise AssertionError

    with owner(path, tmp_path / "agents", "a-1"):
        pass
    (found,) = await recover(path, Deaf())
    assert (found.ending, found.gone) == (Ending.UNCONFIRMED, False)
    assert "cannot take up" in str(found.errors[0])


class Hearing:
    """What was settled, and whether anything was by now."""

    def __init__(self) -> None:
        self.found: list[Settlement] = []
        self.heard = trio.Event()

    def __call__(self, settlement: Settlement) -> None:
        self.found.append(settlement)
        self.heard.set()


async def test_of_a_process_that_dies_later_turns_are_ended_when_nobody_takes_its_place(
    path: Path, tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop._rooms._LOOKS_EVERY", 0.02)
    monkeypatch.setattr("turnstop.journal._taking.LAPSES_AFTER", 1.0)
    root = tmp_path / "agents"
    nursery.start_soon(obey, root)
    backend, hearing = Folders(root), Hearing()
    with owner(path, root, "a-1") as pid:
        async with (
            open_journal(path) as journal,
            open_rooms(backend, journal=journal, observers=[hearing]),
        ):
            os.kill(pid, signal.SIGKILL)
            # One that is started in its place comes first.
            with trio.move_on_after(0.3):
                await hearing.heard.wait()
            assert not hearing.found
            with trio.fail_after(20):
                await hearing.heard.wait()
    assert [(one.turn_id, one.ending) for one in hearing.found] == [("a-1", Ending.STOPPED)]


async def test_a_process_of_another_machine_is_given_up_while_rooms_are_open(
    path: Path, tmp_path: Path, nursery: trio.Nursery, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop._rooms._LOOKS_EVERY", 0.02)
    root = tmp_path / "agents"
    nursery.start_soon(obey, root)
    with owner(path, root, "a-1"):
        pass
    with closing(sqlite3.connect(path)) as database, database:
        beat = time.time() - 29.0
        database.execute("UPDATE sessions SET host = 'elsewhere', beat = ?", (beat,))
    backend, hearing = Folders(root), Hearing()
    async with (
        open_journal(path) as journal,
        open_rooms(backend, journal=journal, observers=[hearing]) as rooms,
    ):
        assert rooms.statistics().rooms == 0
        with trio.fail_after(20):
            await hearing.heard.wait()
        assert time.time() - beat > 30.0
    assert [(one.turn_id, one.ending) for one in hearing.found] == [("a-1", Ending.STOPPED)]


async def test_a_look_that_failed_at_first_is_made_again_as_a_first_one(
    path: Path,
    tmp_path: Path,
    nursery: trio.Nursery,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr("turnstop._sqlite._PATIENCE", 0.05)
    monkeypatch.setattr("turnstop._rooms._LOOKS_EVERY", 0.02)
    root = tmp_path / "agents"
    nursery.start_soon(obey, root)
    with owner(path, root, "a-1"):
        pass
    hearing = Hearing()
    async with open_journal(path) as journal:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with open_rooms(Folders(root), journal=journal, observers=[hearing]):
                assert "are open all the same" in caplog.text
                assert not hearing.found
                other.execute("ROLLBACK")
                # Not only once its process has been silent for half a minute.
                with trio.fail_after(10):
                    await hearing.heard.wait()
                assert [one.turn_id for one in hearing.found] == ["a-1"]
                # From then on one that has just died is left to its successor.
                with owner(path, root, "b-1"):
                    pass
                assert await journal.take_over("folders", again=True) == []
                assert len(await journal.take_over("folders")) == 1


async def test_a_look_that_fails_is_told_by_the_writing_alone(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop._sqlite._PATIENCE", 0.05)
    async with open_journal(path) as journal:
        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            assert await journal.take_over("folders", again=True) == []
            assert caplog.records == []
            assert await journal.take_over("folders") == []
            assert "which turns were left" in caplog.text
