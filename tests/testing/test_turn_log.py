"""What the wire of codex tells of its turns: who was asked for, who was told, and who is over."""

from __future__ import annotations

from typing import Any

import trio
from trio.testing import MockClock

from turnstop.testing.probes._codex_wire import TurnLog

TOO_EARLY = {"error": {"code": -32600, "message": "no active turn to interrupt"}}


def start(log: TurnLog, number: int, turn: str, text: str = "hi") -> None:
    params = {"threadId": "T1", "input": [{"type": "text", "text": text}]}
    log.note("->", {"id": number, "method": "turn/start", "params": params})
    log.note("<-", {"id": number, "result": {"turn": {"id": turn}}})


def interrupt(log: TurnLog, number: int, turn: str, **answer: Any) -> None:
    params = {"threadId": "T1", "turnId": turn}
    log.note("->", {"id": number, "method": "turn/interrupt", "params": params})
    if answer:
        log.note("<-", {"id": number, **answer})


async def test_a_turn_has_the_name_that_its_start_was_answered(autojump_clock: MockClock) -> None:
    log = TurnLog()
    await trio.sleep(1.0)
    start(log, 3, "U1")
    log.note("->", {"id": 4, "method": "turn/start", "params": {"threadId": "T1", "input": []}})
    log.note("<-", {"id": 4, "error": {"code": 1}})
    (first, refused) = log.works
    assert (first.name, first.text, first.session) == ("U1", "hi", "T1")
    assert first.asked_at == trio.current_time()
    assert refused.name == ""


async def test_told_is_who_was_told_in_time(autojump_clock: MockClock) -> None:
    log = TurnLog()
    start(log, 3, "U1")
    start(log, 4, "U2")
    interrupt(log, 5, "U1", **TOO_EARLY)
    interrupt(log, 6, "U1", **TOO_EARLY)
    assert log.works[0].told_at == []
    interrupt(log, 7, "U1", result={})
    interrupt(log, 8, "U1")
    assert len(log.works[0].told_at) == 2
    assert log.works[1].told_at == []


async def test_whoever_is_told_too_late_was_told_once(autojump_clock: MockClock) -> None:
    log = TurnLog()
    start(log, 3, "U1")
    over = {"threadId": "T1", "turn": {"id": "U1", "status": "completed"}}
    log.note("<-", {"method": "turn/completed", "params": over})
    assert log.over == {"U1": trio.current_time()}
    interrupt(log, 5, "U1", **TOO_EARLY)
    interrupt(log, 6, "U1", **TOO_EARLY)
    assert len(log.works[0].told_at) == 1


async def test_a_reply_is_that_to_a_question_of_the_turn(autojump_clock: MockClock) -> None:
    log = TurnLog()
    start(log, 3, "U1")
    start(log, 4, "U2")
    log.note("<-", {"id": 0, "method": "item/tool/call", "params": {"turnId": "U2"}})
    log.note("->", {"id": 0, "result": {"success": False}})
    assert [work.replies for work in log.works] == [[], [{"success": False}]]
    log.note("<-", "no frame at all")
