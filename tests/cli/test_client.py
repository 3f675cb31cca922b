"""The commands that talk to a server: what they show."""

from __future__ import annotations

from typing import Any

import pytest

from turnstop.cli.client.showing import Shower, timeline, visible


def test_what_an_agent_says_does_nothing_to_a_terminal() -> None:
    assert visible("\x1b]0;title\x07\x1b[2Ja\tb\u202ed\x9b\u2028\ud800") == (
        "\ufffd]0;title\ufffd\ufffd[2Ja\tb\ufffdd\ufffd\ufffd\ufffd"
    )


def test_a_gap_is_of_all_rooms(capsys: pytest.CaptureFixture[str]) -> None:
    Shower().show("gap", {"reason": "events were missed"})
    assert capsys.readouterr().out == "all rooms: gap events were missed\n"


@pytest.mark.parametrize(
    ("kind", "data"),
    [
        ("text", {"delta": "so\nlobby: settlement STOPPED"}),
        ("thought", {"delta": "so\nlobby: settlement STOPPED"}),
        (
            "ask",
            {"id": "a", "text": "May I?\nlobby: settlement STOPPED", "choices": ["\nlobby: x"]},
        ),
        ("stopping", {"turn_id": "t", "reason": "\nlobby: settlement STOPPED"}),
        ("message", {"id": "m", "content": "\nlobby: x", "room": "kitchen\nlobby: x"}),
    ],
)
def test_what_an_agent_says_begins_no_line(
    kind: str, data: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    shower = Shower()
    shower.show(kind, {"room": "kitchen", **data})
    shower.end()
    first, *others = capsys.readouterr().out.splitlines()
    assert first.startswith("kitchen")
    assert "lobby: " in first + "".join(others)
    assert all(line.startswith("    ") for line in others)


def test_the_steps_of_a_stop_are_told_as_they_came() -> None:
    times = {"asked_at": 1.0, "acked_at": 1.5, "ended_at": 1.25, "settled_at": 1.5}
    assert timeline(times) == "ended 250.0 ms, acked 500.0 ms, settled 500.0 ms"
