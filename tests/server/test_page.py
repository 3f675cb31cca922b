"""The page, in a real browser."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
import trio
from browsers import Page, find_chromium, open_page
from servers import SETTINGS, TOKEN, Served, serving

from turnstop.adapters.local import Work
from turnstop.cli.serve.demo import demonstrate
from turnstop.events import Ask, Text, ToolCall

SHOTS = os.environ.get("TURNSTOP_SHOTS")
HOSTILE = "<img src=x onerror=\"document.title='broken'\"><script>document.title='broken'</script>"
AXE = os.environ.get("TURNSTOP_AXE")
"""Where axe.min.js of the package axe-core is."""


@pytest.fixture(autouse=True)
def chromium() -> str:
    return find_chromium()


def address(served: Served) -> str:
    return f"{served.server.url}/#token={TOKEN}"


async def shoot(page: Page, name: str) -> None:
    if SHOTS:
        await page.shoot(trio.Path(SHOTS) / f"{name}.png")


async def click(page: Page, selector: str) -> None:
    await page.until(f"!document.querySelector({json.dumps(selector)})?.disabled")
    await page.run(f"document.querySelector({json.dumps(selector)}).click()")


async def open_room(page: Page, room: str) -> None:
    await page.until("document.getElementById('connection').textContent === 'connected'")
    await page.run("document.getElementById('room-name').focus()")
    await page.write_text(room)
    await page.press("Enter", 13, "\r")
    await page.until("document.activeElement.id === 'text'")


async def say(page: Page, text: str) -> None:
    await page.run("document.getElementById('text').focus()")
    await page.write_text(text)
    await page.press("Enter", 13, "\r")


async def test_a_person_starts_a_turn_answers_it_and_stops_the_next(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(address(served), tmp_path) as page:
        await page.size(1100, 800)
        await open_room(page, "kitchen")
        assert "token" not in await page.run("location.href")
        await say(page, "tidy up")
        await page.until("document.querySelector('.turn .said')?.textContent.includes('tidy')")
        await page.until("document.querySelector('.ask button')")
        await shoot(page, "ask")
        await click(page, ".ask button")
        await page.until("document.querySelector('.ending.finished')")
        assert await page.run("document.querySelectorAll('.ask').length") == 0
        await say(page, "count to 5000")
        await page.until("document.querySelectorAll('.turn')[1]?.textContent.includes('7 8 9')")
        await click(page, "#stop")
        await page.until("document.querySelector('.ending.stopped')?.textContent === 'STOPPED'")
        label = await page.run("document.querySelector('.timeline svg').getAttribute('aria-label')")
        for step in ("asked 0", "sent +", "acknowledged +", "ended +", "settled +"):
            assert step in label
        assert await page.run("document.querySelectorAll('.timeline .tick').length") == 5
        await page.until("document.getElementById('state').textContent.startsWith('paused')")
        await shoot(page, "stopped")
        await page.size(1100, 800, dark=True)
        await shoot(page, "dark")
        await page.size(375, 740, phone=True)
        await shoot(page, "phone")
        assert await page.run("document.documentElement.scrollWidth") <= 375
        await click(page, "#play")
        await page.until("document.querySelectorAll('.turn').length === 3")
        assert page.logs == []


async def test_all_of_it_goes_by_keyboard(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(address(served), tmp_path) as page:
        await open_room(page, "kitchen")
        await say(page, "count to 5000")
        await page.until("document.querySelector('.turn')?.textContent.includes('3 4')")
        await page.press("Escape", 27)
        await page.until("document.querySelector('.ending.stopped')")
        seen = []
        await page.run("document.activeElement.blur()")
        for _ in range(14):
            await page.press("Tab", 9)
            seen.append(await page.run("document.activeElement.id || document.activeElement.type"))
        assert {"stop-all", "room-name", "play", "log", "text", "submit"} <= set(seen)


async def test_hostile_text_is_text(tmp_path: Path) -> None:
    async def hostile(work: Work) -> None:
        work.emit(Text(HOSTILE))
        work.emit(ToolCall("t", HOSTILE, "running", HOSTILE))
        await work.ask(Ask("a", "approval", HOSTILE, (HOSTILE,)))

    async with serving(hostile) as served:
        await served.say("%3Cimg%20src%3Dx%3E", HOSTILE)
        async with open_page(address(served), tmp_path) as page:
            await page.until("document.querySelector('.ask button')")
            for selector in (".message .said", ".turn .said", ".ask p", ".ask button"):
                found = await page.run(
                    f"document.querySelector({json.dumps(selector)}).textContent"
                )
                assert found == HOSTILE
            assert await page.run("document.querySelectorAll('main img, main script').length") == 0
            await trio.sleep(0.2)
            assert await page.run("document.title") == "turnstop"
            assert page.logs == []


async def test_the_token_is_asked_for_where_there_is_none(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(served.server.url, tmp_path) as page:
        await page.until("document.getElementById('ask-token').open")
        await page.write_text("wrong")
        await page.press("Enter", 13, "\r")
        await page.until("document.getElementById('token-why').textContent.includes('not know')")
        await page.run("document.getElementById('token').value = ''")
        await page.run("document.getElementById('token').focus()")
        await page.write_text(TOKEN)
        await page.press("Enter", 13, "\r")
        await page.until("document.getElementById('connection').textContent === 'connected'")


async def test_the_page_goes_on_where_a_stream_broke(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(address(served), tmp_path) as page:
        await open_room(page, "kitchen")
        await say(page, "count to 60")
        await page.until("document.querySelector('.turn')?.textContent.includes('3 4')")
        await page.call("Network.enable")
        offline = {"latency": 0, "downloadThroughput": -1, "uploadThroughput": -1}
        await page.call("Network.emulateNetworkConditions", offline=True, **offline)
        await page.run("streaming.abort(), void follow()")
        await trio.sleep(1)
        await page.call("Network.emulateNetworkConditions", offline=False, **offline)
        await page.until("document.querySelector('.ending.finished')", 40)
        said = await page.run("document.querySelector('.turn .said').textContent")
        assert said.split() == [str(number) for number in range(1, 61)]


@pytest.mark.parametrize("dark", [False, True])
async def test_axe_finds_nothing_serious(tmp_path: Path, dark: bool) -> None:
    if AXE is None:
        pytest.skip("no axe here: npm pack axe-core, and TURNSTOP_AXE names its axe.min.js")
    script = await trio.Path(AXE).read_text()
    async with serving(demonstrate, SETTINGS) as served:
        async with open_page(address(served), tmp_path) as page:
            await page.size(1100, 800, dark=dark)
            await open_room(page, "kitchen")
            await say(page, "count to 5000")
            await page.until("document.querySelector('.turn')?.textContent.includes('3 4')")
            await click(page, "#stop")
            await page.until("document.querySelector('.ending.stopped')")
            await open_room(page, "hall")
            await say(page, "tidy up")
            await page.until("document.querySelector('.ask button')")
            await page.run(f"{script}; 0")
            for width in (1100, 375):
                await page.size(width, 800, dark=dark)
                found = await page.run(
                    "axe.run().then((found) => JSON.stringify(found.violations))"
                )
                bad = [
                    (one["id"], [node["html"] for node in one["nodes"]])
                    for one in json.loads(found)
                    if one["impact"] in ("serious", "critical")
                ]
                assert bad == []
