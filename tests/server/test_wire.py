"""What an agent says, as it is told: bounded, and what matters is not cut for what does not."""

from __future__ import annotations

from typing import Any

import pytest
import trio
from servers import serving

from turnstop.adapters.local import Work
from turnstop.events import Ask, Text
from turnstop.server._desk import Desk
from turnstop.server._wire import fit, question_of


@pytest.mark.parametrize("many", [1000, 61_430, 61_436, 61_440, 10_000_000])
async def test_a_question_with_a_long_text_has_its_choices(many: int) -> None:
    async def agent(work: Work) -> None:
        reply = await work.ask(Ask("a", "approval", "x" * many, ("allow", "deny")))
        work.emit(Text(str(reply)))

    async with serving(agent) as served:
        await served.say("kitchen", "x")
        asked = await served.until("/events", "ask")
        (waits,) = (await served.state("kitchen"))["asks"]
        assert asked["choices"] == waits["choices"] == ["allow", "deny"]
        answer = await served.post("/rooms/kitchen/answers", ask=waits["id"], reply="allow")
        assert answer.status_code == 202
        assert (await served.until("/events", "text"))["delta"] == "allow"


@pytest.mark.parametrize(
    "choices",
    [("y" * 300_000, "n" * 300_000), ("y" * 300, f"{'y' * 299}n"), ("a\ud800", "a\udfff")],
)
async def test_a_choice_that_is_told_otherwise_is_the_one_that_the_agent_offers(
    choices: tuple[str, ...],
) -> None:
    async def agent(work: Work) -> None:
        reply = await work.ask(Ask("a", "approval", "May I?", choices))
        work.emit(Text(str(choices.index(str(reply)))))

    async with serving(agent) as served:
        for number in range(2):
            room = f"r{number}"
            await served.say(room, "x")
            asked = await served.until(f"/rooms/{room}/events", "ask")
            assert len(set(asked["choices"])) == 2
            (waits,) = (await served.state(room))["asks"]
            assert waits["choices"] == asked["choices"]
            reply = asked["choices"][number]
            await served.post(f"/rooms/{room}/answers", ask=asked["id"], reply=reply)
            said = await served.until(f"/rooms/{room}/events", "text")
            assert said["delta"] == str(number)


class Steps(trio.abc.Instrument):
    """Counts the steps of all tasks."""

    count = 0

    def before_task_step(self, task: trio.lowlevel.Task) -> None:
        self.count += 1


async def test_a_long_text_lets_others_go_between_its_pieces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def agent(work: Work) -> None:
        work.emit(Text("x" * 1_000_000))

    steps, told, tell = Steps(), list[int](), Desk.tell

    def noting(desk: Desk, seat: Any, kind: str, data: Any) -> Any:
        if kind == "text":
            told.append(steps.count)
        return tell(desk, seat, kind, data)

    monkeypatch.setattr(Desk, "tell", noting)
    async with serving(agent) as served:
        trio.lowlevel.add_instrument(steps)
        await served.say("kitchen", "x")
        await served.until("/events", "settlement")
        trio.lowlevel.remove_instrument(steps)
    assert len(told) == len(set(told)) > 10


def test_choices_that_are_too_many_leave_a_word_of_the_rest() -> None:
    told = question_of(Ask("a", "question", "Which?", tuple(map(str, range(100_000))))).told
    assert told.choices == [*map(str, range(100))]
    assert told.text == "Which?\n\N{HORIZONTAL ELLIPSIS} (99900 choices)"


def test_a_long_text_takes_nothing_from_a_short_one() -> None:
    survivors = [f"process {number}" for number in range(5)]
    data = {"errors": ["e" * 100_000, "f" * 30_000], "survivors": survivors, "control": "stop"}
    told = fit(data)
    assert (told["survivors"], told["control"]) == (survivors, "stop")
    assert told["errors"][0].startswith("eee")
    assert told["errors"][0].endswith("more characters)")
    assert told["errors"][1] == "f" * 30_000
    assert 60_000 < sum(map(len, told["errors"])) < 66_000


def test_a_long_list_says_how_much_longer_it_is() -> None:
    told = fit({"survivors": ["p" * 1000] * 100_000})
    assert len(told["survivors"]) == 101
    assert told["survivors"][-1] == "\N{HORIZONTAL ELLIPSIS} (99900 more)"
    assert sum(map(len, told["survivors"])) < 70_000
