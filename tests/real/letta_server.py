"""Installs the real Letta server: 1.2 GB, two minutes.

PYTHONPATH=. python tests/real/letta_server.py        # into the lab's folder

`letta` is an application of Node.js since its version 0.32: the newest server is older. It needs
PostgreSQL with pgvector, which a package brings along, and its wheel has no migrations: the tables
are made from its models. All that it needs is in `letta_requirements.txt`, in one version each.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import trio

from turnstop.lab.installing import _folder_beside, measure, sweep_killed
from turnstop.lab.letta import VERSION, find_letta, letta_folder
from turnstop.lab.letta_server import (
    DATABASE,
    NotStarted,
    database_user,
    open_database,
    postgres_programs,
)
from turnstop.lab.programs import MissingProgram

REQUIREMENTS = Path(__file__).with_name("letta_requirements.txt")
LINES = 20
SCHEMA = """\
import sys
from sqlalchemy import create_engine, text
import letta.orm
from letta.orm.base import Base

engine = create_engine(sys.argv[1].replace("postgresql:", "postgresql+psycopg2:"))
with engine.begin() as connection:
    connection.execute(text("CREATE EXTENSION vector"))
    Base.metadata.create_all(connection)
    connection.execute(text("CREATE SEQUENCE message_seq_id OWNED BY messages.sequence_id"))
    connection.execute(
        text("ALTER TABLE messages ALTER sequence_id SET DEFAULT nextval('message_seq_id')")
    )
"""


class Failed(Exception):
    """It was not installed; what was there before is as it was."""


def run(*command: object, log: Path, **options: Any) -> None:
    """Run a command; where it fails, the end of what it said is told."""
    with log.open("wb") as file:
        done = subprocess.run(
            list(map(str, command)), stdin=subprocess.DEVNULL, stdout=file, stderr=file, **options
        )
    if done.returncode != 0:
        said = log.read_text(errors="replace").strip().splitlines()[-LINES:]
        raise Failed("\n".join([f"{command[0]} failed with status {done.returncode}", *said]))


def make_environment(new: Path, log: Path, tell: Callable[[str], None]) -> None:
    """A Python environment with the server in it."""
    tell("an environment of Python")
    run(sys.executable, "-m", "venv", new, log=log)
    # Older ones give up on so many requirements.
    pip = (new / "bin/python", "-m", "pip", "--disable-pip-version-check", "--no-input")
    run(*pip, "install", "--upgrade", "pip", log=log)
    tell("the server and what it needs (the longest part)")
    run(*pip, "install", "--no-deps", "--requirement", REQUIREMENTS, log=log)


def make_database(new: Path, log: Path, tell: Callable[[str], None]) -> None:
    """A database with the server's tables, and nothing in them."""
    tell("a database with its tables")
    with tempfile.TemporaryDirectory(prefix="turnstop-letta-") as folder:
        home, database = Path(folder), Path(folder, "db")
        home.chmod(0o711)
        database.mkdir(mode=0o700)
        user = database_user()
        if user:
            os.chown(database, user["user"], user["group"])
        programs = postgres_programs(new, home)
        options = ("--username=postgres", "--auth=trust", "--encoding=UTF8", "--no-sync")
        run(programs / "initdb", *options, "-D", database, log=log, cwd=home, **user)
        trio.run(make_tables, new, programs, database, log)
        run("cp", "-a", database, new / DATABASE, log=log)


async def make_tables(new: Path, programs: Path, database: Path, log: Path) -> None:
    """Make them."""
    async with open_database(programs, database) as address:
        env = {**os.environ, "HOME": str(database.parent), "LETTA_PG_URI": address}
        command = (new / "bin/python", "-W", "ignore", "-c", SCHEMA, address)
        await trio.to_thread.run_sync(lambda: run(*command, log=log, env=env))


def install(tell: Callable[[str], None]) -> Path:
    """Install it; where it is."""
    place = letta_folder()
    sweep_killed()
    with _folder_beside() as (beside, _):
        new, log = beside / "new", beside / "log"
        make_environment(new, log, tell)
        make_database(new, log, tell)
        if place.exists():
            place.rename(beside / "old")
        new.rename(place)
    return place


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--force", action="store_true", help="in the place of one that is there")
    given = parser.parse_args()
    began = time.monotonic()

    def tell(what: str) -> None:
        print(f"{time.monotonic() - began:5.0f} s  {what}", flush=True)

    try:
        place = find_letta()
    except MissingProgram:
        place = None
    if place is not None and not given.force:
        print(f"letta {VERSION} is installed in {place}; --force does it anew")
        return 0
    try:
        place = install(tell)
    except (Failed, NotStarted, OSError) as error:
        print(error, file=sys.stderr)
        return 1
    tell(f"done: {measure(place) >> 20} MB in {place}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
