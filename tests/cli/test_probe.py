"""The command, on adapters of strangers: honest, lying, and ill-behaved in every way."""

from __future__ import annotations

import ctypes
import importlib.metadata
import json
import os
import shlex
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import trio
from click.testing import CliRunner, Result
from runs import look

from turnstop.cli.main import _COMMANDS, main
from turnstop.cli.probe import session
from turnstop.cli.probe.hearing import Ears, Limits, Probing
from turnstop.testing import OBLIGATIONS
from turnstop.transports import proctable

STRANGER = """
import os, subprocess, sys, threading, time
from contextlib import asynccontextmanager
from functools import partial
import trio
from turnstop.abc import End, How


class Turn:
    session = None

    def __init__(self):
        self.told = trio.Event()

    async def follow(self, emit):
        await self.told.wait()
        return End(How.CANCELLED)

    async def cancel(self, sent):
        sent()
        self.told.set()


class DeafTurn(Turn):
    async def cancel(self, sent):
        sent()


class BlockingTurn(Turn):
    async def cancel(self, sent):
        time.sleep(1000)


class Backend:
    turn = Turn

    async def start(self, request):
        return self.turn()


class Deaf(Backend):
    turn = DeafTurn


class Blocking(Backend):
    turn = BlockingTurn


@asynccontextmanager
async def open_honest():
    yield Backend()
"""
BASIC = ("--only", "stop_ends_the_work")
needs_table = pytest.mark.skipif(not proctable.has_table(), reason="there is no process table")
needs_orphans = pytest.mark.skipif(sys.platform != "linux", reason="orphans are nobody's here")


@pytest.fixture(autouse=True)
def _stranger(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "stranger.py").write_text(STRANGER)
    monkeypatch.chdir(tmp_path)


def write(source: str) -> None:
    Path("theirs.py").write_text("from stranger import *\n" + textwrap.dedent(source))


def probe(*args: str) -> Result:
    return CliRunner().invoke(main, ["probe", *args])


def is_alive(file: str) -> bool:
    return look(int(Path(file).read_text())) is not None


def test_an_honest_stranger_is_green() -> None:
    result = probe("stranger:open_honest")
    assert result.exit_code == 0, result.output
    lines = result.stdout.splitlines()
    assert "  green    A stop ends the work at the far end, and says so only then" in lines
    assert not [line for line in lines if line.startswith("  red")]
    outcomes = ("  green", "  red", "  excused", "  not run")
    assert len([line for line in lines if line.startswith(outcomes)]) == len(OBLIGATIONS)
    assert "levers come with a probe" in lines[-1]
    assert result.stderr == ""


def test_a_cancel_that_does_nothing_is_red_within_five_seconds() -> None:
    took = []
    for _ in range(3):  # others may use the machine too
        began = time.monotonic()
        result = probe("stranger:Deaf")
        took.append(time.monotonic() - began)
        assert result.exit_code == 1, result.output
        assert "the work did not end" in result.stdout
        assert "asked, sent +" in result.stdout
        assert "never ended" in result.stdout
        assert "the work goes on" in result.stdout
        if took[-1] <= 5.0:
            break
    assert min(took) <= 5.0, took


def test_what_was_seen_is_told_of_green_ones_with_v() -> None:
    result = probe("stranger:Backend", *BASIC, "-v")
    assert result.exit_code == 0, result.output
    assert "acknowledged +" in result.stdout
    assert ": stopped; the work ended +" in result.stdout


def test_the_report_as_json_on_stdout_and_the_rows_beside() -> None:
    write("def noisy():\n    print('{')\n    return Deaf()\n")
    result = probe("theirs:noisy", "stranger:Backend", *BASIC, "--json")
    assert result.exit_code == 1, result.output
    theirs, honest = json.loads(result.stdout)["adapters"]
    assert theirs["verdict"] == "red"
    assert theirs["printed"] == "{\n"
    assert "it prints to stdout" in theirs["bad"][0]
    (row,) = theirs["reports"][0]["rows"]
    assert (row["obligation"], row["outcome"]) == ("stop_ends_the_work", "red")
    assert row["observed"][0]["ended"] is None
    assert honest["verdict"] == "green"
    assert "A stop ends the work" in result.stderr


def test_the_report_goes_into_a_file() -> None:
    result = probe("stranger:Backend", *BASIC, "--json", "report.json")
    assert result.exit_code == 0, result.output
    assert json.loads(Path("report.json").read_text())["adapters"][0]["adapter"] == (
        "stranger:Backend"
    )


def test_an_adapter_by_its_name() -> None:
    result = probe("local", *BASIC, "--only", "leftovers_are_swept")
    assert result.exit_code == 0, result.output
    assert "local: 1 green, 1 excused" in result.stdout
    assert "local-thread: 1 green, 1 excused" in result.stdout
    assert "what a function starts and leaves is its program's own" in result.stdout


def test_an_adapter_of_another_package_by_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write("from turnstop.testing.probes.local import LocalProbe\nBOTH = [LocalProbe, LocalProbe]\n")
    info = tmp_path / "theirs-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    adapters = "[turnstop.adapters]\nproved = theirs:open_honest\nbare = theirs:open_honest\n"
    (info / "entry_points.txt").write_text(f"{adapters}[turnstop.probes]\nproved = theirs:BOTH\n")
    monkeypatch.syspath_prepend(tmp_path)
    proved = probe("proved", *BASIC)
    assert proved.stdout.count("local: 1 green") == 2
    bare = probe("bare", *BASIC)
    assert "(no probe" in bare.stdout
    assert bare.exit_code == 0


def test_a_probe_of_ones_own_is_checked_with_its_levers() -> None:
    write(
        """
        from turnstop.testing.probes.local import LocalProbe
        class Mine(LocalProbe):
            name = "mine"
        class Liar(LocalProbe):
            name = "liar"
            unable = {**LocalProbe.unable, "end_seen": "who knows"}
        """
    )
    result = probe("theirs:Mine", "--only", "completion_wins")
    assert "mine (theirs:Mine): 1 green" in result.stdout
    lie = probe("theirs:Liar", *BASIC)
    assert lie.exit_code == 1
    assert "the excuse is not true: who knows" in lie.stdout


def test_a_probe_that_begins_nothing_is_told_once() -> None:
    write(
        """
        from turnstop.testing.probes.local import LocalProbe
        class Away(Backend):
            async def start(self, request):
                raise OSError("nobody there")
        class Never(Backend):
            async def start(self, request):
                await trio.sleep_forever()
        class Lost(LocalProbe):
            @asynccontextmanager
            async def open(self):
                yield Away()
        class Waiting(LocalProbe):
            @asynccontextmanager
            async def open(self):
                yield Never()
        """
    )
    for name, why in (("Lost", "OSError('nobody there')"), ("Waiting", "in vain")):
        result = probe(f"theirs:{name}")
        assert result.exit_code == 1, result.output
        counts = f"1 red, {len(OBLIGATIONS) - 1} not run; not played: no turn begins"
        assert counts in result.stdout.splitlines()[-1]
        assert why in result.stdout


def test_an_excuse_is_given_on_the_command_line_and_has_to_be_true() -> None:
    excuse = ("--unable", "end_seen=nobody tells")
    deaf = probe("stranger:Deaf", *BASIC, *excuse)
    assert deaf.exit_code == 0, deaf.output
    assert "excused" in deaf.stdout
    assert "nobody tells" in deaf.stdout
    honest = probe("stranger:Backend", *BASIC, *excuse)
    assert honest.exit_code == 1
    assert "the excuse is not true" in honest.stdout


BAD = {
    "no module": ("nowhere:open_x", "", "there is no module nowhere"),
    "no attribute": ("theirs:open_hones", "", "did you mean open_honest?"),
    "no adapter": (
        "nonesuch",
        "",
        "there are a2a, acp, claude, codex, copilot, letta, local, opencode, parlant",
    ),
    "a file": ("theirs.py:x", "", "package.module:factory"),
    "import raises": ("theirs:x", "1 / 0", "importing theirs raises ZeroDivisionError"),
    "import exits": ("theirs:x", "sys.exit(3)", "importing theirs ends the interpreter"),
    "import exits hard": ("theirs:x", "os._exit(3)", "importing theirs ends the interpreter"),
    "import needs": ("theirs:x", "import nonesuch_x", "theirs needs nonesuch_x"),
    "no attribute, but a module": ("theirs:tim", "", "theirs has no tim\n"),
    "syntax": ("theirs:x", "x = 3\ny = = 4", "(theirs.py, line 3)"),
    "raises deep": ("theirs:x", "def y():\n    1 / 0\ndef x():\n    y()", "theirs.py:3)"),
    "raises many": (
        "theirs:x",
        "def x():\n    raise ExceptionGroup('many', [OSError('one'), OSError('two')])",
        "x raised OSError: one and OSError: two",
    ),
    "follow is sync": (
        "theirs:X",
        "class Y(Turn):\n    def follow(self, emit):\n        return End(How.CANCELLED)\n"
        "class X(Backend):\n    turn = Y",
        "`async def follow(self, emit)`",
    ),
    "call raises": ("theirs:x", "def x():\n    1 / 0", "x raised ZeroDivisionError"),
    "call exits": ("theirs:x", "def x():\n    sys.exit(3)", "ended the interpreter"),
    "call exits hard": ("theirs:x", "def x():\n    os._exit(3)", "exited with status 3"),
    "takes arguments": ("theirs:x", "def x(url): ...", "cannot be called without arguments"),
    "no start": ("theirs:x", "def x():\n    return 3", "gives 3, which has no start"),
    "generator": ("theirs:x", "async def x():\n    yield Backend()", "@asynccontextmanager"),
    "no remote turn": (
        "theirs:X",
        "class X:\n    async def start(self, request): ...",
        "start returned None, which has no follow",
    ),
    "start is sync": (
        "theirs:X",
        "class X:\n    def start(self, request): ...",
        "async def start",
    ),
    "start refuses": (
        "theirs:X",
        "class X:\n    async def start(self, request):\n        raise OSError('nobody there')",
        "start raised OSError: nobody there",
    ),
    "over by itself": (
        "theirs:X",
        "class X(Backend):\n    async def start(self, request):\n"
        "        turn = Turn(); turn.told.set(); return turn",
        "its work was over by itself",
    ),
    "prints": (
        "theirs:x",
        "def x():\n    print('hello'); os.system('echo there')\n    return Backend()",
        "it prints to stdout, which is the application's",
    ),
    "leaves a task": (
        "theirs:x",
        "async def x():\n"
        "    trio.lowlevel.spawn_system_task(trio.sleep_forever, name='stray')\n"
        "    return Backend()",
        "the task stray was left behind",
    ),
    "leaves a thread of Trio's": (
        "theirs:x",
        "@asynccontextmanager\nasync def x():\n    async with trio.open_nursery() as nursery:\n"
        "        nursery.start_soon(partial(trio.to_thread.run_sync, time.sleep, 5,"
        " abandon_on_cancel=True, thread_name='stray'))\n"
        "        yield Backend()\n        nursery.cancel_scope.cancel()",
        "the thread stray was left behind",
    ),
    "leaves a thread": (
        "theirs:x",
        "def x():\n"
        "    threading.Thread(target=time.sleep, args=(1000,), name='stray').start()\n"
        "    return Backend()",
        "the thread stray was left behind",
    ),
}


@pytest.mark.parametrize(("adapter", "source", "why"), BAD.values(), ids=BAD)
def test_bad_input_is_told_in_one_line(adapter: str, source: str, why: str) -> None:
    write(source)
    result = probe(adapter, *BASIC)
    assert result.exit_code == 2, result.output
    (line,) = [one for one in result.stderr.splitlines(True) if one.startswith("Error: ")]
    assert why in line
    assert "Traceback" not in result.output


@pytest.mark.parametrize(
    ("args", "why"),
    [
        (
            (),
            "name an adapter (a2a, acp, claude, codex, copilot, letta, local, opencode, parlant), "
            "or module:factory",
        ),
        (("local", "--only", "stop_ends_the_wrok"), "did you mean stop_ends_the_work"),
        (("local", "--real"), "local has no probe of a real program"),
        (("stranger:Deaf", "--real"), "--real is for adapters by name"),
        (("local", "--json", "nowhere/x.json"), "cannot write nowhere/x.json"),
        (("stranger:Deaf", "--unable", "end_seen"), "say ABILITY=REASON"),
        (("stranger:Deaf", "--unable", "x=y"), "end_seen"),
        (("--json", "stranger:Deaf"), "that is an adapter; say --json last"),
        (("--json", "local", "codex"), "that is an adapter; say --json last"),
        (("local", "--prompt", "work"), "--prompt is for a factory"),
        (("stranger:Backend", "--only", "garbage_is_bounded"), "not one promise was played"),
    ],
)
def test_bad_options_are_told_in_one_line(args: tuple[str, ...], why: str) -> None:
    result = probe(*args)
    assert result.exit_code == 2, result.output
    assert why in result.stderr.splitlines()[-1]


def test_a_missing_extra_names_the_line_that_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    from turnstop.testing import inventory

    shown = inventory.Probed(("x:y",), needs=("nonesuch_x",), install="pip install 'turnstop[x]'")
    monkeypatch.setattr(inventory, "OWN", {**inventory.OWN, "a2a": shown})
    result = probe("a2a")
    assert result.exit_code == 2
    assert result.stderr == "Error: a2a needs nonesuch_x: pip install 'turnstop[x]'\n"


def test_all_that_is_missing_is_told_by_the_names_that_install_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from turnstop.testing import inventory

    found = {"turnstop.adapters": inventory.find_spec("turnstop.adapters")}
    monkeypatch.setattr(inventory, "find_spec", found.get)
    result = probe("copilot", "letta", "local")
    assert result.exit_code == 2
    assert result.stderr == (
        "Error: copilot needs github-copilot-sdk, trio-asyncio: "
        "python -m pip install 'turnstop[copilot]'; "
        "letta needs letta-client, httpx: python -m pip install 'turnstop[letta]'\n"
    )


def install(name: str, version: str) -> None:
    info = Path(f"{name.replace('-', '_')}-{version}.dist-info")
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")


@pytest.mark.parametrize(
    ("adapter", "module", "sdk", "old"),
    [
        ("copilot", "copilot", "github-copilot-sdk", "1.0.4"),
        ("letta", "letta_client", "letta-client", "1.6.9"),
    ],
)
def test_an_sdk_that_the_adapter_refuses_shows_nothing(
    adapter: str, module: str, sdk: str, old: str
) -> None:
    pytest.importorskip(module)
    install(sdk, old)
    result = probe(adapter, *BASIC)
    assert result.exit_code == 2, result.output
    assert "green" not in result.output
    assert f"{sdk} {old} is here, and " in result.stderr


def test_the_versions_of_what_is_driven_are_in_the_report() -> None:
    pytest.importorskip("letta_client")
    result = probe("letta", "stranger:Backend", *BASIC, "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)["versions"]
    assert found["letta-client"] == importlib.metadata.version("letta-client")
    assert {"turnstop", "trio"} < set(found)


HANGS = {
    "import": ("theirs:x", "time.sleep(1000)", "importing theirs does not come to an end"),
    "call": ("theirs:x", "def x():\n    time.sleep(1000)", "does not come back with a backend"),
    "opening": (
        "theirs:x",
        "@asynccontextmanager\nasync def x():\n    await trio.sleep_forever()\n    yield",
        "does not come back with a backend",
    ),
    "closing": (
        "theirs:x",
        "@asynccontextmanager\nasync def x():\n    yield Backend()\n"
        "    with trio.CancelScope(shield=True):\n        await trio.sleep_forever()",
        "theirs:x does not close",
    ),
}


@needs_table
@pytest.mark.parametrize(("adapter", "source", "why"), HANGS.values(), ids=HANGS)
def test_what_hangs_is_ended(
    adapter: str, source: str, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "LIMITS", Limits(load=2.0, open=2.0))
    write("open('pid', 'w').write(str(os.getpid()))\n" + source)
    result = probe(adapter, *BASIC)
    assert result.exit_code == 2, result.output
    assert why in result.stderr
    assert not is_alive("pid")


@needs_table
def test_a_factory_that_does_not_close_breaks_no_promise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LIMITS", Limits(load=2.0, open=2.0))
    write(HANGS["closing"][1])
    result = probe(
        "theirs:x", *BASIC, "--only", "stop_is_told_once", "--only", "leftovers_are_swept"
    )
    assert result.exit_code == 2, result.output
    assert "theirs:x: 2 green, 1 not run" in result.stdout
    (line,) = [one for one in result.stderr.splitlines() if one.startswith("Error: ")]
    assert "theirs:x does not close" in line


def test_a_probe_says_how_long_its_opening_may_take() -> None:
    class Deaf:
        def begin(self, name: str, bare: bool) -> None: ...
        def row(self, row: object) -> None: ...

    async def main() -> None:
        ears = Ears(Probing("x"), Deaf(), Limits(row=1.0))
        ears.hear({"what": "stage", "name": "check", "of": "x", "opening": 30.0})
        ears.hear({"what": "probe", "name": "x", "bare": False, "obligations": ["one"]})
        assert ears.patience == 31.0
        await trio.lowlevel.checkpoint()

    trio.run(main)


def test_what_starts_a_program_may_take_longer_to_open_than_an_import(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(session, "LIMITS", Limits(load=1.0, open=30.0))
    write("@asynccontextmanager\nasync def x():\n    await trio.sleep(2.0)\n    yield Backend()")
    result = probe("theirs:x", *BASIC)
    assert result.exit_code == 0, result.output


@needs_table
def test_a_cancel_that_shields_itself_is_said_to_do_so() -> None:
    write(
        """
        class Clinging(Turn):
            async def cancel(self, sent):
                open('pid', 'w').write(str(os.getpid()))
                with trio.CancelScope(shield=True):
                    sent()
                    await trio.sleep_forever()
        class X(Backend):
            turn = Clinging
        """
    )
    began = time.monotonic()
    result = probe("theirs:X")
    assert time.monotonic() - began < 20
    assert result.exit_code == 1, result.output
    assert f"theirs:X: 1 red, 5 excused, {len(OBLIGATIONS) - 6} not run" in result.stdout
    assert "the work did not end" in result.stdout
    assert "cancel() of turn first-1 cannot be cancelled" in result.stdout
    assert "blocks" not in result.stdout
    assert not is_alive("pid")


def test_a_cancel_that_blocks_everything_is_red(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session, "LIMITS", Limits(beat=2.0))
    result = probe("stranger:Blocking", *BASIC, "--only", "stop_is_told_once")
    assert result.exit_code == 1, result.output
    assert "stranger:Blocking: 1 red, 1 not run" in result.stdout
    assert "it hangs, and was ended after" in result.stdout
    assert "it blocks the thread of all turns" in result.stdout
    assert "cannot be cancelled" not in result.stdout


@needs_table
@pytest.mark.parametrize("command", [["sleep", "1000"], ["setsid", "sleep", "1000"]])
def test_a_process_that_is_left_behind_is_named_and_ended(command: list[str]) -> None:
    write(
        f"""
        def x():
            child = subprocess.Popen({command})
            open('pid', 'w').write(str(child.pid))
            return Backend()
        """
    )
    result = probe("theirs:x", *BASIC)
    assert result.exit_code == 2, result.output
    assert "sleep 1000 was left behind" in result.stderr
    assert not is_alive("pid")


ESCAPES = {
    "direct child": "subprocess.Popen(['sleep', '1000'], env={}, start_new_session=True)",
    "orphan": "subprocess.run(['setsid', 'sh', '-c', 'sleep 1000 <&- >&- 2>&- & echo $! >pid'],"
    " env={'PATH': os.environ['PATH']})",
    "daemon": """
        if os.fork() == 0:
            os.setsid()
            if os.fork() == 0:
                open('pid', 'w').write(str(os.getpid()))
                for one in range(3):
                    os.close(one)
                os.execvpe('sleep', ['sleep', '1000'], {})
            os._exit(0)
        os.wait()
    """,
}


@needs_orphans
@pytest.mark.parametrize("source", ESCAPES.values(), ids=ESCAPES)
def test_what_leaves_its_session_and_its_environment_is_named_and_ended(source: str) -> None:
    write(
        "def x():\n" + textwrap.indent(textwrap.dedent(source), "    ") + "\n    return Backend()"
    )
    before = {*children_of(os.getpid())}
    result = probe("theirs:x", *BASIC)
    assert result.exit_code == 2, result.output
    (line,) = [one for one in result.stderr.splitlines() if one.startswith("Error: ")]
    pid, _, rest = line.partition("pid ")[2].partition(": ")
    assert rest == "sleep 1000 was left behind"
    if os.path.exists("pid"):
        assert pid == Path("pid").read_text().strip()
    assert not os.path.exists(f"/proc/{pid}")
    assert {*children_of(os.getpid())} == before  # not even as a zombie


@needs_orphans
def test_what_a_daemon_has_started_is_ended_with_it() -> None:
    script = "(sleep 1000 & echo $! >pid; wait) & (sleep 0.1; exit) & exit"
    write(
        f"""
        def x():
            subprocess.run(["setsid", "sh", "-c", {script!r}], env={{"PATH": os.environ["PATH"]}})
            return Backend()
        """
    )
    result = probe("theirs:x", *BASIC)
    assert "sleep 1000 was left behind" in result.stderr
    assert not is_alive("pid")


@needs_orphans
def test_the_command_is_nobodys_new_parent_for_longer_than_it_probes() -> None:
    assert probe("stranger:Backend", *BASIC).exit_code == 0
    libc, found = ctypes.CDLL(None), ctypes.c_int(-1)
    libc.prctl(37, ctypes.byref(found))
    assert found.value == 0


@needs_table
def test_many_that_are_left_behind_are_one_line() -> None:
    write(
        "def x():\n    [subprocess.Popen(['sleep', '1000']) for _ in range(9)]\n"
        "    return Backend()"
    )
    result = probe("theirs:x", *BASIC)
    (line,) = [one for one in result.stderr.splitlines() if one.startswith("Error: ")]
    assert line.endswith("sleep 1000, with 8 processes more, was left behind")


@pytest.fixture
def command() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    """The command in a process of its own, with a factory that waits and says that it does."""
    started: list[subprocess.Popen[str]] = []
    write(
        """
        @asynccontextmanager
        async def x():
            child = subprocess.Popen(["sleep", "1000"], env={}, start_new_session=True)
            open('theirs.pid', 'w').write(str(child.pid))
            os.rename('theirs.pid', 'pid')
            await trio.sleep_forever()
            yield
        """
    )

    def start(*args: str) -> subprocess.Popen[str]:
        script = f"import sys; sys.path.append({session._ROOT!r}); import turnstop.cli.main as m"
        process = subprocess.Popen(
            [sys.executable, "-c", f"{script}; m.main()", "probe", "theirs:x", *args],
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        wait_until(lambda: os.path.exists("pid"))
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()


def wait_until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_report_is_not_emptied_by_a_mistake() -> None:
    Path("report.json").write_text("an old one")
    assert probe("nonesuch", "--json", "report.json").exit_code == 2
    assert Path("report.json").read_text() == "an old one"


@needs_table
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupt_leaves_nothing(
    number: signal.Signals, command: Callable[..., subprocess.Popen[str]]
) -> None:
    process = command()
    process.send_signal(number)
    _, errors = process.communicate(timeout=30)
    assert process.returncode == 130
    assert errors == "interrupted\n"
    assert not is_alive("pid")


@needs_table
def test_an_interrupted_run_keeps_the_old_report(
    command: Callable[..., subprocess.Popen[str]],
) -> None:
    Path("report.json").write_text("an old one")
    before = {*os.listdir()} | {"pid", "__pycache__"}
    process = command("--json", "report.json")
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert Path("report.json").read_text() == "an old one"
    assert {*os.listdir()} | {"pid", "__pycache__"} == before


def test_a_report_takes_the_place_of_the_old_one_with_its_mode() -> None:
    Path("old.json").write_text("an old one")
    Path("old.json").chmod(0o640)
    Path("report.json").symlink_to("old.json")
    assert probe("stranger:Backend", *BASIC, "--json", "report.json").exit_code == 0
    assert Path("report.json").is_symlink()
    assert json.loads(Path("old.json").read_text())["adapters"]
    assert Path("old.json").stat().st_mode & 0o777 == 0o640
    assert not [name for name in os.listdir() if name.startswith(".")]


def test_an_interrupt_in_the_first_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    write("raise KeyboardInterrupt")
    monkeypatch.syspath_prepend(os.getcwd())
    monkeypatch.setitem(_COMMANDS, "probe", "theirs:x")
    result = probe("stranger:Backend")
    assert (result.exit_code, result.output) == (130, "interrupted\n")


@pytest.mark.parametrize(
    ("redirection", "status", "errors"),
    [
        (">/dev/full", 2, "Error: the rows could not be written: No space left on device\n"),
        (">&-", 0, ""),
        ("| true", 0, ""),
    ],
)
def test_nobody_hears_it(redirection: str, status: int, errors: str) -> None:
    if redirection == ">/dev/full" and not os.path.exists("/dev/full"):
        pytest.skip("there is no /dev/full")
    script = f"import sys; sys.path.append({session._ROOT!r}); import turnstop.cli.main as m"
    words = [sys.executable, "-c", f"{script}; m.main()", "probe", "stranger:Backend", *BASIC]
    line = f"({shlex.join(words)}; echo $? >status) {redirection}"
    if redirection != "| true":
        line = f"{shlex.join(words)} {redirection}; echo $? >status"
    done = subprocess.run(["sh", "-c", line], stderr=subprocess.PIPE, text=True, timeout=60)
    assert int(Path("status").read_text()) == status
    assert done.stderr == errors


@needs_table
def test_the_probing_process_does_not_outlive_a_killed_command(
    command: Callable[..., subprocess.Popen[str]],
) -> None:
    process = command()
    (child,) = children_of(process.pid)
    process.kill()
    wait_until(lambda: not os.path.exists(f"/proc/{child}"))
    os.kill(int(Path("pid").read_text()), signal.SIGKILL)


def children_of(pid: int) -> list[int]:
    files = Path(f"/proc/{pid}/task").glob("*/children")
    return [int(one) for file in files for one in file.read_text().split()]
