"""Child processes: the order of an end, its bound, and what error texts tell."""

import os
import signal
import sys
from pathlib import Path

import attrs
import pytest
import trio

from turnstop._errors import BackendRefused
from turnstop.transports import proctable
from turnstop.transports.orphans import ProcessAddress
from turnstop.transports.process import ChildProcess, Grace, open_process

SHORT = Grace(close=0.1, terminate=0.1, kill=10.0)
LONG = Grace(close=30.0, terminate=30.0, kill=30.0)

STUBBORN = """
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("up", flush=True)
while True:
    time.sleep(60)
"""


def python(code: str) -> list[str]:
    return [sys.executable, "-c", code]


async def first_line(child: ChildProcess) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        data += await child.stdout.receive_some()
    return data.strip()


async def test_a_closed_stdin_is_all_that_a_polite_child_needs() -> None:
    async with open_process(python("import sys; sys.stdin.read(); sys.exit(5)"), grace=LONG) as c:
        pass
    assert c.returncode == 5


async def test_term_comes_next() -> None:
    code = "import time; print('up', flush=True); time.sleep(300)"
    async with open_process(python(code), grace=Grace(0.05, 30.0, 30.0)) as child:
        await first_line(child)
    assert child.returncode == -signal.SIGTERM


async def test_kill_comes_last_and_bounds_a_child_that_ignores_all() -> None:
    async with open_process(python(STUBBORN), grace=SHORT) as child:
        await first_line(child)
    assert child.returncode == -signal.SIGKILL


async def test_a_killed_child_is_waited_for_also_where_there_is_no_process_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(proctable, "_PROC", tmp_path)
    slow_to_go = f"block = b'x' * 2**28\n{STUBBORN}"
    async with open_process(python(slow_to_go), grace=SHORT) as child:
        await first_line(child)
    assert child.returncode == -signal.SIGKILL


async def test_a_stopped_child_is_killed() -> None:
    async with open_process(python(STUBBORN), grace=SHORT) as child:
        await first_line(child)
        os.kill(child.pid, signal.SIGSTOP)
    assert child.returncode == -signal.SIGKILL


async def test_who_is_hastened_is_not_waited_for_at_its_closed_stdin() -> None:
    code = """
import os, signal, time
times = 0
def told(*_):
    global times
    times += 1
    print("term", flush=True)
    if times == 2:
        os._exit(7)
signal.signal(signal.SIGTERM, told)
print("up", flush=True)
while True:
    time.sleep(60)
"""
    async with open_process(python(code), grace=Grace(600.0, 0.2, 30.0)) as child:
        await first_line(child)
        child.hasten()
        assert await first_line(child) == b"term"
    assert child.returncode == -signal.SIGKILL


async def test_it_is_hastened_also_while_its_closed_stdin_is_waited_for() -> None:
    async with trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            async with open_process(python(STUBBORN), grace=Grace(600.0, 0.1, 30.0)) as child:
                await first_line(child)

                async def hasten() -> None:
                    with pytest.raises(trio.ClosedResourceError):
                        while True:
                            await child.stdin.send_all(b"x")
                            await trio.lowlevel.checkpoint()
                    child.hasten()

                nursery.start_soon(hasten)
                scope.cancel()
    assert child.returncode == -signal.SIGKILL


async def test_an_error_of_the_body_ends_the_child_and_leaves_as_itself() -> None:
    with pytest.raises(KeyError, match="the body"):
        async with open_process(python("import sys; sys.stdin.read()"), grace=LONG) as child:
            raise KeyError("the body")
    assert child.returncode == 0
    assert not child.signalled


async def test_it_says_that_it_runs_and_its_pipes_are_closed_when_it_does_not() -> None:
    async with open_process(python("import sys; sys.stdin.read()"), name="reader") as child:
        assert repr(child) == f"<ChildProcess reader (pid {child.pid}) is still running>"
    with pytest.raises(trio.ClosedResourceError):
        await child.stdin.send_all(b"x")
    with pytest.raises(trio.ClosedResourceError):
        await child.stdout.receive_some()


async def test_the_end_is_not_cut_short_by_a_cancellation() -> None:
    with trio.CancelScope() as scope:
        async with open_process(python(STUBBORN), grace=SHORT) as child:
            await first_line(child)
            scope.cancel()
            await trio.sleep_forever()
    assert child.returncode == -signal.SIGKILL


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
async def test_what_is_left_of_the_session_is_killed() -> None:
    code = (
        "import subprocess, sys\n"
        "p = subprocess.Popen(['sleep', '300'])\n"
        "print(p.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    async with open_process(python(code), grace=LONG) as child:
        left = int(await first_line(child))
        os.kill(left, 0)
    assert child.returncode == 0
    assert await proctable.find_session(child.pid, since=0) == []


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
async def test_who_was_given_the_pid_of_a_dead_child_is_not_its_leftover() -> None:
    async with open_process(python("")) as child:
        await child.wait()
        stranger = await trio.lowlevel.open_process(["sleep", "300"], start_new_session=True)
        try:
            assert await attrs.evolve(child, pid=stranger.pid)._left() == []
        finally:
            stranger.kill()
            await stranger.wait()


async def test_who_was_given_the_pid_of_a_dead_child_is_not_signalled() -> None:
    async with open_process(python("")) as child:
        await child.wait()
        stranger = await trio.lowlevel.open_process(["sleep", "300"], start_new_session=True)
        try:
            mistaken = attrs.evolve(child, pid=stranger.pid)
            mistaken._signal_group(signal.SIGKILL)
            assert not mistaken.signalled
            stranger.terminate()
            assert await stranger.wait() == -signal.SIGTERM
        finally:
            stranger.kill()


async def test_it_has_its_own_session_and_group() -> None:
    code = "import os; print(os.getsid(0), os.getpgid(0), flush=True)"
    async with open_process(python(code)) as child:
        assert (await first_line(child)).split() == [str(child.pid).encode()] * 2


async def test_stderr_is_drained_and_its_tail_kept() -> None:
    code = (
        "import sys\n"
        "sys.stderr.write('x' * 1_000_000 + 'the end')\n"
        "sys.stderr.flush()\n"
        "print('up', flush=True)\n"
        "sys.exit(3)\n"
    )
    async with open_process(python(code), name="talker") as child:
        await first_line(child)
        await child.wait()
    assert len(child.stderr_tail) == 8192
    text = child.describe()
    assert text.startswith(f"talker (pid {child.pid}) exited with status 3; its stderr ends: xxx")
    assert text.endswith("the end")


async def test_a_child_that_still_talks_is_not_blocked_at_a_full_pipe() -> None:
    code = "import sys; sys.stdin.read(); sys.stdout.write('x' * 1_000_000); sys.exit(4)"
    async with open_process(python(code), grace=LONG) as child:
        pass
    assert child.returncode == 4


async def test_the_environment_is_laid_over_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LAID_KEPT", "1")
    monkeypatch.setenv("LAID_GONE", "2")
    code = "import os; print(sorted(k for k in os.environ if k[:5] == 'LAID_'), flush=True)"
    env = {"LAID_GONE": None, "LAID_NEW": "3"}
    async with open_process(python(code), env=env) as child:
        assert await first_line(child) == b"['LAID_KEPT', 'LAID_NEW']"


async def test_a_missing_program_is_one_line_with_the_way_to_install_it() -> None:
    with pytest.raises(BackendRefused) as caught:
        async with open_process(["/no/such/program"], install="pip install thing"):
            raise AssertionError
    text = str(caught.value)
    assert "\n" not in text
    assert text.startswith("cannot run /no/such/program: ")
    assert text.endswith("; install it with: pip install thing")


async def test_a_missing_directory_is_not_blamed_on_the_program(tmp_path: Path) -> None:
    with pytest.raises(BackendRefused, match="no such directory"):
        async with open_process(python(""), cwd=tmp_path / "gone", install="pip install thing"):
            raise AssertionError


async def test_another_process_finds_it_by_its_address() -> None:
    async with open_process(python("import sys; sys.stdin.read()"), grace=LONG) as child:
        found = await ProcessAddress.parse(str(child.address)).find()
        assert [one.pid for one in found] == [child.pid]
        async with open_process(python(""), grace=LONG) as other:
            assert other.address.mark != child.address.mark
    assert await child.address.find() == []
