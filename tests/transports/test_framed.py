"""Messages behind a length: cut anywhere, and what is none is told at once."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstop import BackendMisbehaved
from turnstop.transports.framed import MessageSplitter, frame

MESSAGES = [{"id": 1, "text": "naïve"}, {}, {"nested": {"list": [1, "two", None]}}]


@given(st.lists(st.integers(0, 200), max_size=12))
def test_messages_are_cut_out_of_any_chunks(cuts: list[int]) -> None:
    data = b"".join(map(frame, MESSAGES))
    places = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    splitter = MessageSplitter()
    found = []
    for begin, end in itertools.pairwise(places):
        found += splitter.feed(data[begin:end])
    assert found == MESSAGES
    assert splitter.is_even


def test_it_says_whether_a_message_has_begun() -> None:
    splitter, data = MessageSplitter(), frame({"id": 1})
    for cut in (1, data.index(b"{")):
        splitter.feed(data[:cut])
        assert not splitter.is_even
        splitter.feed(data[cut:])
        assert splitter.is_even


def test_other_headers_are_passed_over() -> None:
    header = b"Content-Type: application/json\r\ncontent-length: 2\r\n\r\n"
    assert MessageSplitter().feed(header + b"{}") == [{}]


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"thread 'main' panicked\n", "what is no message: \"thread 'main' panicked\""),
        (b"a: b\r\n\r\n{}", "a message without a length"),
        (b"Content-Length: 999999999999\r\n\r\n", "a message without a length"),
        (b"Content-Length: 4\r\n\r\nnope", "a message that is no JSON object: 'nope'"),
        (b"Content-Length: 2\r\n\r\n[]", "a message that is no JSON object"),
        (b"Content-Length: 3\r\n\r\n\xff\xff\xff", "a message that is no JSON object"),
        (b"Content-Length: 200000\r\n\r\n" + b"[" * 200000, "a message that is no JSON object"),
        (b"x" * 5000, "what is no message"),
    ],
)
def test_what_is_no_message_is_told_at_once(data: bytes, why: str) -> None:
    with pytest.raises(BackendMisbehaved) as caught:
        MessageSplitter().feed(data)
    assert why in str(caught.value)
    assert len(str(caught.value)) < 600


def test_a_message_may_be_no_longer_than_is_said() -> None:
    data = frame({"text": "x" * 100})
    assert MessageSplitter(200).feed(data)
    with pytest.raises(BackendMisbehaved, match="without a length"):
        MessageSplitter(100).feed(data[:25])
