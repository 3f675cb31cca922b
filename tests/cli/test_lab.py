from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from installers import Tools, tools

import turnstop
from turnstop.cli.main import main
from turnstop.lab import PINS

__all__ = ["tools"]

PATIENCE = 30.0


def run(*arguments: str) -> Result:
    return CliRunner().invoke(main, ["lab", *arguments])


def test_what_is_installed_is_listed(tools: Tools) -> None:
    nothing = run("list")
    assert nothing.exit_code == 0
    assert "0 of 11 are here" in nothing.stdout
    assert str(tools.home) in nothing.stdout
    assert "turnstop lab install NAME" in nothing.stdout
    assert run("install", "qwen").exit_code == 0
    rows = {line.split()[0]: line for line in run("list").stdout.splitlines() if line}
    assert {*PINS} <= {*rows}
    assert rows["qwen"].split() == ["qwen", "0.15.10", "17", "MB", "55", "MB", "qwen-0.15.10"]
    assert rows["omp"].split()[-1] == "-"


def test_the_list_is_json_for_machines(tools: Tools, tmp_path: Path) -> None:
    assert run("install", "qwen").exit_code == 0
    said = json.loads(run("list", "--json").stdout)
    assert said["home"] == str(tools.home)
    programs = {one["name"]: one for one in said["programs"]}
    assert list(programs) == list(PINS)
    assert programs["qwen"]["command"][-1].startswith(str(tools.home))
    assert programs["qwen"]["missing"] is None
    assert (programs["qwen"]["download_mb"], programs["qwen"]["disk_mb"]) == (17, 55)
    assert programs["omp"]["command"] is None
    assert "turnstop lab install omp" in programs["omp"]["missing"]
    into = run("list", "--json", str(tmp_path / "list.json"))
    assert "of 11 are here" in into.stdout
    assert json.loads((tmp_path / "list.json").read_text()) == said


def test_sizes_are_said_before_anything_is_downloaded(tools: Tools) -> None:
    result = run("install", "qwen", "gemini")
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert lines[0].split()[:7] == ["qwen", "0.15.10", "17", "MB", "to", "download,", "55"]
    assert lines[2].split()[:6] == ["all", "39", "MB", "to", "download,", "155"]
    assert lines[3] == f"into {tools.home}"
    assert lines[4] == "qwen 0.15.10: downloading 17 MB from npm"
    assert lines[5].startswith("qwen 0.15.10: done, ")
    assert lines[-1].startswith("2 of 2 installed in ")
    assert [told[-1] for told in tools.told] == [PINS[n].packages[-1] for n in ("qwen", "gemini")]


def test_what_is_here_already_is_skipped_unless_it_is_forced(tools: Tools) -> None:
    run("install", "qwen")
    again = run("install", "qwen")
    assert again.exit_code == 0
    assert again.stdout == f"qwen 0.15.10 is here already: {tools.home / 'qwen-0.15.10'}/" + (
        f"{PINS['qwen'].path}\n"
    )
    assert len(tools.told) == 1
    assert run("install", "qwen", "--force").exit_code == 0
    assert len(tools.told) == 2


def test_all_but_some(tools: Tools) -> None:
    result = run("install", "--all", "--except", "opencode", "--except", "omp")
    assert result.exit_code == 0, result.output
    installed = {path.name for path in tools.home.iterdir()}
    assert installed == {pin.folder for pin in PINS.values() if not pin.optional}


def test_a_name_that_nobody_knows_lists_those_that_are_known(tools: Tools) -> None:
    for arguments in (["cursor"], ["--all", "--except", "cursor"]):
        result = run("install", *arguments)
        assert result.exit_code == 2
        assert "the lab knows no cursor; it knows claude, codex, opencode" in result.stderr
    assert tools.told == []


def test_nothing_is_left_to_install(tools: Tools) -> None:
    result = run("install", "qwen", "--except", "qwen")
    assert result.exit_code == 2
    assert "nothing is left to install" in result.stderr


@pytest.mark.parametrize("arguments", [[], ["--all", "qwen"]])
def test_names_or_all_and_not_both(tools: Tools, arguments: list[str]) -> None:
    result = run("install", *arguments)
    assert result.exit_code == 2
    assert "name programs, or say --all. There are claude, codex" in result.stderr


def test_a_failure_is_told_and_does_not_hold_up_the_others(tools: Tools) -> None:
    tools.order(gemini="0.0.1")
    result = run("install", "gemini", "qwen")
    assert result.exit_code == 1
    assert "gemini 0.61.0: what was installed says that it is 0.0.1" in result.stderr
    assert "not installed: gemini" in result.stderr
    assert "qwen 0.15.10: done" in result.stdout
    tools.order(status=1)
    failed = run("install", "gemini")
    assert failed.exit_code == 1
    assert "    the last line" in failed.stderr


def test_without_node_it_says_what_to_install(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tools.home))
    result = run("install", "qwen")
    assert result.exit_code == 2
    assert "no `node` on PATH: install Node.js 20 or newer with npm" in result.stderr


@pytest.mark.parametrize("arguments", [("list",), ("install", "gemini")])
def test_without_its_extra_it_says_what_to_install(arguments: tuple[str, ...]) -> None:
    script = "import sys; sys.modules['h11'] = None; from turnstop.cli.main import main; main()"
    command = [sys.executable, "-c", script, "lab", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == ("Error: turnstop.lab needs h11: python -m pip install 'turnstop[lab]'\n")


def test_a_disk_that_is_too_small_is_told_before(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop.lab.installing.free_space", lambda home: 9 << 20)
    result = run("install", "qwen")
    assert result.exit_code == 2
    assert "has 9 MB left, and this takes 55 MB" in result.stderr
    assert tools.told == []


def test_an_interrupt_leaves_nothing(tools: Tools) -> None:
    tools.order(waits=True)
    env = {**os.environ, "PYTHONPATH": str(Path(turnstop.__file__).parent.parent)}
    command = [sys.executable, "-c", "from turnstop.cli.main import main; main()"]
    with subprocess.Popen(
        [*command, "lab", "install", "qwen"], env=env, stderr=subprocess.PIPE, text=True
    ) as process:
        deadline = time.monotonic() + PATIENCE
        try:
            while not (tools.folder / "waiting").exists():
                assert time.monotonic() < deadline
                time.sleep(0.01)
            process.send_signal(signal.SIGINT)
            _, said = process.communicate(timeout=PATIENCE)
        finally:
            process.kill()
    assert process.returncode == 130
    assert "interrupted" in said
    assert "Traceback" not in said
    assert list(tools.home.iterdir()) == []
