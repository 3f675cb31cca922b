"""Each real program, run once from its command line, hears the lab and is heard by it."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import attrs
import pytest
import trio

from turnstop.lab import Behaviour, Lab, open_lab, program_env, write_prompt

from . import real_program

PATIENCE = 120.0
ONCE = {
    "claude": ("--dangerously-skip-permissions", "-p"),
    "codex": ("exec", "--skip-git-repo-check"),
    "copilot": ("--allow-all-tools", "-p"),
    "gemini": ("--skip-trust", "--yolo", "-p"),
    "omp": ("-p",),
    "opencode": ("run",),
    "qwen": ("--yolo", "-p"),
}
WIRES = {"claude": "messages", "codex": "responses", "gemini": "gemini"}
every_program = pytest.mark.parametrize("name", ONCE)


@attrs.define
class Run:
    lab: Lab
    token: str
    process: trio.Process

    async def said(self) -> str:
        assert self.process.stdout is not None
        said = b"".join([piece async for piece in self.process.stdout]).decode()
        await self.process.wait()
        return said


@asynccontextmanager
async def run(name: str, home: Path, behaviour: Behaviour) -> AsyncIterator[Run]:
    program = real_program(name)
    token, prompt = write_prompt(behaviour)
    with trio.fail_after(PATIENCE):
        async with open_lab() as lab:
            env = program_env(name, lab.url, home)
            words = [prompt]
            if name == "opencode":
                # It quotes a word with blanks in it; and run once, it takes silence for a no.
                words = prompt.split(" ")
                env["OPENCODE_PERMISSION"] = '{"bash": "allow"}'
            process = await trio.lowlevel.open_process(
                [*program.command, *ONCE[name], *words],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                env=env,
                cwd=home,
                start_new_session=True,
            )
            assert process.stdout is not None
            try:
                yield Run(lab, token, process)
                assert lab.faults == []
                wires = {exchange.wire for exchange in lab.exchanges}
                assert wires == {WIRES.get(name, "chat")}
            finally:
                with trio.CancelScope(shield=True), suppress(ProcessLookupError):
                    os.killpg(process.pid, signal.SIGKILL)
                    await process.wait()
                await process.stdout.aclose()


@every_program
async def test_a_turn_with_its_tool(name: str, tmp_path: Path) -> None:
    command = Behaviour("tool", command=f"echo heard > {tmp_path}/file")
    async with run(name, tmp_path, command) as once:
        assert f"answer to {once.token}" in await once.said()
        assert once.process.returncode == 0
        assert (tmp_path / "file").read_text() == "heard\n"
        first, second = once.lab.requests(once.token)
        assert (first.behaviour, second.behaviour) == (command, Behaviour())
        assert first.dropped_at is second.dropped_at is None
        assert once.lab.alive(once.token) == []
        for exchange in once.lab.side_requests(once.token):
            assert exchange.parked_at is None


@every_program
async def test_a_parked_turn_whose_program_is_killed(name: str, tmp_path: Path) -> None:
    async with run(name, tmp_path, Behaviour("park")) as once:
        parked = await once.lab.parked(once.token)
        assert once.lab.open_requests(once.token) == [parked]
        os.killpg(once.process.pid, signal.SIGKILL)
        await once.lab.gone(once.token)
        assert parked.dropped_at is not None
        assert once.lab.requests(once.token) == [parked]
