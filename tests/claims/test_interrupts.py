"""Ctrl-C anywhere in claims: what was held is released, and what was opened is closed."""

from __future__ import annotations

import sqlite3
import tempfile
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from types import CodeType
from typing import Any

import pytest
import trio
from strikes import default_handler, files_of, is_bare, lines_of, opened, sweep_lines, sweep_steps
from trio.testing import MockClock

from turnstop import _sqlite
from turnstop._unwrap import open_private_nursery
from turnstop.claims import Claim, ClaimRefused, Claims, ClaimsUnavailable, open_claims
from turnstop.claims._stores import open_sqlite_store

from .stores import Moody

__all__ = ["default_handler", "opened"]

CLAIMS = files_of(
    "claims/_claim", "claims/_claims", "claims/_lease", "claims/_register", "claims/_stores"
)
OPENINGS = files_of("claims/_claims", "claims/_stores", "_sqlite")
LEFT = "SELECT scope, holder FROM scopes JOIN leases USING (token)"


class Scene:
    """Claims that are renewed, refused, joined, worked without, and cancelled."""

    def __init__(self) -> None:
        self.store = Moody()
        self.given: list[Claim] = []
        self.written: list[str] = []
        self.claims: Claims | None = None

    def run(self) -> None:
        trio.run(self.main, clock=MockClock(autojump_threshold=0))

    async def main(self) -> None:
        async with open_claims(self.store) as claims:
            self.claims = claims
            await self.use(claims)

    async def use(self, claims: Claims) -> None:
        async with claims.hold(["a", "b"], holder="first", ttl=3) as claim:
            self.given.append(claim)
            await trio.sleep(1.5)
            async with claims.hold(["a/inside"], holder="inner") as inner:
                await inner.check("a/inside")
                await inner.write("a/inside", self.written.append, "x")
            async with open_private_nursery() as nursery:
                nursery.start_soon(self.refused, claims)
        await self.unclaimed(claims)
        with trio.move_on_after(1.5):
            async with claims.hold(["c"], holder="second", ttl=3) as claim:
                self.given.append(claim)
                await trio.sleep_forever()

    async def refused(self, claims: Claims) -> None:
        # In a task of its own, which has none of the claims around it.
        claims = Claims(self.store)
        with pytest.raises(ClaimRefused):
            async with claims.hold(["a"], holder="other"):
                pass

    async def unclaimed(self, claims: Claims) -> None:
        self.store.failing.add("acquire")
        with pytest.raises(ClaimsUnavailable):
            async with claims.hold(["d"], holder="third"):
                pass
        async with claims.hold(["d"], holder="third", or_unclaimed=True):
            await trio.sleep(1)
        self.store.failing.clear()

    def check(self) -> None:
        assert self.store.inner._database.execute(LEFT).fetchall() == []
        assert all(claim.lost.is_set() for claim in self.given)
        if self.claims is not None:
            found = self.claims.statistics()
            assert (found.held, found.unclaimed, found.lost) == (0, 0, 0)


class InATask(Scene):
    """The same, where it is not the main task that claims."""

    async def use(self, claims: Claims) -> None:
        async with open_private_nursery() as nursery:
            nursery.start_soon(super().use, claims)


# Made, and not awaited: Ctrl-C came between.
pytestmark = pytest.mark.filterwarnings("ignore:.*coroutine .* was never awaited:RuntimeWarning")


class Looking(Moody):
    """Notes whether Ctrl-C may come into what it does."""

    def __init__(self) -> None:
        super().__init__()
        self.protected: dict[str, set[bool]] = {}

    async def _do(self, name: str, *args: Any) -> Any:
        self.protected.setdefault(name, set()).add(trio.lowlevel.currently_ki_protected())
        return await super()._do(name, *args)


def test_the_scene_is_whole() -> None:
    scene = Scene()
    scene.store = store = Looking()
    scene.run()
    # What is somebody else's may be interrupted, but for the letting go.
    assert store.protected.pop("release") == {True}
    assert set().union(*store.protected.values()) == {False}
    scene.check()
    assert len(scene.given) == 2
    assert scene.written == ["x"]
    assert scene.store.asked.count("renew") >= 2


@pytest.mark.parametrize("make", [Scene, InATask])
def test_ctrl_c_on_any_line_leaves_nothing_claimed(make: Callable[[], Scene]) -> None:
    lines = lines_of(make().run, CLAIMS)
    assert len(lines) > 100
    assert sweep_lines(make, lines, is_bare) == []


def in_claims(code: CodeType) -> bool:
    return code.co_filename in CLAIMS


@pytest.mark.parametrize("make", [Scene, InATask])
def test_ctrl_c_at_any_step_leaves_nothing_claimed(make: Callable[[], Scene]) -> None:
    """Between what the store has granted and the block that lets it go, say."""
    steps, wrong = sweep_steps(make, in_claims, every=7)
    assert steps > 1000
    assert wrong == []


class OnFile(Scene):
    """Claims in a file. Its threads take real time, and so nothing in here waits for any."""

    def __init__(self, folder: Path, opened: list[sqlite3.Connection]) -> None:
        super().__init__()
        self.path = Path(tempfile.mkdtemp(dir=folder)) / "claims.db"
        self.opened = opened

    def run(self) -> None:
        trio.run(self.main)

    async def main(self) -> None:
        async with open_claims(self.path) as claims:
            self.claims = claims
            await self.use(claims)

    async def use(self, claims: Claims) -> None:
        async with claims.hold(["a", "b"], holder="first") as claim:
            self.given.append(claim)
            async with claims.hold(["a/inside"], holder="inner") as inner:
                await inner.write("a/inside", self.written.append, "x")
            async with open_private_nursery() as nursery:
                nursery.start_soon(self.refused, claims)

    async def refused(self, claims: Claims) -> None:
        claims = Claims(claims._register.store)
        with pytest.raises(ClaimRefused):
            async with claims.hold(["a"], holder="other"):
                pass

    def check(self) -> None:
        assert all(claim.lost.is_set() for claim in self.given)
        for connection in self.opened:
            with pytest.raises(sqlite3.ProgrammingError, match="closed"):
                connection.execute("SELECT 1")
        self.opened.clear()
        if self.path.exists() and self.path.stat().st_size:
            with closing(sqlite3.connect(self.path)) as database:
                if self.claims is not None:
                    assert database.execute(LEFT).fetchall() == []


class StoreAlone(OnFile):
    """Whoever opens it is nobody's of ours."""

    async def main(self) -> None:
        async with open_sqlite_store(self.path) as store:
            await store.release("none")


class DatabaseAlone(OnFile):
    """As a feed opens its own."""

    async def main(self) -> None:
        async with _sqlite.open_database(self.path, _sqlite.Schema(b"test", 1, ())) as database:
            await database.read(lambda one: one.execute("SELECT 1").fetchall())


def test_ctrl_c_on_any_line_leaves_no_file_open(
    tmp_path: Path, opened: list[sqlite3.Connection]
) -> None:
    make = partial(OnFile, tmp_path, opened)
    lines = lines_of(make().run, CLAIMS | files_of("_sqlite"))
    assert len(lines) > 100
    assert sweep_lines(make, lines, is_bare) == []


def opens(code: CodeType) -> bool:
    names = ("open_claims", "open_sqlite_store", "open_database", "_close")
    return code.co_filename in OPENINGS and code.co_name in names


@pytest.mark.parametrize("kind", [OnFile, StoreAlone, DatabaseAlone])
def test_ctrl_c_at_any_step_of_an_opening_leaves_no_file_open(
    tmp_path: Path, opened: list[sqlite3.Connection], kind: type[OnFile]
) -> None:
    steps, wrong = sweep_steps(partial(kind, tmp_path, opened), opens, every=3)
    assert steps > 100
    assert wrong == []
