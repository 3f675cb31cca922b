"""Requests of a peer are served side by side, can be taken back, and end with the body."""

from __future__ import annotations

from typing import Any, NoReturn

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop.abc import Silenced
from turnstop.events import Ask
from turnstop.transports.jsonrpc import Incoming
from turnstop.transports.serving import ask_person, decliner, open_serving


class Desk:
    """Serves each request by waiting for ever; notes how that ends."""

    def __init__(self) -> None:
        self.begun: list[object] = []
        self.ended: list[object] = []

    async def __call__(self, request: Incoming) -> None:
        number = request.number
        self.begun.append(number)
        try:
            await trio.sleep_forever()
        finally:
            self.ended.append(number)


def ask(number: object) -> Incoming:
    return Incoming("ask", {}, {"id": number, "method": "ask"}, lambda _: None, number=number)


async def test_requests_are_served_side_by_side_until_the_body_leaves() -> None:
    desk = Desk()
    async with open_serving() as serving:
        for number in ("a", 2):
            serving.start(ask(number), desk)
        await wait_all_tasks_blocked()
        before = (sorted(desk.begun, key=str), [*desk.ended])
    assert before == ([2, "a"], [])
    assert sorted(desk.ended, key=str) == [2, "a"]


async def test_a_request_that_is_taken_back_is_served_no_longer_and_the_others_are() -> None:
    desk = Desk()
    async with open_serving() as serving:
        serving.start(ask(1), desk)
        serving.start(ask(2), desk)
        await wait_all_tasks_blocked()
        serving.withdraw(1)
        serving.withdraw("nobody's")
        await wait_all_tasks_blocked()
        assert desk.ended == [1]
        assert [*serving._scopes] == [2]


async def test_a_request_may_be_taken_back_before_its_serving_has_begun() -> None:
    desk = Desk()
    async with open_serving() as serving:
        serving.start(ask(1), desk)
        serving.withdraw(1)
        await wait_all_tasks_blocked()
        # It has begun all the same: a peer's request is to be answered.
        assert (desk.begun, desk.ended) == ([1], [1])
        assert not serving._scopes


async def test_what_was_served_is_forgotten() -> None:
    served: list[Incoming] = []

    async def serve(request: Incoming) -> None:
        served.append(request)

    async with open_serving() as serving:
        serving.start(ask(1), serve)
        await wait_all_tasks_blocked()
        assert len(served) == 1
        serving.withdraw(1)
        assert not serving._scopes


async def test_an_error_cancels_the_body_and_leaves_as_itself() -> None:
    async def serve(_: Incoming) -> NoReturn:
        raise KeyError("unforeseen")

    with pytest.raises(KeyError, match="unforeseen"):
        async with open_serving() as serving:
            serving.start(ask(1), serve)
            await trio.sleep_forever()


class Person:
    """Replies `yes` once let; is silenced where nobody will be heard."""

    def __init__(self) -> None:
        self.asked: list[Ask] = []
        self.let = trio.Event()
        self.silent = False

    async def ask(self, one: Ask) -> object:
        self.asked.append(one)
        await self.let.wait()
        if self.silent:
            raise Silenced("the turn is over")
        return "yes"


def question(answers: list[Any]) -> Incoming:
    return Incoming("ask", {}, {"id": 1, "method": "ask"}, answers.append, number=1)


def to_answer(request: Incoming, reply: object) -> object:
    return {"to": request.number, "said": reply}


def nobody(request: Incoming) -> object:
    return {"to": request.number, "said": None}


ASKED = Ask("1", "question", "Which?", ("yes",))


async def test_a_peer_is_answered_once_what_a_person_replies() -> None:
    person: Any = Person()
    answers: list[Any] = []
    async with open_serving() as serving:
        serving.start(question(answers), ask_person(person, ASKED, to_answer, nobody))
        await wait_all_tasks_blocked()
        assert person.asked == [ASKED]
        assert answers == []
        person.let.set()
        await wait_all_tasks_blocked()
    assert [one["result"] for one in answers] == [{"to": 1, "said": "yes"}]


@pytest.mark.parametrize("way", ["withdrawn", "left", "silenced"])
async def test_a_peer_is_answered_when_nobody_will_reply(way: str) -> None:
    person: Any = Person()
    answers: list[Any] = []
    async with open_serving() as serving:
        serving.start(question(answers), ask_person(person, ASKED, to_answer, nobody))
        await wait_all_tasks_blocked()
        if way == "withdrawn":
            serving.withdraw(1)
        elif way == "silenced":
            person.silent = True
            person.let.set()
        if way != "left":
            await wait_all_tasks_blocked()
            assert len(answers) == 1
    assert [one["result"] for one in answers] == [{"to": 1, "said": None}]


async def test_a_stopped_turns_answer_may_wait_for_its_cancel() -> None:
    person: Any = Person()
    person.silent = True
    person.let.set()
    answers: list[Any] = []
    told = trio.Event()
    async with open_serving() as serving:
        serve = ask_person(person, ASKED, to_answer, nobody, silenced=told.wait)
        serving.start(question(answers), serve)
        await wait_all_tasks_blocked()
        assert answers == []
        told.set()
        await wait_all_tasks_blocked()
        assert len(answers) == 1


def test_where_nobody_listens_a_question_is_declined_and_what_is_none_refused() -> None:
    decline = decliner(lambda one: ASKED if one.method == "ask" else None, nobody)
    answers: list[Any] = []
    decline(question(answers))
    decline(Incoming("guess", {}, {"id": 2, "method": "guess"}, answers.append, number=2))
    decline(Incoming("ask", {}, {"method": "ask"}, answers.append))
    assert answers[0]["result"] == {"to": 1, "said": None}
    assert answers[1]["error"]["message"] == "turnstop does not serve guess"
    assert len(answers) == 2
