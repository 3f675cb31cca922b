"""What the probe of the real Claude takes from its wire."""

from __future__ import annotations

from typing import Any

from turnstop.testing.probes._claude_wire import MessageLog, Tapped

Frame = dict[str, Any]


def interrupt(**more: Any) -> Frame:
    return {"type": "control_request", "request_id": "1", "request": {**more}}


def result(message: str) -> Frame:
    return {"type": "result", "user_message_uuid": message}


def log_with(*messages: tuple[str, str]) -> tuple[MessageLog, list[int]]:
    """A log of sessions that were sent messages, and how often it looked."""
    looks: list[int] = []
    log = MessageLog(lambda: looks.append(1))
    for session, message in messages:
        tapped = Tapped(log, session)
        tapped.notification("user", {"uuid": message, "message": {"content": f"do {message}"}})
    return log, looks


async def test_a_message_is_a_work_of_its_session() -> None:
    log, looks = log_with(("s", "m"), ("t", "n"))
    assert [(work.name, work.session, work.text) for work in log.works] == [
        ("m", "s", "do m"),
        ("n", "t", "do n"),
    ]
    assert len(looks) == 2


async def test_an_interrupt_tells_what_is_open_in_its_session() -> None:
    log, _ = log_with(("s", "m"), ("s", "n"), ("t", "o"))
    log.note("s", "<-", result("m"))
    Tapped(log, "s").call(1, "interrupt", {"cancel_queued": True})
    assert [len(work.told_at) for work in log.works] == [0, 1, 0]
    # One that is of no room's turn is not one of theirs.
    log.note("s", "->", interrupt(subtype="interrupt"))
    assert [len(work.told_at) for work in log.works] == [0, 1, 0]


async def test_a_result_or_a_cancellation_is_an_end() -> None:
    log, _ = log_with(("s", "m"), ("s", "n"))
    tapped = Tapped(log, "s")
    tapped.read({"type": "command_lifecycle", "state": "started", "command_uuid": "m"})
    assert log.over == {}
    tapped.read(result("m"))
    tapped.read({"type": "command_lifecycle", "state": "cancelled", "command_uuid": "n"})
    assert set(log.over) == {"m", "n"}
    first = log.over["m"]
    tapped.read(result("m"))
    assert log.over["m"] == first


async def test_an_answer_is_kept_with_the_work_that_asked() -> None:
    log, _ = log_with(("s", "m"), ("t", "n"))
    asked = {"subtype": "can_use_tool", "tool_name": "Bash"}
    Tapped(log, "s").read({"type": "control_request", "request_id": "q", "request": asked})
    Tapped(log, "s").result("q", {"behavior": "allow"})
    Tapped(log, "s").result("q", {"behavior": "deny"})
    Tapped(log, "t").read({"type": "control_request", "request_id": "r", "request": asked})
    Tapped(log, "t").refusal("r", "no", 1)
    assert [work.replies for work in log.works] == [[{"behavior": "allow"}], ["no"]]
