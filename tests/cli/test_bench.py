"""The command, on backends that are functions of this program: honest, and lying."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import io
import json
import os
import re
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import IO, Any

import pytest
import trio
import trio.lowlevel
from click.testing import CliRunner, Result

from turnstop import BackendError
from turnstop.abc import Emit, End, How, RemoteTurn, Request
from turnstop.cli.bench import command, run, verdicts
from turnstop.cli.bench.figures import Row, Spread
from turnstop.cli.bench.local import LocalBench, LocalTarget
from turnstop.cli.bench.model import Runner, RunnerName, Target, Work
from turnstop.cli.bench.ours import open_ours
from turnstop.cli.bench.run import Results
from turnstop.cli.bench.table import show
from turnstop.cli.main import main
from turnstop.lab import PINS, Program, programs

SPREADS = {
    "asked_to_sent_ms",
    "sent_to_acked_ms",
    "asked_to_gone_ms",
    "asked_to_ended_ms",
    "asked_to_admitted_ms",
}
COUNTS = {"n", "lost", "lies", "unanswered", "histories", "killed", "unconfirmed", "survivors"}
ROW = {"backend", "moment", "runner", "endings"} | COUNTS


class LiarTurn:
    """It says CANCELLED, and the work goes on."""

    session = None

    def __init__(self, request: Request[str], target: LiarTarget) -> None:
        self.target, self.token = target, request.content
        self.told = trio.Event()
        self.target.begun[self.token] = trio.current_time()

    async def follow(self, emit: Emit) -> End:
        if self.token in self.target.stoppable:
            await self.told.wait()
            return End(How.CANCELLED)
        return End(How.COMPLETED)

    async def cancel(self, sent: Callable[[], None]) -> None:
        sent()
        self.told.set()


class LiarTarget(LocalTarget):
    def __init__(self) -> None:
        super().__init__()
        self.begun: dict[str, float] = {}
        self.stoppable: set[str] = set()

    def prompt(self, moment: Any) -> tuple[str, str]:
        token, content = super().prompt(moment)
        if moment is not None:
            self.stoppable.add(token)
        return token, content

    async def reached(self, token: str, moment: Any) -> None:
        while token not in self.begun:
            await trio.lowlevel.checkpoint()

    def work(self, token: str) -> list[Work]:
        return [Work("a stubborn step", self.begun[token])] if token in self.begun else []

    async def start(self, request: Request[str]) -> RemoteTurn:
        return LiarTurn(request, self)


class LiarBench(LocalBench):
    @asynccontextmanager
    async def open_target(self) -> AsyncIterator[Target]:
        yield LiarTarget()

    @asynccontextmanager
    async def open_runner(self, runner: RunnerName, target: Target) -> AsyncIterator[Runner]:
        assert isinstance(target, LiarTarget)
        async with open_ours(target) as ours:
            yield ours


@pytest.fixture(autouse=True)
def _short_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verdicts, "WATCH", 0.05)


def bench(*args: str) -> Result:
    return CliRunner().invoke(main, ["bench", "local", "-n", "2", *args])


def test_figures_as_json_on_stdout_and_the_table_beside() -> None:
    result = bench("--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {"versions", "machine", "rows"} <= set(found)
    assert found["absent"] == [{"backend": "local", "moment": "permission"}]
    assert found["missing"] == found["failures"] == {}
    assert [row["moment"] for row in found["rows"]] == ["starting", "running", "tool", "finishing"]
    for row in found["rows"]:
        assert set(row) == ROW | SPREADS
        assert row["runner"] == "turnstop"
        assert row["n"] == sum(row["endings"].values()) == 2
        assert {name: row[name] for name in COUNTS} == {**dict.fromkeys(COUNTS, 0), "n": 2}
        for name in SPREADS:
            assert set(row[name]) == {"median", "p95", "max"}
    running = found["rows"][1]
    assert running["endings"] == {"STOPPED": 2}
    assert 0 < running["asked_to_gone_ms"]["median"] <= running["asked_to_ended_ms"]["max"]
    assert running["asked_to_ended_ms"]["max"] <= running["asked_to_admitted_ms"]["max"] < 1000
    assert "running" in result.stderr


def test_the_table_fits_100_columns_when_piped(tmp_path: Path) -> None:
    file = tmp_path / "figures.json"
    result = bench("--moment", "running", "--json", str(file))
    assert result.exit_code == 0
    assert max(map(len, result.stdout.splitlines())) <= 100
    assert "…" not in result.stdout
    assert json.loads(file.read_text())["rows"][0]["moment"] == "running"


def test_no_figure_is_cut_off_when_piped() -> None:
    long = Spread(median=123456.7, p95=223456.7, max=323456.7)
    fields = {**dict.fromkeys(SPREADS, long), **dict.fromkeys(COUNTS, 1000), "endings": {}}
    row = Row(backend="a2a-polling", moment="finishing", runner="raw", **fields)
    out = io.StringIO()
    show(Results(rows=[row]), out)
    assert out.getvalue().count("123457/223457/323457") == 4


def test_a_plot_is_a_picture(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    file = tmp_path / "stops.png"
    assert bench("--moment", "running", "--plot", str(file)).exit_code == 0
    assert file.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (("--json", "nowhere/x.json"), "nowhere/x.json"),
        (("--plot", "x.nonsense"), "png"),
        (("--plot", "nowhere/x.png"), "nowhere"),
        (("--plot", "/proc/x.png"), "cannot write /proc/x.png"),
    ],
)
def test_a_file_that_cannot_be_written_is_said_before_the_run(
    args: tuple[str, ...], why: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("matplotlib")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(command, "run", lambda plan: pytest.fail("it was measured"))
    result = bench(*args)
    assert result.exit_code == 2
    assert why in result.stderr


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("args", [(), ("--json",), ("--json", "/dev/full")])
def test_a_full_disk_is_one_line_and_no_lost_stop(args: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:
        done = _run(*args, stdout=None if "/dev/full" in args else full)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1].startswith("Error: ")
    assert "could not be written: No space left" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("args", [(), ("--json",)])
def test_a_reader_that_has_seen_enough_is_no_lost_stop(args: tuple[str, ...]) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    try:
        done = _run(*args, stdout=theirs)
    finally:
        os.close(theirs)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)


def _run(*args: str, stdout: IO[str] | int | None) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from turnstop.cli.main import main; main()", "bench"]
    return subprocess.run(
        [*command, "local", "--moment", "running", "-n", "1", *args],
        stdout=subprocess.DEVNULL if stdout is None else stdout,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_a_lost_stop_is_exit_status_1_and_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "benches", lambda *_: {"local": LiarBench()})
    result = bench("--moment", "running", "--json")
    assert result.exit_code == 1
    found = json.loads(result.stdout)
    assert found["rows"][0]["lost"] == 2
    assert found["rows"][0]["endings"] == {"STOPPED": 2}
    assert "a stubborn step" in found["losses"][0]


class InterruptedBench(LocalBench):
    @asynccontextmanager
    async def open_runner(self, runner: RunnerName, target: Target) -> AsyncIterator[Runner]:
        raise KeyboardInterrupt
        yield


def test_what_was_measured_before_an_interrupt_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"local": LocalBench(), "codex": InterruptedBench()}
    monkeypatch.setattr(command, "benches", lambda *_: known)
    result = bench("codex", "--moment", "running", "--json")
    assert result.exit_code == 130
    assert result.stderr.splitlines()[-1] == "interrupted"
    found = json.loads(result.stdout)
    assert found["interrupted"] is True
    assert [row["backend"] for row in found["rows"]] == ["local"]


class ShutBench(LocalBench):
    @asynccontextmanager
    async def open_runner(self, runner: RunnerName, target: Target) -> AsyncIterator[Runner]:
        await trio.sleep_forever()
        yield  # type: ignore[misc]


def test_a_backend_that_does_not_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "benches", lambda *_: {"local": ShutBench()})
    monkeypatch.setattr(run, "OPENS_WITHIN", 0.1)
    result = bench()
    assert result.exit_code == 2
    assert "local failed: did not open within 0 s" in result.stdout


def test_a_backend_that_fails_does_not_hold_the_others_up(monkeypatch: pytest.MonkeyPatch) -> None:
    known = {"codex": ShutBench(), "local": LocalBench()}
    known["codex"].name = "codex"
    monkeypatch.setattr(command, "benches", lambda *_: known)
    monkeypatch.setattr(run, "OPENS_WITHIN", 0.1)
    result = bench("codex", "--moment", "running", "--json")
    assert result.exit_code == 2
    found = json.loads(result.stdout)
    assert found["failures"] == {"codex": "did not open within 0 s"}
    assert [row["backend"] for row in found["rows"]] == ["local"]


class Spoilt(LocalTarget):
    """After its first turn, it fails every turn that nobody stops."""

    async def agent(self, work: Any) -> None:
        if work.content != "t1" and self._asked[str(work.content)].word == "answer":
            raise BackendError("spoilt")
        await super().agent(work)


class SpoiltBench(LocalBench):
    @asynccontextmanager
    async def open_target(self) -> AsyncIterator[Target]:
        yield Spoilt()


def test_a_session_that_does_not_answer_any_more_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "benches", lambda *_: {"local": SpoiltBench()})
    result = bench("--moment", "running", "-n", "1", "--json")
    assert result.exit_code == 1
    assert "the next turn ended as FAILED" in json.loads(result.stdout)["losses"][0]


@pytest.mark.parametrize(
    ("module", "args", "install"),
    [
        ("rich", (), "turnstop[bench]"),
        ("matplotlib", ("--plot", "x.png"), "matplotlib"),
        ("uvicorn", ("a2a",), "turnstop[bench]"),
        ("h11", ("codex",), "turnstop[lab]"),
        ("httpx2", ("opencode",), "turnstop[bench]"),
        ("letta_client", ("letta",), "turnstop[lab,letta]"),
    ],
)
def test_what_is_missing_is_one_line_with_the_command(
    module: str, args: tuple[str, ...], install: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = importlib.util.find_spec
    absent: Callable[[str], object] = lambda name: None if name == module else real(name)  # noqa: E731
    monkeypatch.setattr(importlib.util, "find_spec", absent)
    result = bench(*args)
    assert result.exit_code == 2
    assert result.stdout == ""
    (line,) = result.stderr.splitlines()
    assert line.endswith((f"pip install '{install}'", f"pip install {install}"))


def test_an_extra_that_is_really_missing_is_one_line() -> None:
    script = "import sys; sys.modules['h11'] = None; from turnstop.cli.main import main; main()"
    command = [sys.executable, "-c", script, "bench", "codex"]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr == ("Error: the lab needs h11: python -m pip install 'turnstop[lab]'\n")


@pytest.fixture
def empty_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing is installed."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("TURNSTOP_LAB_HOME", str(tmp_path))
    monkeypatch.setattr(importlib.metadata, "distribution", _nothing)
    monkeypatch.setattr(programs, "distribution", _nothing)


def _nothing(name: str) -> object:
    raise importlib.metadata.PackageNotFoundError(name)


@pytest.mark.usefixtures("empty_lab")
def test_what_is_not_installed_is_left_out_and_told_unless_it_was_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(command, "_DEFAULT", ("codex", "acp-gemini", "local"))
    runner = CliRunner()
    result = runner.invoke(main, ["bench", "-n", "1", "--moment", "running", "--json"])
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert {row["backend"] for row in found["rows"]} == {"local"}
    assert found["missing"]["acp-gemini"].endswith("turnstop lab install gemini")
    told = " ".join(result.stderr.split())
    assert "not installed: codex, acp-gemini: turnstop lab install codex gemini" in told
    result = runner.invoke(main, ["bench", "letta"])
    assert result.exit_code == 2
    assert "letta_server.py" in result.stderr or "turnstop[lab,letta]" in result.stderr
    for named in (["codex"], ["--codex", "nowhere"]):
        result = runner.invoke(main, ["bench", *named])
        assert result.exit_code == 2
        assert result.stderr.splitlines()[-1].endswith("turnstop lab install codex")


def test_the_version_of_an_sdk_is_told_beside_that_of_its_program(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("copilot")
    copilot, pin = command.benches()["copilot"], PINS["copilot"]
    monkeypatch.setattr(copilot, "_find", lambda: Program("copilot", ("copilot",), pin))
    assert trio.run(copilot.versions) == {
        "copilot": pin.version,
        "github-copilot-sdk": importlib.metadata.version("github-copilot-sdk"),
    }


def test_help_imports_nothing_heavy() -> None:
    script = (
        "import sys; from turnstop.cli.main import main\n"
        "main(['bench', '--help'], standalone_mode=False); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    assert "--against" in done.stdout
    assert {"rich", "matplotlib", "h11", "httpx", "a2a"} & set(
        done.stdout.splitlines()[-1].split()
    ) == set()


def test_the_group_names_its_commands() -> None:
    assert "bench" in CliRunner().invoke(main, ["--help"]).stdout
    assert CliRunner().invoke(main, ["nonsense"]).exit_code == 2


def test_a_runner_that_a_backend_does_not_have() -> None:
    result = bench("--against", "raw")
    assert result.exit_code == 2
    assert "local has no runner raw" in result.stderr


def test_a_moment_that_a_backend_does_not_have() -> None:
    result = CliRunner().invoke(main, ["bench", "a2a", "--moment", "tool"])
    assert result.exit_code == 2
    assert "a2a has no moment tool" in result.stderr


def test_a_moment_that_one_of_several_lacks_is_shown_as_such() -> None:
    result = bench("--moment", "running", "--moment", "permission")
    assert result.exit_code == 0
    (line,) = (one for one in result.stdout.splitlines() if "permission" in one)
    assert line.split() == ["permission", "n/a"]


def test_what_is_asked_for_twice_is_measured_once() -> None:
    result = bench("local", "--moment", "running", "--moment", "running", "--json")
    assert len(json.loads(result.stdout)["rows"]) == 1


def test_a_backend_is_no_file() -> None:
    result = CliRunner().invoke(main, ["bench", "--json", "local"])
    assert result.exit_code == 2
    assert "--json=FILE" in result.stderr


def test_the_help_names_every_backend_and_tells_of_the_rest() -> None:
    said = CliRunner().invoke(main, ["bench", "--help"]).stdout
    words = re.findall(r"[\w-]+", said)
    for name in command.benches():
        assert name in words
    assert "turnstop lab install" in said
