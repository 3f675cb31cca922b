"""The launcher of the A2A agent: what it tells of the work, and that nothing of it is left."""

from __future__ import annotations

import importlib.util
import os
import signal
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trio

from turnstop.lab import MissingProgram
from turnstop.lab.a2a import A2A_INSTALL, A2AServer, open_a2a_server

CARD = b"GET /.well-known/agent-card.json HTTP/1.0\r\n\r\n"


@asynccontextmanager
async def open_server(port: int = 0) -> AsyncGenerator[A2AServer, None]:
    if importlib.util.find_spec("uvicorn") is None:
        if os.environ.get("TURNSTOP_REAL") == "require":
            pytest.fail(A2A_INSTALL)
        pytest.skip(A2A_INSTALL)
    with trio.fail_after(60):
        async with open_a2a_server(port=port) as server:
            yield server


def lives(server: A2AServer) -> bool:
    return Path(f"/proc/{server.pid}").exists()


async def test_it_listens_as_soon_as_it_is_opened_and_is_gone_afterwards() -> None:
    async with open_server() as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        async with await trio.open_tcp_stream("127.0.0.1", port) as stream:
            await stream.send_all(CARD)
            answer = b"".join([chunk async for chunk in stream])
        assert answer.startswith(b"HTTP/1.1 200")
        assert not server.work("nobody")
        await server.gone("nobody")
        assert lives(server)
    assert not lives(server)


async def test_a_frozen_one_is_ended_all_the_same() -> None:
    async with open_server() as server:
        server.freeze()
    assert not lives(server)


async def test_one_that_was_killed_is_left_alone() -> None:
    async with open_server() as server:
        await server.kill()
        assert not lives(server)
        server.thaw()


async def test_a_cancelled_block_ends_it() -> None:
    with trio.CancelScope() as scope:
        async with open_server() as server:
            scope.cancel()
            await trio.sleep_forever()
    assert not lives(server)


async def test_it_ends_with_whoever_started_it() -> None:
    async with open_server() as _:  # it is installed
        pass
    command = [sys.executable, "-m", "turnstop.lab.a2a_server"]
    with trio.fail_after(60):
        done = await trio.run_process(command, stdin=b"", capture_stdout=True, check=False)
    assert done.returncode == 0
    assert done.stdout.startswith(b'{"port": ')


async def test_sigterm_ends_it() -> None:
    async with open_server() as server:
        os.kill(server.pid, signal.SIGTERM)
        assert await server._process.wait() in (0, -signal.SIGTERM)


async def test_one_that_does_not_start_says_why() -> None:
    async with open_server() as server:
        port = int(server.url.rstrip("/").rpartition(":")[2])
        with pytest.raises(MissingProgram, match="Address already in use"):
            async with open_a2a_server(port=port):
                pytest.fail("it started")


async def test_a_missing_one_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    monkeypatch.setattr(subprocess, "Popen", None)
    with pytest.raises(MissingProgram) as caught:
        async with open_a2a_server():
            pytest.fail("it started")
    assert str(caught.value).endswith(A2A_INSTALL)
