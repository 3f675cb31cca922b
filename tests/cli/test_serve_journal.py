"""`turnstop serve --journal`: what a killed server has left is ended by the next one."""

from __future__ import annotations

import os
import signal
import subprocess
from pathlib import Path

import pytest
from programs import COMMAND, environment, is_settled, is_text, serve
from runs import look

OVENS = """
import os
from contextlib import asynccontextmanager
from subprocess import DEVNULL

import attrs
import trio
from turnstop.events import Text
from turnstop.transports.orphans import ProcessAddress, attach_process, new_mark


@attrs.define(eq=False)
class Oven:
    turn: object
    pid: int
    session: object = None

    def __getattr__(self, name):
        return getattr(self.turn, name)

    async def follow(self, emit):
        emit(Text(f"pid {self.pid} "))
        return await self.turn.follow(emit)


class Ovens:
    name = "ovens"
    announces = True

    async def start(self, request):
        mark = new_mark()
        await request.announce(str(ProcessAddress.ahead(mark)))
        process = await trio.lowlevel.open_process(
            ["sleep", "600"],
            env={**os.environ, **dict([mark])},
            start_new_session=True,
            stdout=DEVNULL,
            stderr=DEVNULL,
        )
        return Oven(attach_process(str(ProcessAddress.of(process.pid, mark))), process.pid)

    async def attach(self, address):
        return attach_process(address)


@asynccontextmanager
async def open_ovens():
    yield Ovens()
"""


def test_what_a_killed_server_has_left_is_ended_before_its_room_goes_on(
    tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    (tmp_path / "ovens.py").write_text(OVENS)
    args = ("-v", "--file", "kept.db", "--journal", "turns.db", "ovens:open_ovens")
    with serve(*args, cwd=tmp_path) as program:
        program.told("send", "kitchen", "bake", "--id", "bread")
        pid = int(program.wait_for(is_text)["delta"].split()[1])
        program.process.kill()
        program.process.wait()
    assert look(pid)
    request.addfinalizer(lambda: os.kill(pid, signal.SIGKILL) if look(pid) else None)
    with serve(*args, cwd=tmp_path) as program:
        # The message is not done, and is begun again: by then the old turn has ended.
        again = int(program.wait_for(is_text)["delta"].split()[1])
        assert again != pid
        assert not look(pid)
        old = program.wait_for(is_settled)
        assert (old["ending"], old["request"]["kind"]) == ("stopped", "recovery")
        program.told("interrupt", "kitchen")
        program.wait_for(lambda one: is_settled(one) and one["turn_id"] != old["turn_id"])
        code, err = program.end(signal.SIGTERM)
        assert code == 0
        assert not look(again)
    assert "of a process that is gone has settled: stopped" in err


def test_a_journal_that_is_none_is_said_before_anything_is_served(tmp_path: Path) -> None:
    args = [*COMMAND, "serve", "--port", "0", "--file", "kept.db", "--journal", "kept.db"]
    done = subprocess.run(
        args, cwd=tmp_path, env=environment(tmp_path), capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (2, "")
    assert "kept.db: it holds messages, not turns: take another file" in done.stderr
