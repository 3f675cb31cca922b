"""Turns of Claude whose owner is gone: what is announced, and how they are taken up."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import attrs
import pytest
import trio
from reading import follow, request
from trio.testing import MockClock, wait_all_tasks_blocked

from turnstop import BackendLost, BackendRefused
from turnstop.abc import End, How, Proof
from turnstop.adapters.claude._open import _Backend
from turnstop.adapters.claude._orphan import find_home, tell
from turnstop.adapters.claude._program import TOOL
from turnstop.testing.recording.claude import RecordingClaude, open_recorded
from turnstop.transports.orphans import ProcessAddress, attach_process, new_mark
from turnstop.transports.proctable import ticks_now
from turnstop.transports.restart import open_restartings

Entry = Mapping[str, Any]
SESSION, TURN = str(uuid4()), str(uuid4())
LEFT = attrs.evolve(ProcessAddress.ahead(new_mark()), session=SESSION, turn=TURN)
COMPLETED, STOPPED, FAILED = (
    End(how, Proof.PROCESS, detail=detail)
    for how, detail in ((How.COMPLETED, ""), (How.CANCELLED, ""), (How.FAILED, "no model"))
)


def user(number: str = TURN, **more: Any) -> Entry:
    return {"type": "user", "uuid": number, "isSidechain": False, "message": {}, **more}


def assistant(reason: str | None, text: str = "", model: str = "claude", **more: Any) -> Entry:
    content = [{"type": "text", "text": text}]
    message = {"stop_reason": reason, "model": model, "content": content}
    number = str(uuid4())
    return {"type": "assistant", "uuid": number, "isSidechain": False, "message": message, **more}


RESULT = user("r1")
SIDE = {"type": "last-prompt", "leafUuid": TURN}


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    folder = tmp_path / "projects" / "-work"
    folder.mkdir(parents=True)
    return folder / f"{SESSION}.jsonl"


def write(path: Path, *entries: Entry, then: str = "") -> None:
    with path.open("a") as file:
        file.writelines(f"{json.dumps(one)}\n" for one in entries)
        file.write(then)


async def taken_up(home: Path, left: object = LEFT) -> Any:
    async with open_restartings() as processes:
        attach = partial(attach_process, tell=partial(tell, home))
        backend: Any = _Backend(processes, None, attach)  # type: ignore[arg-type]
        return await backend.attach(str(left))


@pytest.mark.parametrize(
    ("entries", "end"),
    [
        ([user(), assistant("end_turn"), SIDE], COMPLETED),
        ([user(), assistant("tool_use"), RESULT, assistant("end_turn")], COMPLETED),
        # One that was cut short is asked to go on.
        ([user(), assistant("max_tokens")], STOPPED),
        # On behalf of the model, where somebody has taken a stopped session up.
        ([user(), user("interrupted"), assistant("stop_sequence", model="<synthetic>")], STOPPED),
        ([user(), assistant("tool_use")], STOPPED),
        ([user(), assistant("pause_turn")], STOPPED),
        ([user(), assistant(None)], STOPPED),
        ([user(), assistant("tool_use"), RESULT], STOPPED),
        # Told to stop while it said something; or on its way out.
        ([user(), assistant("end_turn"), user("interrupted")], STOPPED),
        ([user()], STOPPED),
        # An earlier turn's end is not this one's; nor a sub-agent's.
        ([user("earlier"), assistant("end_turn")], STOPPED),
        ([user("earlier"), assistant("end_turn"), user()], STOPPED),
        ([user(), assistant("tool_use"), assistant("end_turn", isSidechain=True)], STOPPED),
        (
            [user(), assistant("stop_sequence", "no model", "<synthetic>", isApiErrorMessage=True)],
            FAILED,
        ),
        ([], STOPPED),
    ],
)
async def test_the_conversation_says_how_it_ended(
    conversation: Path, tmp_path: Path, entries: list[Entry], end: End
) -> None:
    write(conversation, *entries)
    turn = await taken_up(tmp_path)
    assert await follow(turn) == end
    assert turn.session == SESSION


async def test_of_one_that_is_gone_the_end_is_known_at_once(
    conversation: Path, tmp_path: Path
) -> None:
    write(conversation, user(), assistant("end_turn"))
    turn = await taken_up(tmp_path)
    # Somebody goes on in the conversation before it is followed.
    write(conversation, user("later"))
    assert await follow(turn) == COMPLETED


async def test_a_line_that_was_cut_is_none(conversation: Path, tmp_path: Path) -> None:
    end = assistant("end_turn")
    write(conversation, then="[]\n\n")
    write(conversation, user(), end, then=json.dumps(end)[:40])
    assert await follow(await taken_up(tmp_path)) == COMPLETED


@pytest.mark.parametrize("session", [SESSION, "", "../secret", "*"])
async def test_what_is_not_on_disk_is_not_continued(
    conversation: Path, tmp_path: Path, session: str
) -> None:
    write(conversation.with_name("secret.jsonl"), user(), assistant("end_turn"))
    turn = await taken_up(tmp_path, attrs.evolve(LEFT, session=session))
    assert await follow(turn) == STOPPED
    assert turn.session is None


async def test_another_backends_address_is_refused(tmp_path: Path) -> None:
    with pytest.raises(BackendLost, match="no address of a process"):
        await taken_up(tmp_path, '["ses", "msg"]')


@pytest.mark.parametrize(
    ("env", "home"),
    [
        ({"CLAUDE_CONFIG_DIR": "/conf", "HOME": "/home/it"}, "/conf"),
        ({"CLAUDE_CONFIG_DIR": None, "HOME": "/home/it"}, "/home/it/.claude"),
        ({}, "/ours"),
    ],
)
def test_where_its_conversations_are(
    monkeypatch: pytest.MonkeyPatch, env: Mapping[str, str | None], home: str
) -> None:
    monkeypatch.setenv("CLAUDE_CONFIG_DIR", "/ours")
    assert find_home(env) == Path(home)


@pytest.fixture
def program() -> Iterator[tuple[subprocess.Popen[bytes], ProcessAddress]]:
    mark = new_mark()
    process = subprocess.Popen(["sleep", "300"], env=dict([mark]), start_new_session=True)
    yield process, ProcessAddress.of(process.pid, mark)
    process.kill()
    process.wait()


@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
async def test_it_is_ended_before_its_conversation_is_read(
    conversation: Path, tmp_path: Path, program: tuple[subprocess.Popen[bytes], ProcessAddress]
) -> None:
    process, address = program
    write(conversation, user())
    turn = await taken_up(tmp_path, attrs.evolve(address, session=SESSION, turn=TURN))
    write(conversation, assistant("end_turn"))
    with trio.fail_after(30):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(turn.cancel, lambda: None)
            await trio.to_thread.run_sync(process.wait)
            # It had completed when it was told: the stop has lost the race.
            assert await follow(turn) == COMPLETED


# What is announced.


async def test_a_turn_is_announced_before_its_message_is_written(
    autojump_clock: MockClock,
) -> None:
    far_end = RecordingClaude()
    async with open_recorded(far_end) as backend:
        seen = []

        async def announce(address: str) -> None:
            seen.append((ProcessAddress.parse(address), list(far_end.works)))

        turn: Any = await backend.start(attrs.evolve(request(), announce=announce))
        ((where, works),) = seen
        assert works == []
        assert (where.session, where.turn) == (str(turn.session), turn._message)
        assert where.tool == TOOL
        assert 0 < where.since <= ticks_now()
        assert turn.address == str(where)
        assert getattr(backend, "name", None) == "claude"
        assert getattr(backend, "announces", None) is True


@pytest.mark.parametrize("continued", [True, False])
async def test_one_that_is_stopped_while_it_is_announced_writes_nothing(
    autojump_clock: MockClock, continued: bool
) -> None:
    async def refuse(address: str) -> None:
        raise BackendRefused("stopped")

    far_end = RecordingClaude()
    async with open_recorded(far_end) as backend:
        session = None
        if continued:
            first = await backend.start(request())
            session = first.session
            await trio.sleep(1.0)
            await far_end.finish(far_end.works[0])
            await follow(first)
        works = list(far_end.works)
        with pytest.raises(BackendRefused, match="stopped"):
            await backend.start(attrs.evolve(request(session), announce=refuse))
        assert far_end.works == works
        await wait_all_tasks_blocked()
        # A process that nobody knows of is ended; a room's own is kept.
        assert len(far_end.live) == (1 if continued else 0)
