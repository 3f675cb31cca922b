"""`open_acp` with small programs that misbehave as programs do: each is run for real."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from acping import LEAVES, answered, end_all, sleepers, write

import turnstop
from turnstop import BackendError, BackendLost, BackendRefused, Ending, Proof, StopBudget
from turnstop.adapters.acp import open_acp
from turnstop.adapters.acp._agent import Launch
from turnstop.adapters.acp._profile import parse_version
from turnstop.adapters.acp._profiles import PROFILES, find_profile
from turnstop.events import Text
from turnstop.transports.proctable import ticks_now

BUDGET = StopBudget(cancel_within=1.0, kill_within=4.0)


@asynccontextmanager
async def rooms_of(folder: Path, patch: str, **more: Any) -> AsyncGenerator[Any, None]:
    with trio.fail_after(60):
        async with open_acp(write(folder, patch), cwd=folder, **more) as backend:
            async with turnstop.open_rooms(backend, budget=BUDGET) as rooms:
                yield rooms


async def stopped_while_another_works(folder: Path, patch: str) -> turnstop.Settlement:
    """Stop a turn that misbehaves; the neighbour's goes on, and the room is usable afterwards."""
    async with rooms_of(folder, patch) as rooms:
        async with rooms.turn("garden", "park") as other:
            await hear(other, "begun")
            async with rooms.turn("kitchen", "now") as turn:
                await hear(turn, "begun")
                await trio.sleep(0.1)
                turn.stop()
            settlement = turn.settlement
            assert settlement is not None
            took = settlement.settled_at - (settlement.asked_at or settlement.settled_at)
            assert took <= BUDGET.cancel_within + 2 * BUDGET.kill_within
            assert other.settlement is None
            await answered(rooms, "kitchen")
        assert other.settlement is not None
        assert other.settlement.ending is Ending.STOPPED
    assert isinstance(settlement, turnstop.Settlement)
    return settlement


async def hear(turn: turnstop.Turn, text: str) -> None:
    async for event in turn:
        if isinstance(event, Text) and text in event.delta:
            return


# At the start.


@pytest.mark.parametrize(
    ("patch", "error", "text"),
    [
        (
            "def on_start(): sys.exit('no such model')",
            BackendLost,
            "exited with status 1; its stderr ends: no such model",
        ),
        (
            "def on_start(): print('Please log in: https://example.org', flush=True)",
            BackendLost,
            "it wrote what is no JSON: Please log in",
        ),
        (
            "def on_hello(number): say(id=number, result={'protocolVersion': 2})",
            BackendRefused,
            "speaks version 2 of the Agent Client Protocol, and turnstop 1",
        ),
        (
            "def on_hello(number): say(id=number, error={'code': -32603, 'message': 'no'})",
            BackendLost,
            "refused the handshake: no",
        ),
        ("def on_hello(number): say(id=number, result=7)", BackendError, "initialize with 7"),
    ],
)
async def test_what_cannot_be_opened_says_why(
    patch: str, error: type[Exception], text: str, tmp_path: Path
) -> None:
    with trio.fail_after(30), pytest.raises(error, match=text):
        async with open_acp(write(tmp_path, patch)):
            pytest.fail("it was opened")


async def test_one_that_says_nothing_is_told_after_its_first_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("turnstop.adapters.acp._agent._GREETED_WITHIN", 0.5)
    patch = f"""
    def on_hello(number): open({str(tmp_path / "starts")!r}, "a").write("x")
    """
    with (
        trio.fail_after(30),
        pytest.raises(BackendRefused, match=r"not answered initialize for 0\.5"),
    ):
        async with open_acp(write(tmp_path, patch)):
            pytest.fail("it was opened")
    assert (tmp_path / "starts").read_text() == "x"


async def test_a_missing_program_says_what_installs_it(tmp_path: Path) -> None:
    with pytest.raises(BackendRefused, match="install it with: npm install -g @google/gemini-cli"):
        async with open_acp([str(tmp_path / "gemini"), "--experimental-acp"]):
            pytest.fail("it was opened")


@pytest.mark.parametrize(("version", "opens"), [("0.60.9", False), ("0.61.0-nightly", True)])
async def test_a_version_below_the_floor_is_refused(
    version: str, opens: bool, tmp_path: Path
) -> None:
    patch = f"""
    def on_hello(number):
        info = {{"name": "gemini-cli", "version": {version!r}}}
        say(id=number, result={{"protocolVersion": 1, "agentInfo": info}})
    """
    if opens:
        async with open_acp(write(tmp_path, patch)):
            return
    text = r"gemini-cli is 0\.60\.9, and turnstop needs 0\.61 or later; install it with: npm"
    with pytest.raises(BackendRefused, match=text):
        async with open_acp(write(tmp_path, patch)):
            pytest.fail("it was opened")


async def test_a_claude_that_tells_no_version_is_not_trusted(tmp_path: Path) -> None:
    with pytest.raises(BackendRefused, match="claude, which does not tell its version, answers"):
        async with open_acp(write(tmp_path, ""), profile="claude"):
            pytest.fail("it was opened")


async def test_an_agent_that_is_too_old_for_its_profile_is_refused(tmp_path: Path) -> None:
    patch = """
    def on_hello(number):
        info = {"name": "@zed-industries/claude-agent-acp", "version": "0.23.1"}
        say(id=number, result={"protocolVersion": 1, "agentInfo": info})
    """
    with pytest.raises(BackendRefused, match=r"0\.23\.1 answers .* npm install -g @agentclient"):
        async with open_acp(write(tmp_path, patch)):
            pytest.fail("it was opened")


PICKY = """
def on_hello(number):
    methods = [{"id": "api-key", "name": "API key"}, {"id": "browser", "name": "Log in"}]
    say(id=number, result={"protocolVersion": 1, "authMethods": methods})
def on_other(frame):
    if frame["method"] == "authenticate" and frame["params"]["methodId"] == "api-key":
        say(id=frame["id"], result={})
    else:
        say(id=frame["id"], error={"code": -32602, "message": "not here"})
"""


async def test_an_agent_may_be_authenticated_by_one_of_its_methods(tmp_path: Path) -> None:
    async with rooms_of(tmp_path, PICKY, authenticate="api-key") as rooms:
        await answered(rooms, "kitchen")
    with pytest.raises(BackendRefused, match=r"by 'browser': not here .*; it takes 'api-key'"):
        async with open_acp(write(tmp_path, PICKY), authenticate="browser"):
            pytest.fail("it was opened")


DEAF_TO_MODES = """
def on_new(number):
    modes = {"currentModeId": "default", "availableModes": [{"id": "default"}, {"id": "plan"}]}
    say(id=number, result={"sessionId": "S", "modes": modes})
"""


async def test_a_mode_that_there_is_not_is_a_refusal_though_the_agent_says_nothing_of_it(
    tmp_path: Path,
) -> None:
    async with rooms_of(tmp_path, DEAF_TO_MODES, mode="plan") as rooms:
        await answered(rooms, "kitchen")
    async with rooms_of(tmp_path, DEAF_TO_MODES, mode="fast") as rooms:
        with pytest.raises(BackendRefused, match="the mode 'fast'; it has default, plan"):
            await answered(rooms, "kitchen")


async def test_the_profile_of_another_agent_is_told(tmp_path: Path) -> None:
    patch = """
    def on_hello(number):
        info = {"name": "qwen-code", "version": "0.15.10"}
        say(id=number, result={"protocolVersion": 1, "agentInfo": info})
    """
    with pytest.raises(BackendRefused, match="is qwen-code, and the profile 'copilot' is another"):
        async with open_acp(write(tmp_path, patch), profile="copilot"):
            pytest.fail("it was opened")
    async with open_acp(write(tmp_path, patch), profile="generic"):
        pass


async def test_a_version_without_end_is_none(tmp_path: Path) -> None:
    patch = """
    def on_hello(number):
        info = {"name": "qwen-code", "version": "9" * 5000}
        say(id=number, result={"protocolVersion": 1, "agentInfo": info})
    """
    async with rooms_of(tmp_path, patch) as rooms:
        await answered(rooms, "kitchen")


def test_a_launch_tells_no_secret() -> None:
    assert "secret" not in repr(Launch(["agent"], find_profile(None, []), env={"KEY": "secret"}))


async def test_a_mode_that_is_not_taken_is_a_refusal(tmp_path: Path) -> None:
    async with rooms_of(tmp_path, PICKY, mode="plan") as rooms:
        with pytest.raises(BackendRefused, match="does not take the mode 'plan': not here"):
            await answered(rooms, "kitchen")


async def test_the_environment_is_the_profiles_and_the_applications(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch = """
    def on_hello(number):
        info = {"name": "@agentclientprotocol/claude-agent-acp", "version": "0.49.0"}
        say(id=number, result={"protocolVersion": 1, "agentInfo": info})
    def on_prompt(text):
        chunk(" ".join(sorted(set(os.environ) & {
            "CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "MINE", "OTHER"
        })) + "!")
    """
    for name in ("CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "OTHER"):
        monkeypatch.setenv(name, "1")
    env = {"MINE": "1", "OTHER": None}
    async with rooms_of(tmp_path, patch, profile="claude", env=env) as rooms:
        async with rooms.turn("kitchen", "now") as turn:
            said = ""
            async for event in turn:
                said += event.delta if isinstance(event, Text) else ""
                if "!" in said:
                    break
    assert said == "begunMINE!"


# While it works.


async def test_a_banner_in_a_turn_ends_its_process_and_no_other(tmp_path: Path) -> None:
    patch = """
    def on_prompt(text):
        if text == "now":
            print("Update available!", flush=True)
    """
    async with rooms_of(tmp_path, patch) as rooms:
        with pytest.raises(BackendLost, match="it wrote what is no JSON: Update available!"):
            async with rooms.turn("kitchen", "now") as turn:
                async for _ in turn:
                    pass
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.gone) == (Ending.FAILED, True)
        await answered(rooms, "kitchen")


async def test_a_line_of_a_megabyte_is_read(tmp_path: Path) -> None:
    patch = """
    def on_prompt(text):
        chunk("x" * 2**20)
    """
    async with rooms_of(tmp_path, patch) as rooms:
        async with rooms.turn("kitchen", "now") as turn:
            await hear(turn, "x" * 2**20)
            turn.stop()
        assert turn.settlement is not None
        assert turn.settlement.ending is Ending.STOPPED


async def test_a_flood_on_stderr_holds_nobody(tmp_path: Path) -> None:
    patch = """
    def on_prompt(text):
        for _ in range(64 if text == "now" else 0):
            sys.stderr.write("warning " * 8192)
    """
    settlement = await stopped_while_another_works(tmp_path, patch)
    assert settlement.ending is Ending.STOPPED


async def test_one_that_closes_its_stdout_and_lives_is_ended(tmp_path: Path) -> None:
    patch = """
    def on_prompt(text):
        if text == "now":
            os.close(1)
            time.sleep(300)
    """
    async with rooms_of(tmp_path, patch) as rooms:
        with pytest.raises(BackendLost, match="it had closed its stdout and went on"):
            async with rooms.turn("kitchen", "now") as turn:
                async for _ in turn:
                    pass
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.gone) == (Ending.FAILED, True)
        await answered(rooms, "kitchen")


async def test_one_that_stops_reading_is_killed(tmp_path: Path) -> None:
    patch = """
    def on_prompt(text):
        if text == "now":
            time.sleep(300)
    """
    settlement = await stopped_while_another_works(tmp_path, patch)
    assert (settlement.ending, settlement.proof) == (Ending.KILLED, Proof.PROCESS)
    # Nobody waits for what it does when its stdin is closed: it is not the time to be polite.
    took = settlement.settled_at - (settlement.asked_at or 0.0)
    assert took < BUDGET.cancel_within + PROFILES["generic"].grace.close


async def test_one_that_ignores_sigterm_is_killed_too(tmp_path: Path) -> None:
    patch = """
    import signal
    def on_prompt(text):
        if text == "now":
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
            while True:
                time.sleep(300)
    """
    settlement = await stopped_while_another_works(tmp_path, patch)
    assert (settlement.ending, settlement.proof) == (Ending.KILLED, Proof.PROCESS)


async def test_one_that_exits_when_it_is_stopped_has_ended_its_turn(tmp_path: Path) -> None:
    patch = """
    def on_prompt(text):
        if text == "now":
            sys.stdin.readline()
            sys.exit(3)
    """
    settlement = await stopped_while_another_works(tmp_path, patch)
    assert (settlement.ending, settlement.proof) == (Ending.STOPPED, Proof.PROCESS)


# What tools leave.


async def test_what_a_tool_has_left_is_ended_and_a_helper_is_not(tmp_path: Path) -> None:
    env = {"TURNSTOP_TEST_FOLDER": str(tmp_path)}
    async with rooms_of(tmp_path, LEAVES, profile="qwen", env=env) as rooms:
        async with rooms.turn("kitchen", "done") as turn:
            async for _ in turn:
                pass
        # What a turn that ended by itself has left is nobody's to end. The table counts in ticks.
        left_at = ticks_now()
        while ticks_now() == left_at:  # noqa: ASYNC110 - a clock gives no event
            await trio.sleep(0.001)
        for word, left in (("helper", 2), ("tool", 2)):
            async with rooms.turn("kitchen", word) as turn:
                await hear(turn, "left")
                turn.stop()
            assert turn.settlement is not None
            assert turn.settlement.survivors == ()
            assert await sleepers(tmp_path) == left
    await end_all(tmp_path)


@pytest.mark.parametrize(("profile", "left"), [("codex", 1), ("qwen", 2)])
async def test_what_is_left_in_a_shared_process_is_known_by_its_session_or_not_at_all(
    profile: str, left: int, tmp_path: Path
) -> None:
    env = {"TURNSTOP_TEST_FOLDER": str(tmp_path)}
    async with rooms_of(tmp_path, LEAVES, profile=profile, env=env, shared=True) as rooms:
        async with rooms.turn("kitchen", "tool") as turn:
            await hear(turn, "left")
            async with rooms.turn("garden", "tool") as other:
                await hear(other, "left")
                assert await sleepers(tmp_path) == 2
                turn.stop()
                with trio.CancelScope(shield=True):
                    while turn.settlement is None:  # noqa: ASYNC110 - the block settles behind it
                        await trio.sleep(0.01)
                    assert await sleepers(tmp_path) == left
    await end_all(tmp_path)


@pytest.mark.parametrize("profile", ["generic", "qwen"])
async def test_what_an_agent_has_begun_in_the_turn_that_was_killed_is_ended(
    profile: str, tmp_path: Path
) -> None:
    """Whatever it is, where nothing tells tools; and nothing of the turn before."""
    env = {"TURNSTOP_TEST_FOLDER": str(tmp_path)}
    async with rooms_of(tmp_path, LEAVES, profile=profile, env=env) as rooms:
        async with rooms.turn("kitchen", "done") as turn:
            async for _ in turn:
                pass
        left_at = ticks_now()
        while ticks_now() == left_at:  # noqa: ASYNC110 - a clock gives no event
            await trio.sleep(0.001)
        async with rooms.turn("kitchen", "tool, killed") as turn:
            await hear(turn, "begun")
            while await sleepers(tmp_path) < 2:  # noqa: ASYNC110 - a table gives no event
                await trio.sleep(0.01)
            turn.stop()
        assert turn.settlement is not None
        assert (turn.settlement.ending, turn.settlement.survivors) == (Ending.KILLED, ())
        assert await sleepers(tmp_path) == 1
    await end_all(tmp_path)


# Profiles.


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["copilot", "--acp"], "copilot"),
        (["node", "/x/node_modules/.bin/gemini", "--experimental-acp"], "gemini"),
        (["/x/codex-acp-linux-x64"], "codex"),
        (["cursor-agent", "acp"], "cursor"),
        (["opencode", "acp"], "opencode"),
        (["/x/gemini-of-mine"], "generic"),
        (["copilot", "gemini"], "generic"),
    ],
)
def test_a_profile_is_known_by_the_command_line_where_that_is_sure(
    command: list[str], name: str
) -> None:
    assert find_profile(None, command).name == name


def test_a_profile_by_its_name_wins_and_an_unknown_one_is_told_which_there_are() -> None:
    assert find_profile("generic", ["copilot"]).name == "generic"
    with pytest.raises(ValueError, match="no profile 'codx'; there are claude, codex, copilot"):
        find_profile("codx", ["copilot"])


async def test_a_line_in_one_text_is_a_mistake() -> None:
    with pytest.raises(ValueError, match=r"list of words: \['gemini', '--experimental-acp'\]"):
        async with open_acp("gemini --experimental-acp"):
            pytest.fail("it was opened")


async def test_an_empty_command_is_a_mistake() -> None:
    with pytest.raises(ValueError, match="command is empty"):
        async with open_acp([]):
            pytest.fail("it was opened")


@pytest.mark.parametrize(
    ("text", "version"), [("1.0.102", (1, 0, 102)), ("v2.6.0-rc1", (2, 6, 0)), ("dev", None)]
)
def test_a_version_is_the_numbers_that_it_begins_with(text: str, version: object) -> None:
    assert parse_version(text) == version
