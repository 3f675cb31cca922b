"""A headless Chromium, driven over a pair of pipes by the DevTools protocol."""

from __future__ import annotations

import base64
import itertools
import json
import os
import shutil
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

NAMES = ("chromium", "chromium-browser", "google-chrome")
INSTALL = "apt-get install chromium"
HURRY = "const later = setTimeout; window.setTimeout = (work, ms) => later(work, ms / 20);"
"""The page's clocks go 20 times as fast: 45 s are 2.25 s, 4 s are 200 ms."""
AS_3_AND_4 = """
import fcntl, os, sys
# Above both places first: one pipe may lie where the other is to go.
read, write = (fcntl.fcntl(int(one), fcntl.F_DUPFD, 10) for one in sys.argv[1:3])
os.dup2(read, 3)
os.dup2(write, 4)
os.execv(sys.argv[3], sys.argv[3:])
"""
FLAGS = (
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-dev-shm-usage",
    "--disable-background-networking",
    "--no-first-run",
    "--remote-debugging-pipe",
)


def find_chromium() -> str:
    found = next(filter(None, map(shutil.which, NAMES)), None)
    if found is None:
        if os.environ.get("TURNSTOP_REAL") == "require":
            pytest.fail(f"no Chromium here: {INSTALL}")
        pytest.skip(f"no Chromium here: {INSTALL}")
    return found


@attrs.define(eq=False)
class Page:
    """A page that is open; `logs` is what it told its console, and the errors in it."""

    write: trio.lowlevel.FdStream
    session: str = ""
    logs: list[str] = attrs.field(factory=list)
    tabs: list[str] = attrs.field(factory=list)
    _numbers: Any = attrs.field(factory=lambda: itertools.count(1))
    _answers: dict[int, tuple[trio.Event, list[Any]]] = attrs.field(factory=dict)

    async def open_tab(self, url: str, before: str = "") -> None:
        """Open one more, and have it before all others."""
        self.session = ""
        target = await self.call("Target.createTarget", url="about:blank")
        attached = await self.call(
            "Target.attachToTarget", targetId=target["targetId"], flatten=True
        )
        self.tabs.append(attached["sessionId"])
        await self.go_to_tab(-1)
        for domain in ("Page", "Runtime", "Log"):
            await self.call(f"{domain}.enable")
        await self.call("Page.addScriptToEvaluateOnNewDocument", source=before)
        await self.call("Page.navigate", url=url)
        await self.until("location.protocol === 'http:' && document.readyState === 'complete'")

    async def go_to_tab(self, number: int) -> None:
        self.session = self.tabs[number]
        await self.call("Page.bringToFront")

    async def call(self, method: str, **params: Any) -> Any:
        number = next(self._numbers)
        event, found = self._answers[number] = (trio.Event(), [])
        told = {"id": number, "method": method, "params": params}
        if self.session:
            told["sessionId"] = self.session
        await self.write.send_all(json.dumps(told).encode() + b"\0")
        await event.wait()
        assert "error" not in found[0], found[0]
        return found[0]["result"]

    async def hear(self, read: trio.lowlevel.FdStream) -> None:
        rest = b""
        async for chunk in read:
            *frames, rest = (rest + chunk).split(b"\0")
            for frame in map(json.loads, frames):
                if "id" in frame:
                    event, found = self._answers.pop(frame["id"])
                    found.append(frame)
                    event.set()
                elif frame["method"] in ("Log.entryAdded", "Runtime.exceptionThrown"):
                    self.logs.append(json.dumps(frame["params"]))

    async def run(self, script: str) -> Any:
        """Evaluate an expression in the page."""
        result = await self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in result, result
        return result["result"].get("value")

    async def until(self, script: str, seconds: float = 20) -> Any:
        """Wait until an expression is true."""
        with trio.move_on_after(seconds):
            while True:
                if found := await self.run(f"!!({script})"):
                    return found
                await trio.sleep(0.05)
        text = await self.run("document.body.innerText")
        raise AssertionError(f"never {script}; the page says:\n{text}\n{self.logs}")

    async def press(self, key: str, code: int = 0, text: str = "", repeat: bool = False) -> None:
        """Press a key, where the focus is."""
        more = {"key": key, "windowsVirtualKeyCode": code} | ({"text": text} if text else {})
        await self.call("Input.dispatchKeyEvent", type="keyDown", autoRepeat=repeat, **more)
        await self.call("Input.dispatchKeyEvent", type="keyUp", **more)

    async def write_text(self, text: str) -> None:
        await self.call("Input.insertText", text=text)

    async def click(self, selector: str) -> None:
        """Click on what is enabled, or will be."""
        found = f"document.querySelector({json.dumps(selector)})"
        await self.until(f"{found} && !{found}.disabled")
        await self.run(f"{found}.click()")

    async def text(self, selector: str) -> str:
        """What stands there; nothing where there is no such element."""
        return await self.run(f"document.querySelector({json.dumps(selector)})?.innerText ?? ''")

    async def open_room(self, room: str) -> None:
        """By the keyboard, as a person would."""
        await self.until("document.getElementById('connection').textContent === 'connected'")
        await self.run("document.getElementById('room-name').focus()")
        await self.write_text(room)
        await self.press("Enter", 13, "\r")
        await self.until("document.activeElement.id === 'text'")

    async def type(self, text: str) -> None:
        """Into the box for a message."""
        await self.run("document.getElementById('text').focus()")
        await self.write_text(text)

    async def say(self, text: str) -> None:
        await self.type(text)
        await self.press("Enter", 13, "\r")

    async def size(
        self, width: int, height: int, *, dark: bool = False, phone: bool = False
    ) -> None:
        await self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=phone,
        )
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        await self.call("Emulation.setEmulatedMedia", features=[scheme])

    async def shoot(self, path: trio.Path) -> None:
        found = await self.call("Page.captureScreenshot", format="png")
        await path.write_bytes(base64.b64decode(found["data"]))


@asynccontextmanager
async def open_page(url: str, profile: Path, before: str = "") -> AsyncGenerator[Page, None]:
    """Open a page in a Chromium of its own.

    Args:
        before: a script that runs before those of the page.
    """
    their_read, our_write = os.pipe()
    our_read, their_write = os.pipe()
    command = [find_chromium(), *FLAGS, f"--user-data-dir={profile}", "about:blank"]
    process = await trio.lowlevel.open_process(
        [sys.executable, "-c", AS_3_AND_4, str(their_read), str(their_write), *command],
        pass_fds=(their_read, their_write),
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(their_read)
    os.close(their_write)
    try:
        async with (
            trio.lowlevel.FdStream(our_write) as write,
            trio.lowlevel.FdStream(our_read) as read,
            trio.open_nursery() as nursery,
        ):
            page = Page(write)
            nursery.start_soon(page.hear, read)
            with trio.fail_after(60):
                await page.open_tab(url, before)
                yield page
            nursery.cancel_scope.cancel()
    finally:
        process.kill()
        with trio.CancelScope(shield=True):
            await process.wait()
