"""Readers outlive the calls that look at them; a cancellation reaches them after the body."""

from __future__ import annotations

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop.transports.reading import Reader, open_reading


async def test_what_was_posted_is_received_in_order_by_several_calls() -> None:
    reader: Reader[int] = Reader()

    async def read() -> None:
        for number in range(3):
            reader.post(number)

    async with open_reading() as reading:
        reading.start(reader, read, name="reader")
        assert [await reader.receive() for _ in range(2)] == [0, 1]
        with trio.move_on_after(0) as scope:
            await reader.receive()
        assert scope.cancelled_caught
        assert await reader.receive() == 2


async def test_a_cancellation_reaches_the_reader_only_when_the_body_has_left() -> None:
    order: list[str] = []
    reader: Reader[int] = Reader()

    async def read() -> None:
        try:
            await trio.sleep_forever()
        finally:
            order.append("reader")

    with trio.CancelScope() as scope:
        async with open_reading() as reading:
            reading.start(reader, read, name="reader")
            await wait_all_tasks_blocked()
            scope.cancel()
            try:
                await trio.sleep_forever()
            finally:
                with trio.CancelScope(shield=True):
                    await wait_all_tasks_blocked()
                order.append("body")
    assert order == ["body", "reader"]


async def test_closing_a_reader_ends_its_task_only() -> None:
    ended: list[str] = []
    one: Reader[int] = Reader()
    two: Reader[int] = Reader()

    async with open_reading() as reading:
        for name, reader in (("one", one), ("two", two)):

            async def read(name: str = name) -> None:
                try:
                    await trio.sleep_forever()
                finally:
                    ended.append(name)

            reading.start(reader, read, name=name)
        await wait_all_tasks_blocked()
        one.close()
        await wait_all_tasks_blocked()
        assert ended == ["one"]
    assert ended == ["one", "two"]


async def test_an_error_that_a_reader_does_not_post_ends_all() -> None:
    async def read() -> None:
        raise KeyError("unforeseen")

    async def use() -> None:
        async with open_reading() as reading:
            reading.start(Reader[int](), read, name="reader")
            await trio.sleep_forever()

    with pytest.raises(KeyError):
        await use()
