"""The runner of the peer, without the peer."""

from __future__ import annotations

import json
import os
import stat
import sys
from pathlib import Path

import pytest

from turnstop.cli import band
from turnstop.cli.bench.band import _Run


def _python(folder: Path, script: str) -> str:
    """A program that is called as a Python is, and runs `script` whatever it is told to run."""
    path = folder / "python"
    path.write_text(f"#!{sys.executable}\n{script}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return os.fspath(path)


@pytest.mark.parametrize("script", ["raise SystemExit(1)", "print('6.0.0')"])
def test_a_python_without_the_peer_is_refused_in_one_line(tmp_path: Path, script: str) -> None:
    with pytest.raises(band.BandAbsent) as refused:
        band.find_band_python(_python(tmp_path, script))
    (line,) = str(refused.value).splitlines()
    assert "pip install 'band-sdk[a2a,codex]==6.0.1'" in line
    assert "--band-python" in line


def test_a_python_that_hangs_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(band, "_PROBING_S", 0.2)
    with pytest.raises(band.BandAbsent):
        band.find_band_python(_python(tmp_path, "import time; time.sleep(300)"))


async def test_an_end_in_words_that_are_no_end_is_none() -> None:
    turn = band.BandTurn("room", "t1", at={"settled": 1.0}, said={"ended": "TASK_STATE_WORKING"})
    assert (await _Run(None, turn, 0.0).settled()).ending == "SETTLED"  # type: ignore[arg-type]


def test_the_environment_names_a_python(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    python = _python(tmp_path, "print('6.0.1')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("TURNSTOP_BAND_PYTHON", raising=False)
    with pytest.raises(band.BandAbsent):
        band.find_band_python()
    monkeypatch.setenv("TURNSTOP_BAND_PYTHON", python)
    assert band.find_band_python() == python


async def test_a_peer_that_dies_early_tells_its_last_words(tmp_path: Path) -> None:
    python = _python(tmp_path, "raise SystemExit('no such module')")
    with pytest.raises(band.BandFailed, match="no such module"):
        async with band.open_band(python, backend="codex"):
            raise AssertionError("opened")


async def test_a_waiter_is_told_when_the_peer_dies(tmp_path: Path) -> None:
    opened = json.dumps({"op": "opened", "versions": {"band-sdk": "6.0.1"}})
    script = (
        f"import sys\nprint({opened!r}, flush=True)\nsys.stdin.readline()\nsys.stdin.readline()"
    )
    async with band.open_band(_python(tmp_path, script), backend="codex") as peer:
        assert peer.versions == {"band-sdk": "6.0.1"}
        turn = await peer.start("room", "hello", turn_id="t1")
        with pytest.raises(band.BandFailed):
            await turn.reached("settled")
