from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from turnstop.lab import PINS, program_env
from turnstop.lab.environments import RUN_VARIABLE
from turnstop.lab.pins import HOME_VARIABLE

URL = "http://127.0.0.1:9999"


@pytest.mark.parametrize("name", PINS)
def test_a_program_keeps_itself_in_its_home_and_inherits_nothing_else(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("TMPDIR", RUN_VARIABLE):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("OPENAI_API_KEY", "a secret of the user's")
    monkeypatch.setenv("ANTHROPIC_API_KEY", "a secret of the user's")
    monkeypatch.setenv("GEMINI_API_KEY", "a secret of the user's")
    home = tmp_path / "not yet there"
    env = program_env(name, URL, home)
    assert env["PATH"] == os.environ["PATH"]
    assert (env["CI"], env["NO_COLOR"]) == ("1", "1")
    for variable in ("HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        assert Path(env[variable]).is_relative_to(home)
    assert "a secret of the user's" not in env.values()
    # Each is told of the lab, in its environment or in a file of its home.
    files = (path.read_text() for path in home.rglob("*") if path.is_file())
    assert any(URL in text for text in (*env.values(), *files))


@pytest.mark.parametrize("name", PINS)
def test_what_it_starts_carries_the_mark_of_the_run(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(RUN_VARIABLE, "this one")
    assert program_env(name, URL, tmp_path)[RUN_VARIABLE] == "this one"


def test_a_name_that_nobody_knows(tmp_path: Path) -> None:
    with pytest.raises(KeyError, match="cursor"):
        program_env("cursor", URL, tmp_path)


def test_what_copilot_unpacks_is_unpacked_once_where_the_lab_has_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "lab"))
    assert "COPILOT_PKG_CACHE_HOME" not in program_env("copilot", URL, tmp_path / "home")
    folder = tmp_path / "lab" / PINS["copilot"].folder
    folder.mkdir(parents=True)
    env = program_env("copilot", URL, tmp_path / "home")
    assert Path(env["COPILOT_PKG_CACHE_HOME"]).parent == folder


@pytest.mark.parametrize("file", [".gemini/settings.json", ".qwen/settings.json"])
def test_the_settings_are_json(file: str, tmp_path: Path) -> None:
    program_env(file[1:].partition("/")[0], URL, tmp_path)
    assert json.loads((tmp_path / file).read_text())["privacy"] == {"usageStatisticsEnabled": False}
