"""A real Letta server for agents that ask a lab: where it is installed, and one that runs.

    url = await start_letta()
    agent = await make_agent(url, lab.url)

It takes a quarter of a minute to start. So there is one for a whole process, from the first call to
the end of the process; whoever asks for it makes agents of their own in it, and each agent asks the
lab that it was made for.
"""

from __future__ import annotations

import atexit
import json
import os
import signal
import subprocess
import sys
import threading
import urllib.request
from contextlib import suppress
from pathlib import Path
from typing import Any, final

import trio

from ._processes import start_time
from .letta_server import DATABASE
from .pins import lab_home
from .programs import MissingProgram

__all__ = [
    "LETTA_INSTALL",
    "VERSION",
    "find_letta",
    "letta_folder",
    "make_agent",
    "start_letta",
    "stop_letta",
]

VERSION = "0.16.8"
LETTA_INSTALL = "PYTHONPATH=. python tests/real/letta_server.py"
_ENDS_WITHIN = 20.0
_ANSWERS_WITHIN = 60.0
_CONTEXT_WINDOW = 32_000
_TOOL = '''
def ring_bell(times: int) -> str:
    """Ring the bell.

    Args:
        times (int): How often.

    Returns:
        str: What is heard.
    """
    return "ding " * times
'''


def letta_folder() -> Path:
    """Where it is installed, or would be."""
    return lab_home() / f"letta-{VERSION}"


def find_letta() -> Path:
    """Where it is installed.

    Raises:
        MissingProgram: it is not.
    """
    folder = letta_folder()
    if not ((folder / "bin/python").exists() and (folder / DATABASE).is_dir()):
        text = f"letta is not installed; install it, in a checkout of turnstop: {LETTA_INSTALL}"
        raise MissingProgram(text)
    return folder


async def start_letta() -> str:
    """Where a server listens; the first call of a process starts it.

    Raises:
        MissingProgram: it is not installed, or does not start; the text says what to do.

    **Cancellation:** the server is being started all the same, for the next call, and ends with the
    process.
    """
    return await trio.to_thread.run_sync(_KEPT.start, abandon_on_cancel=True)


def stop_letta() -> None:
    """End the server that the first call has started, and all that belongs to it, within 20 s."""
    _KEPT.end()


async def make_agent(url: str, lab: str, *, asks: bool = False) -> str:
    """Make an agent of the server at `url` that asks the lab at another; its id.

    Args:
        url: the server's.
        lab: the lab's.
        asks: it has a tool `ring_bell`, for which it asks a person.

    **Cancellation:** it may have been made.
    """
    model = {
        "model": "fake-model",
        "model_endpoint_type": "openai",
        "model_endpoint": f"{lab}/v1",
        "context_window": _CONTEXT_WINDOW,
    }
    tools = []
    if asks:
        tool = {"source_code": _TOOL, "default_requires_approval": True}
        # Made again, it is the same one.
        tools = [(await _post(f"{url}/v1/tools/", tool, "PUT"))["id"]]
    body = {"name": "turnstop", "llm_config": model, "tool_ids": tools}
    return str((await _post(f"{url}/v1/agents/", body))["id"])


async def _post(url: str, body: object, method: str = "POST") -> Any:
    return await trio.to_thread.run_sync(_send, url, body, method, abandon_on_cancel=True)


def _send(url: str, body: object, method: str) -> Any:
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, json.dumps(body).encode(), headers, method=method)
    # What an environment says of proxies is not for loopback.
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    with opener.open(request, timeout=_ANSWERS_WITHIN) as response:
        return json.load(response)


@final
class _Kept:
    """The process's server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._started: int | None = None
        self._url = ""

    def start(self) -> str:
        """Start it, unless it runs."""
        with self._lock:
            if self._process is None or self._process.poll() is not None:
                self._begin(find_letta())
            return self._url

    def _begin(self, folder: Path) -> None:
        command = [sys.executable, "-m", "turnstop.lab.letta_server", str(folder)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(
            command, stdin=pipe, stdout=pipe, stderr=pipe, start_new_session=True
        )
        self._started = start_time(self._process.pid)
        assert self._process.stdout is not None
        fact = json.loads(self._process.stdout.readline() or b"{}")
        if "url" not in fact:
            _, said = self._process.communicate()
            raise MissingProgram(str(fact.get("error") or f"the Letta server ended: {said!r}"))
        self._url = str(fact["url"])

    def end(self) -> None:
        """End it, and all that belongs to it."""
        process, self._process = self._process, None
        if process is None:
            return
        with suppress(subprocess.TimeoutExpired):
            # It ends its own, when its standard input does.
            process.communicate(timeout=_ENDS_WITHIN)
        if process.poll() is None and start_time(process.pid) == self._started:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


_KEPT = _Kept()
atexit.register(stop_letta)
