"""`turnstop journal`, over files that killed programs have left."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from turnstop.cli.main import main
from turnstop.transports.orphans import ProcessAddress
from turnstop.transports.owners import OwnerAddress

ROOT = Path(__file__).parents[2]
# A turn of `sleepers` is a process that is deaf to SIGTERM, one of `folders` is at work elsewhere,
# one of `local` is work of the program itself.
OWNER = """
import os, sys, trio, turnstop
from pathlib import Path
from turnstop.adapters.local import open_local
from turnstop.journal import open_journal
from turnstop.transports.orphans import ProcessAddress, attach_process, new_mark
from tests.journal.remote import Folders

class Sleepers:
    name = "sleepers"
    async def start(self, request):
        mark = new_mark()
        await request.announce(str(ProcessAddress.ahead(mark)))
        self.process = await trio.lowlevel.open_process(
            ["/bin/sh", "-c", "trap '' TERM; while :; do sleep 0.05; done"],
            env={**os.environ, **dict([mark])}, start_new_session=True,
        )
        return attach_process(str(ProcessAddress.of(self.process.pid, mark)))

async def main(path, root, *ids):
    async def work(work):
        (Path(root) / work.turn_id).mkdir(parents=True)
        (Path(root) / work.turn_id / "content").touch()
        await trio.sleep_forever()
    async with open_journal(path) as journal, open_local(work) as functions:
        async with (
            turnstop.open_rooms(functions, journal=journal) as local,
            turnstop.open_rooms(Sleepers(), journal=journal) as sleepers,
            turnstop.open_rooms(Folders(Path(root)), journal=journal) as folders,
            trio.open_nursery() as nursery,
        ):
            async with folders.turn("hall", "work", turn_id="0") as turn:
                while not (Path(root) / "0" / "content").exists():
                    await trio.sleep(0.01)
                (Path(root) / "0" / "ended").write_text("cancelled")
                turn.stop(reason="enough", source="a test")
            async def take(id):
                rooms = {"s": sleepers, "f": folders, "l": local}[id[0]]
                async with rooms.turn(f"room {id}", "work", turn_id=id) as turn:
                    async for _ in turn: pass
            for id in ids:
                nursery.start_soon(take, id)
            await trio.sleep(0.3)
            while journal.statistics().waiting or not all(
                (Path(root) / id / "content").exists() for id in ids if id[0] in "fl"
            ):
                await trio.sleep(0.01)
            print("begun", flush=True)

trio.run(main, *sys.argv[1:])
"""


@contextmanager
def owner(path: Path, *ids: str) -> Iterator[int]:
    """A program whose turns are under way; it is killed by whoever leaves this."""
    command = [sys.executable, "-c", OWNER, str(path), str(path.parent / "agents"), *ids]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as process:
        assert process.stdout is not None
        try:
            assert process.stdout.readline() == b"begun\n"
            yield process.pid
        finally:
            process.send_signal(signal.SIGKILL)


@pytest.fixture
def path(tmp_path: Path) -> Iterator[Path]:
    """The journal's; what a failed test leaves is ended."""
    yield tmp_path / "turns.db"
    run("recover", tmp_path / "turns.db")


def run(*args: object) -> Result:
    return CliRunner().invoke(main, ["journal", *map(str, args)])


def told(*args: object, status: int = 0) -> Any:
    result = run(*args, "--json")
    assert result.exit_code == status, result.output
    return json.loads(result.stdout)


def test_of_a_program_that_lives_all_is_listed_and_nothing_ended(path: Path) -> None:
    with owner(path, "s1", "f1") as pid:
        rows = told("list", path)["open"]
        assert sorted((one["room"], one["turn_id"], one["backend"]) for one in rows) == [
            ("room f1", "f1", "folders"),
            ("room s1", "s1", "sleepers"),
        ]
        assert all(one["process"]["pid"] == pid and one["process"]["alive"] for one in rows)
        assert "pid" in run("list", path).stdout
        found = told("recover", path)
        assert (found["ended"], found["left"], found["being_ended"]) == ([], [], [])
        assert sorted(one["turn_id"] for one in found["at_work"]) == ["f1", "s1"]
        lines = run("recover", path).stdout.splitlines()
        at_work = f"; still at work: its program, pid {pid}, is alive; stop it there"
        assert [line.endswith(at_work) for line in lines] == [True, True]
        assert len(told("list", path)["open"]) == 2


TAKER = """
import sys, trio
from turnstop.journal import open_journal

async def main(path):
    async with open_journal(path) as journal:
        await journal.take_over("sleepers")
        print("taken", flush=True)
        await trio.sleep_forever()

trio.run(main, sys.argv[1])
"""


def test_what_another_process_is_just_ending_is_not_said_to_be_nothing(path: Path) -> None:
    with owner(path, "s1"):
        pass
    command = [sys.executable, "-c", TAKER, str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment) as taker:
        try:
            assert taker.stdout is not None
            assert taker.stdout.readline() == b"taken\n"
            result = run("recover", path)
            assert result.exit_code == 1
            assert (
                f"; taken up by pid {taker.pid}, which ends it once its room is free; at pid "
                in result.stdout
            )
            assert (
                f"; taken up by pid {taker.pid}, which ends it once its room is free; at pid "
                in run("list", path).stdout
            )
            found = told("recover", path, status=1)
            assert [one["turn_id"] for one in found["being_ended"]] == ["s1"]
            assert (found["ended"], found["left"], found["at_work"]) == ([], [], [])
        finally:
            taker.kill()
    assert [one["turn_id"] for one in told("recover", path)["ended"]] == ["s1"]


def test_what_is_a_process_is_ended_and_the_rest_is_told(path: Path) -> None:
    with owner(path, "s1", "f1"):
        pass
    assert {one["process"]["alive"] for one in told("list", path)["open"]} == {False}
    found = told("recover", path, status=1)
    assert [(one["turn_id"], one["ending"], one["gone"]) for one in found["ended"]] == [
        ("s1", "stopped", True)
    ]
    assert [one["turn_id"] for one in found["left"]] == ["f1"]
    assert not (path.parent / "agents" / "f1" / "stop").exists()
    # Once and for all.
    result = run("recover", path)
    assert result.exit_code == 1
    first, second = result.stdout.splitlines()
    assert first.startswith("room f1: f1 of folders, since ")
    assert "is gone; at " in first
    assert second == "it is ended when its program opens rooms of folders with this journal"
    kinds = [one["kind"] for one in told("show", path, "s1")["turns"][0]["records"]]
    assert kinds == ["admitted", "address", "address", "asked", "settled"]


def test_where_all_is_ended_the_status_is_0(path: Path) -> None:
    with owner(path, "s1", "s2"):
        pass
    result = run("recover", path)
    assert result.exit_code == 0, result.output
    assert sorted(line.split()[2:4] for line in result.stdout.splitlines()) == [
        ["s1", "STOPPED"],
        ["s2", "STOPPED"],
    ]
    assert run("recover", path).stdout == "nothing was left\n"
    assert run("list", path).stdout == "no turn is open\n"


def test_what_was_work_of_the_program_is_over_with_it(path: Path) -> None:
    with owner(path, "l1") as pid:
        # As if it were gone; the process itself is looked at. It does not stand still while it
        # writes: nobody else could.
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE sessions SET ended = 1")
            os.kill(pid, signal.SIGSTOP)
        assert [one["turn_id"] for one in told("recover", path, status=1)["left"]] == ["l1"]
        at_work = f"; still at work: its program, pid {pid}, is alive; stop it there; at work of"
        assert at_work in run("list", path).stdout
    (found,) = told("recover", path)["ended"]
    assert (found["ending"], found["proof"], found["gone"]) == ("stopped", "process", True)


@pytest.mark.parametrize("seconds", ["0", "nan", "inf", "-1"])
@pytest.mark.parametrize("option", ["--cancel-within", "--kill-within"])
def test_a_budget_that_never_ends_is_none(option: str, seconds: str, path: Path) -> None:
    with owner(path):
        pass
    result = run("recover", path, option, seconds)
    assert result.exit_code == 2
    assert option in result.stderr


def test_what_runs_on_another_machine_is_left(path: Path) -> None:
    with owner(path, "s1"):
        pass
    with closing(sqlite3.connect(path)) as database, database:
        ((address,),) = database.execute("SELECT address FROM open").fetchall()
        # A machine is known by its start; its name alone may be given anew.
        host = json.loads(json.loads(address).removeprefix("process:"))[0]
        elsewhere = address.replace(host, f"elsewhere another-boot {host.split()[2]}")
        database.execute("UPDATE open SET address = ?", (elsewhere,))
        database.execute("UPDATE sessions SET host = 'elsewhere'")
    (row,) = told("list", path)["open"]
    assert row["process"]["alive"] is None
    assert " of elsewhere was alive " in run("list", path).stdout
    (left,) = told("recover", path, status=1)["left"]
    assert (left["turn_id"], left["process"]["alive"]) == ("s1", None)
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE sessions SET beat = beat - 60")
    assert [one["turn_id"] for one in told("recover", path, status=1)["left"]] == ["s1"]
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE open SET address = ?", (address,))
    assert [one["gone"] for one in told("recover", path)["ended"]] == [True]


def test_a_turn_is_shown_from_its_admission_to_its_end(path: Path) -> None:
    with owner(path):
        pass
    (turn,) = told("show", path, "0")["turns"]
    assert (turn["room"], turn["backend"], turn["open"]) == ("hall", "folders", False)
    assert turn["records"][-1]["said"]["request"]["source"] == "a test"
    head, *lines = run("show", path, "0").stdout.splitlines()
    assert head == "hall: 0 of folders, settled"
    words = [line.split()[2:] for line in lines]
    assert ["asked", "stop", "by", "a", "test:", "enough"] in words
    result = run("show", path, "1")
    assert result.exit_code == 1
    assert "keeps nothing of a turn 1" in result.stderr


def test_of_settled_turns_nothing_is_kept_when_it_is_compacted(path: Path) -> None:
    with owner(path, "f1"):
        pass
    assert told("compact", path)["dropped"] == len(["admitted", "address", "asked", "settled"])
    assert run("show", path, "0").exit_code == 1
    assert run("show", path, "f1").exit_code == 0
    assert run("compact", path).stdout == "0 records are gone\n"


def test_what_may_be_alive_elsewhere_is_told_when_nothing_else_is_left(path: Path) -> None:
    with owner(path, "f1"):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE sessions SET host = 'elsewhere'")
        # It holds its lock, so it is there.
        assert run("recover", path).exit_code == 0
        for lock in path.parent.glob(f"{path.name}-owner-*"):
            lock.unlink()
        result = run("recover", path)
        assert result.exit_code == 1
        assert "of elsewhere was alive" in result.stdout
        assert [one["process"]["alive"] for one in told("list", path)["open"]] == [None]


def missing(path: Path) -> None:
    pass


def empty(path: Path) -> None:
    path.touch()


def foreign(path: Path) -> None:
    path.write_text("my diary, not to be overwritten\n" * 100)


def of_another_program(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE diary (day TEXT)")


def newer(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA application_id = {int.from_bytes(b'tnjl')}")
        other.execute("PRAGMA user_version = 999")


def cut(path: Path) -> None:
    with owner(path.with_name("whole.db"), "f1"):
        pass
    run("compact", path.with_name("whole.db"))
    shutil.copy(path.with_name("whole.db"), path)
    os.truncate(path, path.stat().st_size - 4096)


def without_tables(path: Path) -> None:
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"PRAGMA application_id = {int.from_bytes(b'tnjl')}")
        other.execute("PRAGMA user_version = 1")


def pipe(path: Path) -> None:
    os.mkfifo(path)


def folder(path: Path) -> None:
    path.mkdir()


COMMANDS = [("list",), ("show", "1"), ("recover",), ("compact",)]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: str(command[0]))
@pytest.mark.parametrize(
    ("make", "says"),
    [
        (missing, "does not exist"),
        (folder, "is a directory"),
        (empty, "it is empty"),
        (foreign, "it is no journal"),
        (of_another_program, "another program has made it"),
        (newer, "newer turnstop"),
        (cut, "it is damaged"),
        (without_tables, "it is damaged"),
        (pipe, "it is no regular file"),
    ],
)
def test_a_file_that_cannot_be_used_is_told_and_left(
    make: Callable[[Path], None], says: str, command: tuple[str, ...], path: Path
) -> None:
    make(path)
    before = path.read_bytes() if path.is_file() else None
    result = run(command[0], path, *command[1:])
    assert result.exit_code == 2, result.output
    assert says in result.stderr
    assert path.name in result.stderr
    assert result.stdout == ""
    assert (path.read_bytes() if path.is_file() else None) == before


@pytest.mark.parametrize("command", ["recover", "compact"])
def test_a_file_that_another_program_keeps_is_told(
    command: str, path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop._sqlite._PATIENCE", 0.2)
    with owner(path, "f1"):
        pass
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        # Who reads waits for nobody.
        assert run("list", path).exit_code == 0
        result = run(command, path)
        assert result.exit_code == 2
        assert "another program keeps it" in result.stderr


@pytest.mark.skipif(os.getuid() == 0, reason="root may write everything")
def test_a_file_that_may_only_be_read_is_listed(path: Path) -> None:
    with owner(path, "f1"):
        pass
    run("compact", path)
    path.parent.chmod(0o500)
    try:
        assert len(told("list", path)["open"]) == 1
    finally:
        path.parent.chmod(0o700)
    path.chmod(0o400)
    assert len(told("list", path)["open"]) == 1
    for command in ("recover", "compact"):
        result = run(command, path)
        assert result.exit_code == 2
        assert "see who may write it" in result.stderr


@pytest.mark.parametrize("more", ["", "-wal", "-shm", "-owner-1"])
def test_no_report_is_written_over_the_journal(more: str, path: Path) -> None:
    with owner(path, "f1"):
        pass
    # Of any program, also of one that is not there yet.
    for name in {f"{path}{more}", f"{path}{more}".replace("owner-1", "owner-77")}:
        result = run("list", path, "--json", name)
        assert result.exit_code == 2
        assert "would overwrite the journal" in result.stderr
    assert run("list", "--json", path).exit_code == 2
    assert len(told("list", path)["open"]) == 1


def test_a_report_is_written_beside_the_lines(path: Path, tmp_path: Path) -> None:
    with owner(path, "f1"):
        pass
    report = tmp_path / "report.json"
    assert "room f1" in run("list", path, "--json", report).stdout
    assert len(json.loads(report.read_text())["open"]) == 1


def test_what_a_room_is_called_does_nothing_to_a_terminal(path: Path) -> None:
    with owner(path, "f1"):
        pass
    with closing(sqlite3.connect(path)) as database, database:
        said = json.dumps({"backend": "b", "room": "\x1b[2J\nhall: 0", "turn_id": "\ud800"})
        database.execute("UPDATE open SET said = ?", (said,))
    (line,) = run("list", path).stdout.splitlines()
    assert "\x1b" not in line


def test_ctrl_c_ends_the_waiting(path: Path) -> None:
    with owner(path, "f1"):
        pass
    command = [sys.executable, "-m", "turnstop", "journal", "recover", str(path)]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with subprocess.Popen(command, stderr=subprocess.PIPE, env=environment) as process:
            assert process.stderr is not None
            while not is_open_in(process.pid, path):
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            assert process.stderr.read() == b"interrupted\n"
        assert process.returncode == 130


def test_ctrl_c_says_what_has_been_ended_so_far(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # It waits on when all is ended.
    monkeypatch.setattr("turnstop.cli.journal.recovering._LOOK_EVERY", 60.0)
    with owner(path, "s1", "s2"):
        pass

    def interrupt() -> None:
        with closing(sqlite3.connect(path, timeout=10.0)) as database:
            while database.execute("SELECT COUNT(*) FROM open").fetchall() != [(0,)]:
                time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    striker = threading.Thread(target=interrupt)
    striker.start()
    report = tmp_path / "report.json"
    result = run("recover", path, "--json", report)
    striker.join()
    assert result.exit_code == 130
    assert result.stderr == "interrupted\n"
    assert sorted(line.split()[2:4] for line in result.stdout.splitlines()) == [
        ["s1", "STOPPED"],
        ["s2", "STOPPED"],
    ]
    found = json.loads(report.read_text())
    assert sorted(one["turn_id"] for one in found["ended"]) == ["s1", "s2"]
    assert found["left"] is found["being_ended"] is found["at_work"] is None


MARKED = ("TURNSTOP_ORPHAN", "c0ffee")


@pytest.mark.parametrize(
    ("address", "place"),
    [
        (str(ProcessAddress("box 1 2", 4718, 99, MARKED)), "pid 4718"),
        (str(ProcessAddress("box 1 2", 4718, 99, MARKED, "thread-7")), "pid 4718, thread-7"),
        (str(ProcessAddress("box 1 2", 0, 0, MARKED)), "a process that was about to begin"),
        (str(OwnerAddress("box 1 2", 4711, 99, "c0ffee-0")), "work of pid 4711 itself"),
        (json.dumps(["http://agent", "context", "", "task"]), "http://agent, context, task"),
        ("/srv/jobs/7", "/srv/jobs/7"),
        ("process:[", "process:["),
        ("[]", "[]"),
        ("7", "7"),
        ("null", "null"),
        ("x" * 100, "x" * 71 + "…"),
    ],
)
def test_an_address_is_listed_for_people_and_told_whole(
    address: str, place: str, path: Path
) -> None:
    with owner(path, "f1"):
        pass
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE open SET address = ?", (json.dumps(address),))
        database.execute(
            "UPDATE records SET said = ? WHERE kind = 'address'", (json.dumps(address),)
        )
    (line,) = run("list", path).stdout.splitlines()
    assert line.endswith(f"; at {place}")
    assert [one["address"] for one in told("list", path)["open"]] == [address]
    assert f"  address   {place}\n" in run("show", path, "f1").stdout


def is_open_in(pid: int, path: Path) -> bool:
    for name in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):  # it is closed meanwhile
            if name.readlink() == path:
                return True
    return False
