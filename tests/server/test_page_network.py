"""The page, where what lies between it and the server goes silent, breaks, or leads elsewhere."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest
import trio
from browsers import HURRY, find_chromium, open_page
from relays import Relay, open_relay
from servers import SETTINGS, TOKEN, Served, serving

from turnstop.adapters.local import Work
from turnstop.cli.serve.demo import demonstrate
from turnstop.events import Ask, Text
from turnstop.server import Settings


@pytest.fixture(autouse=True)
def chromium() -> str:
    return find_chromium()


def address(relay: Relay) -> str:
    return f"http://127.0.0.1:{relay.port}/#token={TOKEN}"


def port_of(served: Served) -> int:
    return int(served.server.url.rpartition(":")[2])


async def count(work: Work) -> None:
    for number in range(1, 61):
        work.emit(Text(f"{number} "))
        await trio.sleep(0.05)


async def ask_what_was_said(work: Work) -> None:
    for number in range(20):
        work.emit(Text(f"{number} "))
        await trio.lowlevel.checkpoint()
    reply = await work.ask(Ask("change", "approval", f"May I {work.content}?", ("allow", "deny")))
    work.emit(Text(f"answer: {reply}"))


@pytest.mark.parametrize("how", ["silence", "cut"])
async def test_a_line_that_breaks_or_says_nothing_more_is_taken_up_again(
    tmp_path: Path, how: str
) -> None:
    settings = Settings(token=TOKEN, heartbeat=0.3)
    async with serving(count, settings) as served, open_relay(port_of(served)) as relay:
        async with open_page(address(relay), tmp_path, HURRY) as page:
            await page.open_room("kitchen")
            await page.say("count")
            await page.until("document.querySelector('.turn')?.textContent.includes('3 4')")
            if how == "cut":
                await relay.cut()
            else:
                relay.silence()
            await page.until("document.querySelector('.ending.finished')", 40)
            said = await page.text(".turn .said")
            assert said.split() == [str(number) for number in range(1, 61)]
            await page.until("document.getElementById('connection').textContent === 'connected'")


async def test_a_line_that_says_that_it_is_there_is_kept(tmp_path: Path) -> None:
    settings = Settings(token=TOKEN, heartbeat=0.3)
    async with serving(count, settings) as served, open_relay(port_of(served)) as relay:
        async with open_page(address(relay), tmp_path, HURRY) as page:
            await page.until("document.getElementById('connection').textContent === 'connected'")
            await trio.sleep(1)
            before = relay.accepted
            await trio.sleep(4)
            assert relay.accepted == before


async def serve_until(over: trio.Event, task_status: trio.TaskStatus[Served]) -> None:
    async with serving(demonstrate) as served:
        task_status.started(served)
        await over.wait()


async def test_after_another_server_has_come_a_person_is_still_in_the_same_room(
    tmp_path: Path,
) -> None:
    over = trio.Event(), trio.Event()
    async with open_relay() as relay, trio.open_nursery() as nursery:
        first = await nursery.start(serve_until, over[0])
        relay.target = port_of(first)
        await first.say("attic", "count to 5000")
        async with open_page(address(relay), tmp_path, HURRY) as page:
            await page.open_room("kitchen")
            await page.say("count to 5000")
            await page.until("document.querySelector('.turn')?.textContent.includes('3 4')")
            await page.type("half of a sen")
            over[0].set()
            second = await nursery.start(serve_until, over[1])
            for room in ("attic", "basement"):
                await second.say(room, "count to 5000")
            relay.target = port_of(second)
            await relay.cut()
            await page.until("document.querySelectorAll('#rooms button').length === 3")
            await page.until("document.getElementById('connection').textContent === 'connected'")
            assert await page.text("#title") == "kitchen"
            assert await page.text("#log") == ""
            await page.press("Escape", 27)
            assert await page.run("document.getElementById('text').value") == "half of a sen"
            await page.say("tence")
            await page.until("document.querySelector('.message .said')")
            assert await page.text(".message .said") == "half of a sentence"
            await page.until("document.querySelector('.turn')")
            await page.press("Escape", 27)
            await page.until("document.querySelector('.ending.stopped')")
            for room in ("attic", "basement"):
                found = await second.state(room)
                assert (found["waiting"], found["paused"]) == (1, False)
        over[1].set()


async def test_interrupt_is_for_the_turn_that_was_seen(tmp_path: Path) -> None:
    go_on = trio.Event()

    async def agent(work: Work) -> None:
        work.emit(Text(f"on {work.content} "))
        await go_on.wait()
        if work.content == "two":
            await trio.sleep_forever()

    async with serving(agent) as served, open_relay(port_of(served)) as relay:
        await served.say("kitchen", "one", id="one")
        await served.say("kitchen", "two", id="two")
        async with open_page(address(relay), tmp_path, HURRY) as page:
            await page.until("document.querySelector('.turn')?.textContent.includes('on one')")
            relay.silence()
            go_on.set()
            await served.until("/rooms/kitchen/events", "turn", message="two")
            await page.click("#interrupt")
            await page.until("document.querySelectorAll('.turn').length === 2")
            assert await page.text(".ending") == "FINISHED"
            found = await served.state("kitchen")
            assert found["waiting"] == 1
            assert (await served.http.get("/rooms/kitchen/settlements")).json()[0]["ending"] == (
                "finished"
            )
            await page.click("#interrupt")
            await page.until("document.querySelectorAll('.ending').length === 2")


async def test_a_message_whose_answer_was_lost_is_there_once(tmp_path: Path) -> None:
    runs = []

    async def agent(work: Work) -> None:
        runs.append(work.content)
        await trio.sleep(0.2)

    async with serving(agent) as served, open_relay(port_of(served)) as relay:
        async with open_page(address(relay), tmp_path, HURRY) as page:
            await page.open_room("kitchen")
            await page.type("tidy up")
            relay.silence()
            await page.press("Enter", 13, "\r")
            await page.press("Enter", 13, "\r")
            await page.type("what is typed meanwhile")
            await page.until("document.querySelector('.ending.finished')", 40)
            assert await page.run("document.querySelectorAll('.message').length") == 1
            await trio.sleep(1)
            assert runs == ["tidy up"]
            found = await page.run("document.getElementById('text').value")
            assert found == "what is typed meanwhile"
            assert (await served.state("kitchen"))["waiting"] == 0


async def test_what_could_not_be_sent_is_in_the_box_again(tmp_path: Path) -> None:
    settings = Settings(token=TOKEN, body=200)
    async with serving(count, settings) as served, open_relay(port_of(served)) as relay:
        async with open_page(address(relay), tmp_path, HURRY) as page:
            await page.open_room("kitchen")
            await page.say("x" * 300)
            await page.type("and more")
            await page.until("!document.getElementById('trouble').hidden")
            assert "200 bytes" in await page.text("#trouble")
            found = await page.run("document.getElementById('text').value")
            assert found.replace("\n", "") == "x" * 300 + "and more"
            assert await page.run("document.querySelectorAll('.message').length") == 0
            # Something else that goes well is no reason to forget it; a person is.
            await relay.cut()
            await page.until("document.getElementById('connection').textContent !== 'connected'")
            await page.until("document.getElementById('connection').textContent === 'connected'")
            await trio.sleep(0.5)
            assert "200 bytes" in await page.text("#trouble")
            await page.click("#trouble button")
            assert await page.run("document.getElementById('trouble').hidden")


async def test_a_question_with_an_id_that_came_before_is_shown_as_it_is(tmp_path: Path) -> None:
    settings = attrs.evolve(SETTINGS, all_events=3)
    async with serving(ask_what_was_said, settings) as served:
        async with open_relay(port_of(served)) as relay:
            async with open_page(address(relay), tmp_path, HURRY) as page:
                await page.open_room("kitchen")
                await page.say("tidy up")
                await page.until("document.querySelector('.ask')")
                assert "tidy up" in await page.text(".ask p")
                relay.silence()
                await served.press("kitchen", "interrupt")
                await served.say("kitchen", "burn it all")
                await served.until("/rooms/kitchen/events", "ask", text="May I burn it all?")
                # Seen is the old question: its answer is none to the new one.
                await page.click(".ask button")
                await page.until(
                    "document.querySelector('.ask p')?.textContent.includes('burn')", 40
                )
                assert (await served.state("kitchen"))["asks"]
                assert "kitchen" in await page.text("#trouble")
                # What the ring has lost is said to be missing, and how the turn ended asked for.
                assert "missed" in await page.text(".gap")
                await page.until("document.querySelector('.turn .ending.stopped')")
                await page.click(".ask button + button")
                await page.until("!document.querySelector('.ask')")
                await page.until("document.body.textContent.includes('answer: deny')")
