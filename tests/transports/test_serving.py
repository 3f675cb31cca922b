"""Requests of a peer are served side by side, can be taken back, and end with the body."""

from __future__ import annotations

from typing import NoReturn

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop.transports.jsonrpc import Incoming
from turnstop.transports.serving import open_serving


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
