"""turnstop within an agent of turnstop: what the inner one has begun is the outer turn's too."""

from __future__ import annotations

import os
import re
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import nullcontext, suppress
from typing import Any

import pytest
import trio
from runs import look

import turnstop
from turnstop.abc import RemoteTurn, Request
from turnstop.adapters.local import Work, open_local
from turnstop.events import Text
from turnstop.transports.children import start_child
from turnstop.transports.offspring import make_mark
from turnstop.transports.proctable import has_table

pytestmark = pytest.mark.skipif(not has_table(), reason="no process table is shown here")

# It is killed as an agent kills its tools when it is told to stop, and leaves what it has begun.
CHILDREN = """
import os, trio, turnstop
from turnstop.transports.children import start_child

class Ovens:
    async def start(self, request):
        return await start_child(request, ["sh", "-c", request.content])

async def work():
    async with turnstop.open_rooms(Ovens()) as rooms:
        async with rooms.turn("inner", "echo $$; exec sleep 600") as turn:
            async for event in turn:
                os.write(1, event.delta.encode())
                os.kill(os.getpid(), 9)

trio.run(work)
"""
FUNCTIONS = """
import os, subprocess, trio, turnstop
from turnstop.adapters.local import open_local

async def bake(work):
    env = {**os.environ, **work.env}
    quiet = {"stdout": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen(["sleep", "600"], env=env, **quiet)
    os.write(1, f"{process.pid}\\n".encode())
    os.kill(os.getpid(), 9)

async def work():
    async with open_local(bake) as local, turnstop.open_rooms(local) as rooms:
        async with rooms.turn("inner", "bread") as turn:
            await trio.sleep_forever()

trio.run(work)
"""


class Ovens:
    async def start(self, request: Request[str]) -> RemoteTurn:
        command = shlex.join([sys.executable, "-c", request.content])
        return await start_child(request, ["sh", "-c", f"echo $({command}); exec sleep 600"])


async def bake(work: Work) -> None:
    command = [sys.executable, "-c", str(work.content)]
    env = {**os.environ, **work.env}
    done = await trio.run_process(command, env=env, capture_stdout=True, check=False)
    assert done.returncode == -signal.SIGKILL
    work.emit(Text(done.stdout.decode()))
    await trio.sleep_forever()


@pytest.fixture
def pids() -> Iterator[list[int]]:
    found = list[int]()
    yield found
    for pid in found:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize(
    ("opener", "inner"),
    [
        (lambda: nullcontext(Ovens()), CHILDREN),
        (lambda: nullcontext(Ovens()), FUNCTIONS),
        (lambda: open_local(bake), CHILDREN),
        (lambda: open_local(bake), FUNCTIONS),
    ],
    ids=["children-children", "children-functions", "functions-children", "functions-functions"],
)
async def test_what_an_inner_turnstop_has_begun_ends_with_the_outer_turn(
    opener: Any, inner: str, pids: list[int]
) -> None:
    with trio.fail_after(20):
        async with opener() as backend, turnstop.open_rooms(backend) as rooms:
            async with rooms.turn("outer", inner) as turn:
                async for event in turn:
                    pids.append(int(event.delta))
                    assert look(pids[0])
                    break
            assert turn.settlement.clean
            assert not look(pids[0])


@pytest.mark.parametrize("value", ["a=b", "a.b", "a b", "ä"])
def test_a_marks_name_is_one_that_every_shell_keeps(value: str) -> None:
    name, _ = make_mark("MARK", value)
    assert re.fullmatch(r"[A-Z]\w*", name, re.ASCII)
    assert make_mark("MARK", value)[0] == name
    assert make_mark("MARK", value.upper())[0] != name
