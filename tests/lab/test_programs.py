from __future__ import annotations

import os
import sys
from importlib.metadata import PackageNotFoundError
from pathlib import Path

import pytest

from turnstop.lab import PINS, MissingProgram, Program, find_program, program_env
from turnstop.lab.pins import HOME_VARIABLE, lab_home

SAYS_NINE = "#!/bin/sh\necho codex-cli 9.1.0\n"


@pytest.fixture(autouse=True)
def nothing_installed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A lab without programs, no Python packages that bring one, and an empty PATH."""

    def distribution(name: str) -> object:
        raise PackageNotFoundError(name)

    monkeypatch.setattr("turnstop.lab.programs.distribution", distribution)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setenv(HOME_VARIABLE, str(tmp_path / "lab"))
    return tmp_path


def write_program(path: Path, text: str = SAYS_NINE) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    path.chmod(0o755)
    return path


def install(name: str) -> Path:
    """What an installation of it would leave, as far as it is looked for."""
    for part in PINS[name].paths:
        write_program(lab_home() / PINS[name].folder / part)
    return lab_home() / PINS[name].folder


@pytest.mark.parametrize("name", PINS)
def test_a_missing_program_names_the_command_that_installs_it(name: str) -> None:
    with pytest.raises(MissingProgram, match=rf"^[^\n]*: turnstop lab install {name}$"):
        find_program(name)


def test_a_name_that_nobody_knows() -> None:
    with pytest.raises(KeyError, match="cursor"):
        find_program("cursor")


@pytest.mark.parametrize("name", PINS)
def test_what_the_lab_has_is_found(name: str, tmp_path: Path) -> None:
    folder = install(name)
    node = write_program(tmp_path / "bin/node")
    program = find_program(name)
    begun_by = (str(node),) if PINS[name].needs_node else ()
    assert program.command == (*begun_by, *(str(folder / part) for part in PINS[name].paths))
    assert program.path == program.command[-1]


def test_a_folder_without_its_program_is_no_installation() -> None:
    (lab_home() / PINS["codex"].folder).mkdir(parents=True)
    with pytest.raises(MissingProgram):
        find_program("codex")


def test_another_version_is_no_installation() -> None:
    install("codex").rename(lab_home() / "codex-0.1.0")
    with pytest.raises(MissingProgram):
        find_program("codex")


def test_a_script_without_node_says_what_it_needs() -> None:
    install("gemini")
    with pytest.raises(MissingProgram, match=r"Node\.js 20 or newer"):
        find_program("gemini")


def test_a_python_package_counts_in_the_version_of_the_pin_alone(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Installed:
        version = "0.163.0"

        def locate_file(self, path: str) -> Path:
            return tmp_path / "site-packages" / path

    monkeypatch.setattr("turnstop.lab.programs.distribution", lambda name: Installed())
    program = write_program(tmp_path / "site-packages" / PINS["codex"].path)
    assert find_program("codex").path == str(program)
    monkeypatch.setattr(Installed, "version", "0.162.0")
    with pytest.raises(MissingProgram):
        find_program("codex")


def test_what_is_on_path_counts_in_the_version_of_the_pin_alone(tmp_path: Path) -> None:
    program = write_program(tmp_path / "bin/codex")
    with pytest.raises(MissingProgram, match=r"is 9\.1\.0, not .*turnstop lab install codex$"):
        find_program("codex")
    other = write_program(tmp_path / "other/codex", f"#!/bin/sh\necho {PINS['codex'].version}\n")
    os.environ["PATH"] = str(other.parent)
    assert find_program("codex").path == str(other)
    program.unlink()


def test_a_path_that_is_given_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install("codex")
    with pytest.raises(MissingProgram, match="nowhere"):
        find_program("codex", tmp_path / "nowhere")
    program = write_program(tmp_path / "codex")
    assert find_program("codex", program).path == str(program)
    monkeypatch.chdir(tmp_path)
    assert find_program("codex", "./codex").path == str(program)


def test_a_script_that_is_given_is_run_by_node(tmp_path: Path) -> None:
    node = write_program(tmp_path / "bin/node")
    (tmp_path / "index.js").write_text("")
    command = find_program("gemini", tmp_path / "index.js").command
    assert command == (str(node), str(tmp_path / "index.js"))


def test_the_commands_that_speak_acp(tmp_path: Path) -> None:
    write_program(tmp_path / "bin/node")
    install("qwen")
    assert find_program("qwen").acp_command[-1] == "--acp"
    install("codex")
    with pytest.raises(ValueError, match="codex does not speak ACP"):
        _ = find_program("codex").acp_command


async def test_a_version_is_what_the_program_says(tmp_path: Path) -> None:
    program = Program("codex", (str(write_program(tmp_path / "codex")),), PINS["codex"])
    assert await program.version() == "9.1.0"
    write_program(tmp_path / "codex", "#!/bin/sh\necho no libc >&2; exit 3\n")
    with pytest.raises(MissingProgram, match="does not run: it ended with status 3: no libc"):
        await program.version()
    write_program(tmp_path / "codex", "#!/bin/sh\necho hello\n")
    with pytest.raises(MissingProgram, match="told no version: 'hello"):
        await program.version()


async def test_a_version_that_only_the_protocol_tells(tmp_path: Path) -> None:
    program = Program("zed-codex-acp", (str(tmp_path / "agent"),), PINS["zed-codex-acp"])
    answer = '{"id":1,"result":{"agentInfo":{"version":"7.0.1"}}}'
    write_program(tmp_path / "agent", f"#!/bin/sh\necho banner\nread x\necho '{answer}'\nread x\n")
    assert await program.version() == "7.0.1"
    write_program(tmp_path / "agent", "#!/bin/sh\nexit 3\n")
    with pytest.raises(MissingProgram, match="does not run"):
        await program.version()


async def test_a_program_that_hangs_is_waited_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop.lab.programs._ANSWERS_WITHIN", 0.2)
    write_program(tmp_path / "codex", f"#!{sys.executable}\nimport time; time.sleep(300)\n")
    with pytest.raises(MissingProgram, match="did not tell its version"):
        await Program("codex", (str(tmp_path / "codex"),), PINS["codex"]).version()


def test_codex_is_pointed_at_the_lab(tmp_path: Path) -> None:
    env = program_env("codex", "http://127.0.0.1:9", tmp_path / "home")
    config = Path(env["CODEX_HOME"], "config.toml").read_text()
    assert 'base_url = "http://127.0.0.1:9/v1"' in config
