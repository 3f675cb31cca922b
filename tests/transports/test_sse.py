"""Server-sent events, put together from chunks."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstop._errors import BackendMisbehaved
from turnstop.transports.sse import EventParser, ServerEvent


def parse(text: str) -> list[ServerEvent]:
    return parse_bytes(text.encode(), len(text.encode()) or 1)


def parse_bytes(data: bytes, size: int) -> list[ServerEvent]:
    parser = EventParser()
    chunks = [data[at : at + size] for at in range(0, len(data), size)]
    return [event for chunk in chunks for event in parser.feed(chunk)]


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
        ("data: one\n\ufeffdata: two\n\n", [ServerEvent("one")]),
        ("data: cut off", []),
        ("data: cut off\n", []),
        ("data: one\r\rdata: two\r\n\r\n", [ServerEvent("one"), ServerEvent("two")]),
        ("data: a\u2028b\x85c\x0bd\n\n", [ServerEvent("a\u2028b\x85c\x0bd")]),
    ],
)
def test_events(text: str, events: list[ServerEvent]) -> None:
    assert parse(text) == events


LINES = st.text(st.characters(exclude_characters="\r\n", exclude_categories=["Cs"]))


@given(st.lists(st.lists(LINES, min_size=1)))
def test_what_was_written_is_read(events: list[list[str]]) -> None:
    text = "".join("".join(f"data: {line}\n" for line in lines) + "\n" for lines in events)
    assert [event.data for event in parse(text)] == ["\n".join(lines) for lines in events]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
@pytest.mark.parametrize("size", [1, 2, 3, 7])
def test_events_are_the_same_however_they_are_cut(end: str, size: int) -> None:
    text = f"data: one{end}data: zwölf{end}{end}data{end}{end}"
    assert parse_bytes(text.encode(), size) == [ServerEvent("one\nzwölf"), ServerEvent("")]


def test_a_line_end_is_one_though_nothing_came_in_its_middle() -> None:
    parser = EventParser()
    chunks = (b"data: one\r", b"", b"\ndata: two\n\n")
    assert [event for chunk in chunks for event in parser.feed(chunk)] == [ServerEvent("one\ntwo")]


@pytest.mark.parametrize(
    ("text", "what"), [(b"data: 789ab", "a line"), (b"data: 789a\n" * 3, "an event")]
)
def test_what_never_ends_is_not_kept(text: bytes, what: str) -> None:
    parser = EventParser(limit=10)
    assert parser.feed(b"data: 789a\n\n") == [ServerEvent("789a")]
    with pytest.raises(BackendMisbehaved, match=f"{what} of more than 10 bytes"):
        parser.feed(text)
