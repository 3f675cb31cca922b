from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import trio
from installers import Tools, tools

import turnstop
from turnstop.lab import PINS, find_program
from turnstop.lab.installing import InstallFailed, check_tools, free_space, install, sweep_killed

__all__ = ["tools"]

QWEN, OMP, CODEX = PINS["qwen"], PINS["omp"], PINS["codex"]


def left(tools: Tools) -> list[str]:
    return sorted(path.name for path in tools.home.iterdir())


async def test_npm_installs_the_packages_and_no_more(tools: Tools) -> None:
    found = await install(QWEN)
    assert found.size > 0
    assert find_program("qwen").path == str(tools.home / "qwen-0.15.10" / QWEN.path)
    ((name, *arguments),) = tools.told
    assert (name, arguments[0], arguments[-1]) == ("npm", "install", "@qwen-code/qwen-code@0.15.10")
    assert {"--ignore-scripts", "--no-audit", "--no-fund"} <= {*arguments}
    assert "--omit=optional" not in arguments
    assert not [word for word in arguments if "://" in word or "registry" in word]
    assert left(tools) == ["qwen-0.15.10"]


async def test_a_lean_one_leaves_out_what_is_optional(tools: Tools) -> None:
    await install(OMP)
    assert "--omit=optional" in tools.told[0]
    assert tools.told[0][-3:] == list(OMP.requirements)


async def test_pip_installs_the_package_alone(tools: Tools) -> None:
    await install(CODEX)
    ((name, *arguments),) = tools.told
    assert (name, arguments[0], arguments[-1]) == ("pip", "install", CODEX.packages[0])
    assert {"--no-deps", "--target"} <= {*arguments}
    assert await find_program("codex").version() == CODEX.version


async def test_a_failure_tells_what_the_tool_said_last_and_changes_nothing(tools: Tools) -> None:
    await install(QWEN)
    before = os.stat(tools.home / QWEN.folder).st_ino
    tools.order(status=7)
    with pytest.raises(InstallFailed, match="npm failed with status 7") as failed:
        await install(QWEN, force=True)
    assert failed.value.said == ("what it says", "the last line")
    assert os.stat(tools.home / QWEN.folder).st_ino == before
    assert left(tools) == [QWEN.folder]


async def test_what_says_it_is_another_version_is_not_kept(tools: Tools) -> None:
    tools.order(qwen="0.15.9")
    with pytest.raises(InstallFailed, match=r"says that it is 0\.15\.9, not 0\.15\.10"):
        await install(QWEN)
    assert left(tools) == []


async def test_what_has_no_program_for_this_system_is_not_kept(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    tools.order()
    monkeypatch.setattr("turnstop.lab.pins.platform.machine", lambda: "s390x")
    with pytest.raises(InstallFailed, match="has no node_modules/opencode-linux-s390x"):
        await install(PINS["opencode"])


async def test_force_puts_it_in_the_place_of_the_old_one(tools: Tools) -> None:
    await install(QWEN)
    mark = tools.home / QWEN.folder / "of the old one"
    mark.touch()
    await install(QWEN)
    assert mark.exists()
    await install(QWEN, force=True)
    assert not mark.exists()
    assert left(tools) == [QWEN.folder]


async def test_a_folder_without_its_program_is_replaced(tools: Tools) -> None:
    (tools.home / QWEN.folder).mkdir(parents=True)
    (tools.home / QWEN.folder / "half of it").touch()
    await install(QWEN)
    assert not (tools.home / QWEN.folder / "half of it").exists()
    find_program("qwen")


async def test_two_at_once_do_no_harm(tools: Tools) -> None:
    async with trio.open_nursery() as nursery:
        for _ in range(3):
            nursery.start_soon(install, QWEN)
    find_program("qwen")
    assert left(tools) == [QWEN.folder]


@pytest.mark.parametrize("path", [QWEN.path, "something else"])
async def test_who_is_quicker_is_kept_if_it_is_the_same_one(
    path: str, tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    rename, theirs = Path.rename, tools.home / QWEN.folder / path

    def rename_too_late(self: Path, target: str | Path) -> Path:
        if self.name == "new":
            theirs.parent.mkdir(parents=True)
            theirs.write_text("theirs")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", rename_too_late)
    if path == QWEN.path:
        await install(QWEN)
    else:
        with pytest.raises(InstallFailed, match="not empty"):
            await install(QWEN)
    assert theirs.read_text() == "theirs"
    assert left(tools) == [QWEN.folder]


async def until(there: Callable[[], bool]) -> None:
    with trio.fail_after(20):
        while not there():  # noqa: ASYNC110 - a stranger makes no event
            await trio.sleep(0.01)


async def test_a_cancelled_one_leaves_nothing(tools: Tools) -> None:
    tools.order(waits=True)
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(install, QWEN)
            await until((tools.folder / "waiting").exists)
            assert left(tools) != []
            nursery.cancel_scope.cancel()
    assert left(tools) == []


async def test_a_killed_one_counts_for_nothing_and_is_removed_by_the_next(tools: Tools) -> None:
    tools.order(waits=True)
    code = "from turnstop.cli.main import main; main()"
    command = [sys.executable, "-c", code, "lab", "install", "qwen"]
    env = {**os.environ, "PYTHONPATH": str(Path(turnstop.__file__).parent.parent)}
    process = await trio.lowlevel.open_process(command, env=env)
    await until((tools.folder / "waiting").exists)
    process.kill()
    await process.wait()
    (killed,) = left(tools)
    sweep_killed()
    # Its npm lives, and writes there.
    assert left(tools) == [killed]
    for pid in npm_of(tools):
        os.kill(pid, signal.SIGKILL)
    await until(lambda: not npm_of(tools))
    tools.order()
    await install(QWEN)
    assert left(tools) == [QWEN.folder]


def npm_of(tools: Tools) -> list[int]:
    needle = str(tools.folder / "npm").encode()
    found = []
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            if needle in (entry / "cmdline").read_bytes().split(b"\0"):
                found.append(int(entry.name))
        except OSError:
            continue
    return found


def test_node_and_npm_have_to_be_there(tools: Tools, monkeypatch: pytest.MonkeyPatch) -> None:
    check_tools([QWEN, CODEX])
    tools.write("node", "#!/bin/sh\necho v18.19.0\n")
    with pytest.raises(InstallFailed, match=r"node is v18\.19\.0: install Node\.js 20 or newer"):
        check_tools([QWEN])
    check_tools([CODEX])
    monkeypatch.setenv("PATH", str(tools.home))
    with pytest.raises(InstallFailed, match="no `node` on PATH: install Node"):
        check_tools([QWEN])


def test_pip_has_to_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnstop.lab.installing.find_spec", lambda name: None)
    with pytest.raises(InstallFailed, match=r"has no pip: .* -m ensurepip"):
        check_tools([CODEX])


async def test_a_folder_that_cannot_be_made_is_named(
    tools: Tools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TURNSTOP_LAB_HOME", str(tools.folder / "npm" / "below a file"))
    with pytest.raises(InstallFailed, match="below a file: Not a directory"):
        await install(QWEN)


def test_space_is_that_of_the_folder_which_will_be_made(tmp_path: Path) -> None:
    assert free_space(tmp_path / "not" / "yet") == pytest.approx(free_space(tmp_path), rel=0.1)
