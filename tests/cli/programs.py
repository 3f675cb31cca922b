"""`turnstop serve` as a program of a test."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
from click.testing import CliRunner, Result

from turnstop.cli.main import main

ROOT = Path(__file__).parents[2]
COMMAND = (sys.executable, "-c", "from turnstop.cli.main import main; main()")
TOKEN = "only-for-this-test"


@attrs.define
class Program:
    process: subprocess.Popen[str]
    url: str

    def run(self, *args: str, token: str = TOKEN) -> Result:
        env = {"TURNSTOP_TOKEN": token, "TURNSTOP_URL": self.url}
        return CliRunner().invoke(main, args, env=env)

    def told(self, *args: str) -> Any:
        result = self.run(*args, "--json")
        assert result.exit_code == 0, result.output
        return json.loads(result.stdout)

    def events(self, room: str = "kitchen") -> list[dict[str, Any]]:
        """What has happened there so far."""
        import httpx2

        headers = {"Authorization": f"Bearer {TOKEN}"}
        url = f"{self.url}/rooms/{room}/events"
        found, rest, end = [], "", time.monotonic() + 0.5
        try:
            with httpx2.stream("GET", url, headers=headers, timeout=0.3, trust_env=False) as stream:
                for chunk in stream.iter_text():
                    *blocks, rest = (rest + chunk).split("\n\n")
                    for block in blocks:
                        lines = dict(line.split(": ", 1) for line in block.split("\n"))
                        if "data" in lines:
                            found.append({"type": lines["event"], **json.loads(lines["data"])})
                    if time.monotonic() > end:
                        break
        except httpx2.TimeoutException:
            pass
        return found

    def wait_for(
        self, wanted: Callable[[dict[str, Any]], bool], room: str = "kitchen"
    ) -> dict[str, Any]:
        end = time.monotonic() + 30
        while time.monotonic() < end:
            if found := next(filter(wanted, self.events(room)), None):
                return found
        raise AssertionError(f"not in {self.events(room)}")

    def end(self, number: int = signal.SIGTERM) -> tuple[int, str]:
        self.process.send_signal(number)
        _, err = self.process.communicate(timeout=60)
        return self.process.returncode, err


def environment(cwd: Path | None = None, **env: str) -> dict[str, str]:
    paths = os.pathsep.join(map(str, filter(None, (ROOT, cwd))))
    return {**os.environ, "PYTHONPATH": paths, "TURNSTOP_TOKEN": TOKEN, **env}


@contextmanager
def serve(
    *args: str, cwd: Path | None = None, stderr: int = subprocess.PIPE, **env: str
) -> Iterator[Program]:
    process = subprocess.Popen(
        [*COMMAND, "serve", "--port", "0", "--json", *args],
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        cwd=cwd,
        env=environment(cwd, **env),
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, process.communicate(timeout=30)[1]
        yield Program(process, json.loads(line)["url"])
    finally:
        process.kill()
        process.communicate()


def is_text(event: dict[str, Any]) -> bool:
    return event["type"] == "text"


def is_settled(event: dict[str, Any]) -> bool:
    return event["type"] == "settlement"
