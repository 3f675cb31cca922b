"""What a scope is, and which overlap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnstop.claims import ClaimRefused, MalformedScope, MemoryStore, open_claims
from turnstop.claims._scopes import below, check_scopes, covers

SEGMENTS = st.text("ab-.0/é😀 ", min_size=1, max_size=3)
SCOPES = st.lists(SEGMENTS, min_size=1, max_size=4).map("/".join)


@pytest.mark.parametrize(
    "scope",
    [
        "",
        "/",
        "/repo",
        "repo/",
        "repo//src",
        ".",
        "repo/../src",
        "repo/.",
        "a\0b",
        "a\nb",
        "\ud800",
    ],
)
def test_malformed(scope: str) -> None:
    with pytest.raises(MalformedScope, match="write it as in"):
        check_scopes(["fine", scope])


def test_one_that_is_too_long() -> None:
    assert check_scopes(["x" * 1000])
    with pytest.raises(MalformedScope, match="1000"):
        check_scopes(["x" * 1001])


@pytest.mark.parametrize("scopes", ["repo/src", [b"repo"], [None], [1]])
def test_no_texts(scopes: Any) -> None:
    with pytest.raises(TypeError, match="'repo/src'"):
        check_scopes(scopes)


def test_parts_of_others_are_left_out() -> None:
    scopes = ["a/b/c", "a/b", "a/b", "a/bc", "z"]
    assert check_scopes(scopes) == ("a/b", "a/bc", "z")
    assert check_scopes([]) == ()


@pytest.mark.parametrize(
    ("one", "other", "overlap"),
    [
        ("repo", "repo", True),
        ("repo", "repo/src", True),
        ("repo", "repo/src/main.py", True),
        ("repo/src", "repo/src2", False),
        ("repo/src", "repo/src-2/x", False),
        ("repo/src", "repo/src.d", False),
        ("repo/src", "repo/docs", False),
        ("repo/src", "Repo/src", False),
        ("repo/é", "repo/é/😀", True),
    ],
)
async def test_overlap(one: str, other: str, overlap: bool) -> None:
    async with open_claims(MemoryStore()) as claims:
        for first, second in ((one, other), (other, one)):
            async with claims.hold([first], holder="first"):
                if overlap:
                    with pytest.raises(ClaimRefused) as caught:
                        await hold_beside(claims, second)
                    found = caught.value
                    assert (found.scope, found.held, found.holder) == (second, first, "first")
                else:
                    await hold_beside(claims, second)


async def hold_beside(claims: Any, scope: str) -> None:
    # In a register of its own nothing is around it.
    async with open_claims(claims._register.store) as others:
        async with others.hold([scope], holder="second"):
            pass


@given(SCOPES, SCOPES)
def test_the_range_is_what_is_below(one: str, other: str) -> None:
    first, last = (text.encode() for text in below(one))
    assert (first < other.encode() < last) == (other.startswith(f"{one}/") and other != f"{one}/")


@given(SCOPES, SCOPES)
def test_covers(one: str, other: str) -> None:
    parts = one.split("/")
    if not one.startswith("/"):
        assert covers([one], other) == (other.split("/")[: len(parts)] == parts)
