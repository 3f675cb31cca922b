"""Server-sent events, put together from lines."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstop.transports.sse import EventParser, ServerEvent


def parse(text: str) -> list[ServerEvent]:
    parser = EventParser()
    found = (parser.feed(line) for line in text.split("\n"))
    return [event for event in found if event is not None]


@pytest.mark.parametrize(
    ("text", "events"),
    [
        ("data: one\n\n", [ServerEvent("one")]),
        ("data:one\n\ndata:  two\n\n", [ServerEvent("one"), ServerEvent(" two")]),
        ("data: one\ndata: two\n\n", [ServerEvent("one\ntwo")]),
        ("data\n\n", [ServerEvent("")]),
        (": a comment\n\n", []),
        ("event: ping\n\ndata: one\n\n", [ServerEvent("one")]),
        ("event: error\ndata: one\n\n", [ServerEvent("one", "error")]),
        (
            "id: 7\ndata: one\n\ndata: two\n\n",
            [ServerEvent("one", id="7"), ServerEvent("two", id="7")],
        ),
        ("id: a\0b\ndata: one\n\n", [ServerEvent("one")]),
        ("retry: 10\nnonsense\ndata: a: b\n\n", [ServerEvent("a: b")]),
        ("\ufeffdata: one\n\n", [ServerEvent("one")]),
        ("data: cut off", []),
    ],
)
def test_events(text: str, events: list[ServerEvent]) -> None:
    assert parse(text) == events


LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))


@given(st.lists(st.lists(LINES, min_size=1)))
def test_what_was_written_is_read(events: list[list[str]]) -> None:
    text = "".join("".join(f"data: {line}\n" for line in lines) + "\n" for lines in events)
    assert [event.data for event in parse(text)] == ["\n".join(lines) for lines in events]
