"""The page, in a real browser."""

from __future__ import annotations

import json
import os
from pathlib import Path

import attrs
import pytest
import trio
from browsers import HURRY, Page, find_chromium, open_page
from servers import SETTINGS, TOKEN, Served, serving

from turnstop.adapters.local import Work
from turnstop.cli.serve.demo import demonstrate
from turnstop.events import Ask, Text, ToolCall
from turnstop.server import Settings

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


async def test_a_person_starts_a_turn_answers_it_and_stops_the_next(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(address(served), tmp_path) as page:
        await page.size(1100, 800)
        await page.open_room("kitchen")
        assert "token" not in await page.run("location.href")
        await page.say("tidy up")
        await page.until("document.querySelector('.turn .said')?.textContent.includes('tidy')")
        await page.until("document.querySelector('.ask button')")
        await shoot(page, "ask")
        await page.click(".ask button")
        await page.until("document.querySelector('.ending.finished')")
        assert await page.run("document.querySelectorAll('.ask').length") == 0
        await page.say("count to 5000")
        await page.until("document.querySelectorAll('.turn')[1]?.textContent.includes('7 8 9')")
        await page.click("#stop")
        await page.until("document.querySelector('.ending.stopped')?.textContent === 'STOPPED'")
        label = await page.run("document.querySelector('.timeline svg').getAttribute('aria-label')")
        for step in ("asked 0", "sent +", "acknowledged +", "ended +", "settled +"):
            assert step in label
        assert await page.run("document.querySelectorAll('.timeline .tick').length") == 5
        await page.until("document.getElementById('state').textContent.startsWith('paused')")
        await shoot(page, "stopped")
        await page.size(1100, 800, dark=True)
        await shoot(page, "dark")
        await page.size(375, 740, dark=True, phone=True)
        await shoot(page, "phone-dark")
        await page.size(375, 740, phone=True)
        await shoot(page, "phone")
        assert await page.run("document.documentElement.scrollWidth") <= 375
        await page.click("#play")
        await page.until("document.querySelectorAll('.turn').length === 3")
        assert page.logs == []


IN_SIGHT = """(() => {
  const box = document.querySelector(%s).getBoundingClientRect();
  const at = document.elementFromPoint(box.left + box.width / 2, box.top + box.height / 2);
  return at === document.querySelector(%s);
})()"""


def in_sight(selector: str) -> str:
    return IN_SIGHT.replace("%s", json.dumps(selector))


async def test_on_a_phone_a_long_question_has_its_buttons_in_sight_and_another_room_is_told_of(
    tmp_path: Path,
) -> None:
    async def agent(work: Work) -> None:
        if work.content == "ask":
            await work.ask(Ask("a", "approval", "May I write this?\n" * 3000, ("allow", "deny")))

    async with serving(agent) as served, open_page(address(served), tmp_path) as page:
        await page.size(375, 740, phone=True)
        for number in range(11):
            await page.open_room(f"room-{number}")
        found = await page.run(
            "document.querySelector('#rooms [aria-current]').getBoundingClientRect().right"
        )
        assert found <= 375
        assert await page.run("document.title") == "turnstop"
        await served.say("room-0", "ask")
        await page.until("document.getElementById('asking').textContent === '1 waits for you'")
        assert await page.run("document.title") == "(1) turnstop"
        await page.run("document.querySelector('#rooms button').click()")
        await page.until("document.querySelector('.ask button')")
        await page.until(in_sight(".ask button"), 2)
        await shoot(page, "phone-ask")
        await page.click(".ask button")
        await page.until("document.querySelector('.ending.finished')")
        assert await page.text("#asking") == ""
        assert await page.run("document.title") == "turnstop"


@pytest.mark.parametrize("name", [".", ".."])
async def test_a_room_that_a_browser_takes_for_a_path_stops_no_other(
    name: str, tmp_path: Path
) -> None:
    async with serving(demonstrate) as served:
        async with open_page(address(served), tmp_path) as page:
            await page.open_room("kitchen")
            await page.say("count to 5000")
            await page.until("document.querySelector('.turn')?.textContent.includes('3 4')")
            await page.run("document.getElementById('room-name').focus()")
            await page.write_text(name)
            await page.press("Enter", 13, "\r")
            await page.until("document.getElementById('trouble').textContent.includes('no room')")
            assert await page.text("#title") == "kitchen"
            # Whoever posts to the feed itself may call a room so.
            served.feed.post(name, "count to 5000")
            last = "[...document.querySelectorAll('#rooms button')].at(-1)"
            await page.until(f"{last}.textContent === '{name}working'")
            await page.run(f"{last}.click()")
            await page.click("#stop")
            await page.until("document.getElementById('trouble').textContent.includes('STOP in .')")
            await trio.sleep(0.3)
            assert not (await served.state("kitchen"))["paused"]


async def test_a_timeline_can_be_read_on_the_smallest_screen(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(address(served), tmp_path) as page:
        await page.size(320, 568, phone=True)
        await page.open_room("kitchen")
        await page.say("count to 5000")
        await page.until("document.querySelector('.turn')?.textContent.includes('3 4')")
        await page.click("#stop")
        await page.until("document.querySelector('.ending.stopped')")
        boxes = await page.run(
            "[...document.querySelectorAll('.timeline li *')].map((one) => {"
            " const range = document.createRange(); range.selectNodeContents(one);"
            " const { left, top, right, bottom } = range.getBoundingClientRect();"
            " return [left, top, right, bottom]; })"
        )
        await shoot(page, "small")
        assert len(boxes) == 10
        for index, (left, top, right, bottom) in enumerate(boxes):
            assert right <= 320
            for other in boxes[index + 1 :]:
                apart = other[0] >= right or other[2] <= left
                assert apart or other[1] >= bottom - 1 or other[3] <= top + 1


async def test_all_of_it_goes_by_keyboard(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(address(served), tmp_path) as page:
        await page.open_room("kitchen")
        await page.say("count to 5000")
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
            assert await page.run("document.title") == "(1) turnstop"
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


@pytest.mark.parametrize("dark", [False, True])
async def test_axe_finds_nothing_serious(tmp_path: Path, dark: bool) -> None:
    if AXE is None:
        give_up = pytest.fail if os.environ.get("TURNSTOP_REAL") == "require" else pytest.skip
        give_up("no axe here: npm pack axe-core, and TURNSTOP_AXE names its axe.min.js")
    script = await trio.Path(AXE).read_text()
    async with serving(demonstrate, attrs.evolve(SETTINGS, body=200)) as served:
        async with open_page(address(served), tmp_path) as page:
            await page.size(1100, 800, dark=dark)
            await page.open_room("kitchen")
            await page.say("count to 5000")
            await page.until("document.querySelector('.turn')?.textContent.includes('3 4')")
            await page.click("#stop")
            await page.until("document.querySelector('.ending.stopped')")
            await page.open_room("hall")
            await page.say("tidy up")
            await page.until("document.querySelector('.ask button')")
            await page.say("This is too long. " * 20)
            await page.until("!document.getElementById('trouble').hidden")
            await shoot(page, f"axe-{dark}")
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


async def test_esc_within_an_input_method_or_held_down_stops_nothing(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(address(served), tmp_path) as page:
        await page.open_room("kitchen")
        await page.say("count to 5000")
        await page.until("document.querySelector('.turn')?.textContent.includes('3 4')")
        await page.call("Input.imeSetComposition", text="\u306b", selectionStart=1, selectionEnd=1)
        await page.press("Escape", 27)
        await page.call("Input.insertText", text="")
        await page.press("Escape", 27, repeat=True)
        await trio.sleep(0.3)
        assert await page.text("#state") == "working"
        assert not (await served.state("kitchen"))["paused"]
        await page.press("Escape", 27)
        await page.until("document.querySelector('.ending.stopped')")


async def test_a_stop_gets_through_beside_any_number_of_tabs(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(address(served), tmp_path) as page:
        await page.open_room("kitchen")
        await page.say("count to 5000")
        for _ in range(7):
            await page.open_tab(address(served))
            await page.until("document.getElementById('connection').textContent === 'connected'")
        with trio.fail_after(3):
            await page.click("#stop-all")
            await page.until("document.querySelector('.ending.stopped')")
        # Whoever comes back to a tab sees what has happened meanwhile.
        await page.go_to_tab(0)
        await page.until("document.querySelector('.ending.stopped')")


async def test_another_token_pasted_behind_the_address_is_taken(tmp_path: Path) -> None:
    async with serving(demonstrate) as served:
        async with open_page(f"{served.server.url}/#token=wrong", tmp_path) as page:
            await page.until("document.getElementById('ask-token').open")
            await page.run(f"location.hash = 'token={TOKEN}'")
            await page.until("document.getElementById('connection').textContent === 'connected'")
            assert not await page.run("document.getElementById('ask-token').open")
            assert "token" not in await page.run("location.href")


async def test_what_is_typed_is_for_the_room_that_was_looked_at(tmp_path: Path) -> None:
    async with serving(demonstrate) as served, open_page(address(served), tmp_path) as page:
        await page.until("document.getElementById('connection').textContent === 'connected'")
        await page.type("for nobody yet")
        await served.say("attic", "count to 3")
        await page.until("document.querySelector('#rooms button')")
        assert await page.text("#title") == "No room"
        await page.open_room("kitchen")
        await page.type(", for the kitchen")
        await page.click("#rooms button")
        assert await page.text("#title") == "attic"
        assert await page.run("document.getElementById('text').value") == ""
        await page.run("document.querySelectorAll('#rooms button')[1].click()")
        found = await page.run("document.getElementById('text').value")
        assert found == "for nobody yet, for the kitchen"


async def test_what_the_page_keeps_is_bounded(tmp_path: Path) -> None:
    async def talk(work: Work) -> None:
        for number in range(700):
            work.emit(ToolCall(f"call {number}", "look", "completed", "x" * 5000))
            await trio.lowlevel.checkpoint()
        for _ in range(5):
            work.emit(Text("y" * 50_000))
            work.emit(Text("z" * 50_000))
            await trio.lowlevel.checkpoint()
        work.emit(Text("the end"))

    settings = Settings(token=TOKEN, all_bytes=32 * 1024 * 1024)
    async with serving(talk, settings) as served, open_page(address(served), tmp_path) as page:
        await page.open_room("kitchen")
        await page.say("talk")
        await page.until("document.querySelector('.ending.finished')")
        turn = await page.text(".turn")
        assert "the end" in turn
        assert len(turn) < 300_000
        assert await page.run("document.querySelectorAll('.turn > *').length") <= 501


async def test_a_question_that_nobody_asks_any_more_goes_away(tmp_path: Path) -> None:
    given_up = trio.Event()

    async def impatient(work: Work) -> None:
        with trio.CancelScope() as scope:
            async with trio.open_nursery() as nursery:
                nursery.start_soon(work.ask, Ask("a", "question", "Which one?", ()))
                await given_up.wait()
                scope.cancel()
        work.emit(Text("never mind"))
        await trio.sleep_forever()

    settings = attrs.evolve(SETTINGS, heartbeat=0.3)
    async with (
        serving(impatient, settings) as served,
        open_page(address(served), tmp_path, HURRY) as page,
    ):
        await page.open_room("kitchen")
        await page.say("hello")
        await page.until("document.querySelector('.ask input')")
        # Until the page asks the server no more how the room stands.
        await trio.sleep(0.5)
        given_up.set()
        await page.until("document.querySelector('.turn')?.textContent.includes('never mind')")
        await page.until("!document.querySelector('.ask')")
        assert await page.text("#state") == "working"


async def test_a_room_that_the_server_has_forgotten_is_forgotten_here(tmp_path: Path) -> None:
    async def quick(work: Work) -> None:
        work.emit(Text("done"))

    async with serving(quick, attrs.evolve(SETTINGS, rooms=2)) as served:
        async with open_page(address(served), tmp_path) as page:
            await page.open_room("kitchen")
            await page.say("hello")
            await page.until("document.querySelector('.ending.finished')")
            await page.type("half of a sen")
            for room in ("attic", "basement", "cellar"):
                await served.say(room, "hello")
                await page.until(f"document.getElementById('rooms').innerText.includes('{room}')")
                await served.until(f"/rooms/{room}/events", "message", state="handled")
            await page.until("document.querySelectorAll('#rooms button').length === 3")
            rooms = await page.text("#rooms")
            assert "kitchen" in rooms
            assert "attic" not in rooms
            assert await page.run("document.getElementById('text').value") == "half of a sen"
            assert "done" in await page.text("#log")
