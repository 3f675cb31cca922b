from __future__ import annotations

import importlib.metadata
import sys
from pathlib import Path

import pytest
import trio

from turnstop.transports.distribution import check_distribution, check_package, import_apart


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
    assert "python -m pip install 'turnstop[some]'" in str(caught.value)


def test_a_file_of_the_packages_name_is_named_and_does_not_run(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "some_sdk.py").write_text("raise SystemExit('it ran')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ImportError, match=r"some_sdk\.py, and that is not some-sdk"):
        check_package("some_sdk", "some-sdk")
    with pytest.raises(ImportError, match="found nowhere"):
        check_package("some_other_sdk", "some-sdk")
    check_package("email", "python")


async def test_an_import_that_takes_its_time_holds_nobody_up(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "slow_sdk.py").write_text(
        "import threading\nmay_end = threading.Event()\nassert may_end.wait(20.0)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with trio.fail_after(10.0):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(import_apart, "slow_sdk")
            while not hasattr(sys.modules.get("slow_sdk"), "may_end"):  # noqa: ASYNC110
                await trio.sleep(0.01)
            with trio.move_on_after(0.01) as scope:
                await import_apart("slow_sdk")
            assert scope.cancelled_caught
            sys.modules["slow_sdk"].may_end.set()
    del sys.modules["slow_sdk"]
    (tmp_path / "broken_sdk.py").write_text("import what_is_missing")
    with pytest.raises(ImportError, match="what_is_missing"):
        await import_apart("broken_sdk")
