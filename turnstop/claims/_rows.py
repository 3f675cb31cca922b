"""What stands in a file of claims, and what is asked of it. Each function is one transaction."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from typing import Final

from ._errors import ClaimRefused
from ._scopes import below, upwards
from ._store import Wanted

__all__ = ["STATEMENTS", "VERSION", "acquire", "is_live", "release", "renew"]

VERSION: Final = 1
# A number that was given stays given, whatever is deleted: AUTOINCREMENT.
STATEMENTS: Final = (
    """CREATE TABLE IF NOT EXISTS leases (
        token INTEGER PRIMARY KEY AUTOINCREMENT,
        lease TEXT NOT NULL UNIQUE,
        holder TEXT NOT NULL,
        ttl REAL NOT NULL,
        lapses REAL NOT NULL
    )""",
    """CREATE TABLE IF NOT EXISTS scopes (
        scope TEXT NOT NULL,
        token INTEGER NOT NULL,
        PRIMARY KEY (scope, token)
    ) WITHOUT ROWID""",
    "CREATE INDEX IF NOT EXISTS scopes_of ON scopes (token)",
)
# The clock begins anew with the machine, and with it ends whoever held anything: what would lapse
# later than a renewal of now has it from before. One second is for rounding.
_LIVE: Final = "lapses > :now AND lapses <= :now + ttl + 1"
_HOLDER: Final = 200


def acquire(database: sqlite3.Connection, wanted: Wanted, now: float) -> int:
    """See `ClaimStore.acquire`."""
    release(database, wanted.lease)
    _clear(database, now)
    for scope in wanted.scopes:
        for held, whose, holder, lapses in _overlapping(database, scope):
            if whose not in wanted.within:
                raise ClaimRefused(scope, held, holder, lapses - now)
    values = (wanted.lease, _plain(wanted.holder), wanted.ttl, now + wanted.ttl)
    new = "INSERT INTO leases (lease, holder, ttl, lapses) VALUES (?, ?, ?, ?)"
    token = database.execute(new, values).lastrowid
    assert token is not None
    rows = [(scope, token) for scope in wanted.scopes]
    database.executemany("INSERT INTO scopes VALUES (?, ?)", rows)
    return token


def _clear(database: sqlite3.Connection, now: float) -> None:
    lapsed = f"SELECT token FROM leases WHERE NOT ({_LIVE})"
    database.execute(f"DELETE FROM scopes WHERE token IN ({lapsed})", {"now": now})
    database.execute(f"DELETE FROM leases WHERE NOT ({_LIVE})", {"now": now})


def _overlapping(database: sqlite3.Connection, scope: str) -> Iterator[tuple[str, int, str, float]]:
    query = "SELECT scope, token, holder, lapses FROM scopes JOIN leases USING (token) WHERE scope"
    for one in upwards(scope):
        yield from database.execute(f"{query} = ?", (one,)).fetchall()
    yield from database.execute(f"{query} > ? AND scope < ?", below(scope)).fetchall()


def renew(database: sqlite3.Connection, lease: str, ttl: float, now: float) -> bool:
    """See `ClaimStore.renew`."""
    update = f"UPDATE leases SET ttl = :ttl, lapses = :now + :ttl WHERE lease = :lease AND {_LIVE}"
    values = {"lease": lease, "ttl": ttl, "now": now}
    return database.execute(update, values).rowcount > 0


def release(database: sqlite3.Connection, lease: str) -> None:
    """See `ClaimStore.release`."""
    its = "SELECT token FROM leases WHERE lease = ?"
    database.execute(f"DELETE FROM scopes WHERE token IN ({its})", (lease,))
    database.execute("DELETE FROM leases WHERE lease = ?", (lease,))


def is_live(
    database: sqlite3.Connection, token: int, scope: str, clock: Callable[[], float]
) -> bool:
    """See `ClaimStore.check`."""
    scopes = [*upwards(scope)]
    marks = ", ".join("?" * len(scopes))
    query = (
        "SELECT lapses, ttl FROM scopes JOIN leases USING (token)"
        f" WHERE token = ? AND scope IN ({marks})"
    )
    found = database.execute(query, (token, *scopes)).fetchall()
    # After it was read: until a lease lapses nobody else is granted what it has.
    now = clock()
    return any(now < lapses <= now + ttl + 1 for lapses, ttl in found)


def _plain(holder: str) -> str:
    return holder[:_HOLDER].encode("utf-8", "backslashreplace").decode()
