from __future__ import annotations

import importlib.metadata

import pytest

from turnstop.transports.distribution import check_distribution


def check(monkeypatch: pytest.MonkeyPatch, found: str | None, floor: str, below: str | None) -> str:
    def version(name: str) -> str:
        assert name == "some-sdk"
        if found is None:
            raise importlib.metadata.PackageNotFoundError(name)
        return found

    monkeypatch.setattr(importlib.metadata, "version", version)
    return check_distribution("some-sdk", floor, extra="some", needed_by="open_some", below=below)


@pytest.mark.parametrize(
    ("found", "floor", "below"),
    [
        ("1.7.1", "1.7.1", None),
        ("1.7.10", "1.7.9", None),
        ("1.8", "1.7.1", "2"),
        ("2.0.0", "2", None),
        ("2", "2.0.0", None),
        ("1.7.1.post1", "1.7.1", None),
        ("1.9.0rc1", "1.8", "1.10"),
    ],
)
def test_one_in_the_range_will_do(
    monkeypatch: pytest.MonkeyPatch, found: str, floor: str, below: str | None
) -> None:
    assert check(monkeypatch, found, floor, below) == found


@pytest.mark.parametrize(
    ("found", "floor", "below", "text"),
    [
        ("1.7.0", "1.7.1", None, "some-sdk 1.7.0 is here, and open_some needs >=1.7.1"),
        ("1.7.9", "1.7.10", None, "needs >=1.7.10"),
        ("2.0.0", "1.7", "2", "some-sdk 2.0.0 is here, and open_some needs >=1.7,<2"),
        ("2.0.0rc1", "1.7", "2", "needs >=1.7,<2"),
        ("unknown", "0.1", None, "some-sdk unknown is here"),
        (None, "1.7", None, "open_some needs some-sdk"),
    ],
)
def test_any_other_is_named_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, found: str | None, floor: str, below: str | None, text: str
) -> None:
    with pytest.raises(ImportError, match=text) as caught:
        check(monkeypatch, found, floor, below)
    assert 'pip install "turnstop[some]"' in str(caught.value)
