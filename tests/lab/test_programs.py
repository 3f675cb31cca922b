from __future__ import annotations

import sys
from pathlib import Path

import pytest

from turnstop.lab import MissingProgram, Program, codex_env, find_codex


def test_a_missing_program_names_the_command_that_installs_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "codex_cli_bin", None)
    with pytest.raises(MissingProgram, match=r"^[^\n]*pip install openai-codex-cli-bin==[\d.]+$"):
        find_codex()


def test_the_pinned_version_is_the_one_of_the_extra() -> None:
    tomllib = pytest.importorskip("tomllib")
    text = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    bench = tomllib.loads(text)["project"]["optional-dependencies"]["bench"]
    from turnstop.lab.programs import CODEX_INSTALL

    assert CODEX_INSTALL.rpartition(" ")[2] in bench


def test_a_path_that_is_given_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(MissingProgram, match="nowhere"):
        find_codex(tmp_path / "nowhere")
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\necho codex-cli 9\n")
    program.chmod(0o755)
    assert find_codex(program).path == str(program)
    monkeypatch.chdir(tmp_path)
    assert find_codex("./codex").path == str(program)


async def test_a_version_is_what_the_program_says(tmp_path: Path) -> None:
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\necho codex-cli 9\n")
    program.chmod(0o755)
    assert await Program("codex", str(program)).version() == "codex-cli 9"
    program.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(MissingProgram, match="does not run"):
        await Program("codex", str(program)).version()


async def test_a_program_that_hangs_is_waited_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop.lab.programs._ANSWERS_WITHIN", 0.2)
    program = tmp_path / "codex"
    program.write_text("#!/bin/sh\nexec sleep 300\n")
    program.chmod(0o755)
    with pytest.raises(MissingProgram, match="did not tell its version"):
        await Program("codex", str(program)).version()


def test_codex_is_pointed_at_the_lab(tmp_path: Path) -> None:
    env = codex_env("http://127.0.0.1:9", tmp_path / "home")
    config = Path(env["CODEX_HOME"], "config.toml").read_text()
    assert 'base_url = "http://127.0.0.1:9/v1"' in config
    assert set(env) == {"CODEX_HOME", "HOME", "PATH"}
