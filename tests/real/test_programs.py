"""The real programs are what their pins say, and one can be installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
import trio

from turnstop.lab import PINS, MissingProgram, find_program
from turnstop.lab.installing import InstallFailed, install
from turnstop.lab.pins import HOME_VARIABLE

from . import REQUIRED, real_program

PATIENCE = 200.0
SMALL = PINS["qwen"]


@pytest.mark.parametrize("name", PINS)
async def test_it_says_that_it_is_the_version_of_its_pin(name: str) -> None:
    assert await real_program(name).version() == PINS[name].version


@pytest.mark.parametrize(
    ("real", "lab", "skipped"),
    [
        ("", "", {"gemini", "opencode", "omp"}),
        ("require", "", {"opencode", "omp"}),
        ("require", "all", set()),
        ("", "all", {"gemini", "opencode", "omp"}),
    ],
)
def test_which_may_be_absent(
    real: str, lab: str, skipped: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, value in {HOME_VARIABLE: tmp_path, "PATH": tmp_path, "TURNSTOP_LAB": lab}.items():
        monkeypatch.setenv(variable, str(value))
    monkeypatch.setattr(f"{real_program.__module__}.REQUIRED", real == "require")
    for name in ("gemini", "opencode", "omp"):
        kind = pytest.skip.Exception if name in skipped else MissingProgram
        with pytest.raises(kind, match=f"turnstop lab install {name}"):
            real_program(name)


async def test_one_is_installed_and_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path))
    sizes: list[int] = []
    with trio.fail_after(PATIENCE):
        try:
            found = await install(SMALL, tell=sizes.append)
        except InstallFailed as failed:
            if REQUIRED:
                raise
            pytest.skip(f"{failed}: {' '.join(failed.said)}")
        assert await find_program(SMALL.name).version() == SMALL.version
    assert os.listdir(tmp_path) == [SMALL.folder]
    assert sizes
    # The pin says in advance what it takes.
    assert found.size / (1 << 20) == pytest.approx(SMALL.size, rel=0.1)
