"""Claims in a file: several programs, broken files, slow disks. In real time."""

from __future__ import annotations

import os
import signal
import sqlite3
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio

import turnstop
from turnstop import _sqlite
from turnstop.claims import (
    ClaimLapsed,
    ClaimRefused,
    Claims,
    ClaimsUnavailable,
    _stores,
    open_claims,
)

HOLD = """
import sys, trio
from turnstop.claims import open_claims

async def main(path, ttl):
    async with open_claims(path) as claims, claims.hold(["a"], holder="child", ttl=ttl) as claim:
        print(claim.token, flush=True)
        await trio.sleep_forever()

trio.run(main, sys.argv[1], float(sys.argv[2]))
"""


@contextmanager
def child(path: Path, ttl: float) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """Another program that holds `a`, and its token."""
    env = {**os.environ, "PYTHONPATH": str(Path(turnstop.__file__).parent.parent)}
    command = [sys.executable, "-c", HOLD, str(path), str(ttl)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@contextmanager
def kept_busy(path: Path) -> Iterator[None]:
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield


def stop_at_rest(process: subprocess.Popen[str], path: Path) -> None:
    """Have it stand still, but not while it has the file to itself."""
    while True:
        os.kill(process.pid, signal.SIGSTOP)
        os.waitpid(process.pid, os.WUNTRACED)
        try:
            with kept_busy(path):
                return
        except sqlite3.OperationalError:
            os.kill(process.pid, signal.SIGCONT)


async def is_free(claims: Claims, scope: str) -> bool:
    try:
        async with claims.hold([scope], holder="me"):
            return True
    except ClaimRefused:
        return False


async def until_free(claims: Claims, scope: str) -> None:
    while not await is_free(claims, scope):  # noqa: ASYNC110
        await trio.sleep(0.02)


def is_closed(database: sqlite3.Connection) -> bool:
    try:
        return database.total_changes < 0
    except sqlite3.ProgrammingError:
        return True


def modes_in(folder: Path) -> set[int]:
    return {stat.S_IMODE(one.stat().st_mode) for one in folder.iterdir()}


async def test_another_program_holds_it(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    async with open_claims(path) as claims:
        with child(path, 60) as (_, token):
            with pytest.raises(ClaimRefused, match="child holds 'a'"):
                async with claims.hold(["b", "a/x"], holder="me"):
                    raise AssertionError
            # Whoever has its token writes for it: what it has started, say.
            await claims.check(token, "a/x")
            assert await claims.write(token, "a/x", sum, [1, 2]) == 3
            assert await is_free(claims, "b")


async def test_who_was_killed_holds_it_for_its_ttl(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    async with open_claims(path) as claims:
        with child(path, 1.0) as (process, token):
            await trio.sleep(1.5)
            assert not await is_free(claims, "a")
            process.kill()
            killed = time.monotonic()
            assert not await is_free(claims, "a")
            await claims.check(token, "a")
            await until_free(claims, "a")
            assert 0.3 < time.monotonic() - killed < 5
            with pytest.raises(ClaimLapsed):
                await claims.write(token, "a", list)


async def test_who_stood_still_writes_no_more(tmp_path: Path) -> None:
    """Stopped for longer than its ttl, and then it goes on, and writes."""
    path = tmp_path / "claims.db"
    async with open_claims(path) as claims:
        with child(path, 0.5) as (process, token):
            stop_at_rest(process, path)
            await until_free(claims, "a")
            os.kill(process.pid, signal.SIGCONT)
            await trio.sleep(0.6)
            assert await is_free(claims, "a")
            async with claims.hold(["a"], holder="me") as claim:
                assert claim.token is not None
                assert claim.token > token
                with pytest.raises(ClaimLapsed):
                    await claims.write(token, "a", list)


async def test_nobody_is_granted_it_while_it_is_written(tmp_path: Path) -> None:
    """Not even where it lapses meanwhile."""
    path = tmp_path / "claims.db"
    written = []

    def write() -> None:
        time.sleep(0.6)
        written.append(time.monotonic())

    async with open_claims(path) as mine, open_claims(path) as others:
        async with trio.open_nursery() as nursery:
            async with mine.hold(["a"], holder="me", ttl=0.3) as claim:
                nursery.start_soon(claim.write, "a", write)
                await claim.lost.wait()
                await until_free(others, "a")
                granted = time.monotonic()
    assert len(written) == 1
    assert written[0] <= granted


async def test_an_error_of_what_writes_is_its_own(tmp_path: Path) -> None:
    calls = []

    def write() -> None:
        calls.append(1)
        # As another database's would say it that is busy: no reason to write twice.
        with closing(sqlite3.connect(tmp_path / "b.db", timeout=0, isolation_level=None)) as one:
            one.execute("BEGIN IMMEDIATE")

    async with open_claims(tmp_path / "claims.db") as claims:
        async with claims.hold(["a"], holder="me") as claim:
            with kept_busy(tmp_path / "b.db"):
                with pytest.raises(sqlite3.OperationalError, match="locked"):
                    await claim.write("a", write)
            await claim.check("a")
    assert calls == [1]
    assert claims.statistics().failed == 0


async def test_a_write_that_is_cancelled_is_made_to_its_end(tmp_path: Path) -> None:
    begun, done = threading.Event(), []

    def write() -> None:
        begun.set()
        time.sleep(0.3)
        done.append(1)

    async with open_claims(tmp_path / "claims.db") as claims:
        async with claims.hold(["a"], holder="me") as claim:
            with trio.CancelScope() as scope:
                async with trio.open_nursery() as nursery:
                    nursery.start_soon(claim.write, "a", write)
                    while not begun.is_set():  # noqa: ASYNC110
                        await trio.sleep(0.01)
                    scope.cancel()
            assert done == [1]


async def test_tokens_grow_also_over_those_that_are_gone(tmp_path: Path) -> None:
    tokens = []
    for _ in range(3):
        async with open_claims(tmp_path / "claims.db") as claims:
            for _ in range(2):
                async with claims.hold(["a"], holder="me") as claim:
                    tokens.append(claim.token)
    assert tokens == [1, 2, 3, 4, 5, 6]


async def test_what_is_from_before_the_machine_began_is_nobodys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock begins anew."""
    path, now = tmp_path / "claims.db", [50_000.0]
    monkeypatch.setattr(_stores, "_now", lambda: now[0])
    async with open_claims(path) as before, open_claims(path) as after:
        async with before.hold(["a"], holder="before", ttl=300) as claim:
            assert not await is_free(after, "a")
            now[0] = 20.0
            with pytest.raises(ClaimLapsed):
                await claim.write("a", list)
            assert await is_free(after, "a")


async def test_a_locked_file_is_no_claim(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_sqlite, "_PATIENCE", 0.2)
    path = tmp_path / "claims.db"
    async with open_claims(path) as claims:
        with kept_busy(path), pytest.raises(ClaimsUnavailable, match="locked"):
            async with claims.hold(["a"], holder="me"):
                raise AssertionError
        assert await is_free(claims, "a")


async def test_a_disk_that_takes_nothing_more(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    async with open_claims(path) as claims:
        async with claims.hold(["a"], holder="me", ttl=0.9) as claim:
            database: Any = claims._register.store
            database._database._writer.execute("PRAGMA query_only = ON")
            with pytest.raises(ClaimsUnavailable):
                async with claims.hold(["b"], holder="me"):
                    raise AssertionError
            async with claims.hold(["b"], holder="me", or_unclaimed=True) as without:
                assert await without.write("b", int) == 0
            await claim.lost.wait()
            assert "readonly" in claim.why_lost
            database._database._writer.execute("PRAGMA query_only = OFF")
        assert await is_free(claims, "a")


async def test_leaving_is_bounded_while_the_file_is_locked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = tmp_path / "claims.db"
    async with open_claims(path) as claims:
        with ExitStack() as stack, trio.CancelScope() as scope:
            async with claims.hold(["a"], holder="me", ttl=60):
                stack.enter_context(kept_busy(path))
                begun = time.monotonic()
                scope.cancel()
                await trio.sleep_forever()
        assert 1.5 < time.monotonic() - begun < 4
    assert "is left to lapse within 60 s" in caplog.text


async def test_a_disk_that_hangs_is_left_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A thread is stuck in the renewal: the claim is lost on time, and the block left."""
    path, hang = tmp_path / "claims.db", threading.Event()

    def stuck(*_: Any) -> bool:
        hang.wait(20)
        return True

    try:
        async with open_claims(path) as claims:
            monkeypatch.setattr(_stores._rows, "renew", stuck)
            begun = time.monotonic()
            async with claims.hold(["a"], holder="me", ttl=0.6) as claim:
                await claim.lost.wait()
                assert 0.5 < time.monotonic() - begun < 2
        assert time.monotonic() - begun < 8
        store: Any = claims._register.store
        assert not is_closed(store._database._writer)
    finally:
        hang.set()
    with trio.fail_after(10):
        # It is closed all the same, when the disk answers.
        while not is_closed(store._database._writer):  # noqa: ASYNC110
            await trio.sleep(0.02)


@pytest.mark.parametrize(
    ("statement", "match"),
    [
        ("PRAGMA user_version = 99", "newer turnstop"),
        ("PRAGMA application_id = 7", "another program"),
    ],
)
async def test_another_kind_of_file_is_left_alone(
    tmp_path: Path, statement: str, match: str
) -> None:
    path = tmp_path / "claims.db"
    async with open_claims(path):
        pass
    with closing(sqlite3.connect(path)) as database:
        database.execute(statement)
    before = path.read_bytes()
    with pytest.raises(sqlite3.DatabaseError, match=rf"claims\.db: .*{match}"):
        async with open_claims(path):
            raise AssertionError
    assert path.read_bytes() == before


async def test_a_file_that_is_none_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    path.write_bytes(b"these are my notes, no database" * 99)
    with pytest.raises(sqlite3.DatabaseError, match="not a database"):
        async with open_claims(path):
            raise AssertionError
    assert path.read_bytes().startswith(b"these are")


async def test_it_is_for_its_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    async with open_claims(path) as claims, claims.hold(["a"], holder="me"):
        assert modes_in(tmp_path) == {0o600}


async def test_the_rows_are_few_whatever_has_been(tmp_path: Path) -> None:
    path = tmp_path / "claims.db"
    async with open_claims(path) as claims:
        for number in range(20):
            with suppress(ClaimRefused):
                async with claims.hold([f"a/{number}", "b"], holder="me \ud800" * 100):
                    pass
    with closing(sqlite3.connect(path)) as database:
        assert database.execute("SELECT * FROM leases").fetchall() == []
        assert database.execute("SELECT * FROM scopes").fetchall() == []
