"""A program on a wire: however it is lost, it is ended first, and callers learn the whole truth."""

import os
import signal
import sys
from contextlib import AbstractAsyncContextManager
from typing import Any

import pytest
import trio
from trio.testing import wait_all_tasks_blocked

from turnstop._errors import BackendLost, BackendMisbehaved, BackendRefused
from turnstop._unwrap import open_private_nursery
from turnstop.transports.dialect import JsonRpc
from turnstop.transports.jsonrpc import Connection, Incoming, Topic
from turnstop.transports.peer import Peer, open_peer
from turnstop.transports.process import Grace

# Answers each call with its own params; a call's method may make it misbehave instead.
PROGRAM = """
import json, os, signal, sys, time
def say(frame):
    print(json.dumps(frame), flush=True)
for line in sys.stdin:
    frame = json.loads(line)
    method = frame["method"]
    if method == "exit":
        print("last words", file=sys.stderr, flush=True)
        sys.exit(9)
    if method == "garbage":
        print("Segmentation fault", flush=True)
    if method == "deafen":
        os.close(1)
        while True: time.sleep(60)
    if method == "hold":
        if os.fork() == 0:
            time.sleep(300)
        os._exit(11)
    if method == "farewell":
        say({"method": "bye", "params": {"thread": "a"}})
        sys.exit(0)
    if method == "silent":
        continue
    say({"id": frame.get("id"), "result": frame.get("params")})
"""


async def hello(rpc: Connection) -> None:
    await rpc.call("hello", {})


def open_echo(code: str = PROGRAM, **options: Any) -> AbstractAsyncContextManager[Peer]:
    def topic_of(incoming: Incoming) -> str | None:
        return incoming.params.get("thread")

    return open_peer(
        [sys.executable, "-c", code],
        topic_of=topic_of,
        fallback=lambda incoming: incoming.refuse("nobody asked"),
        handshake=options.pop("handshake", hello),
        name="echo",
        grace=Grace(0.2, 0.2, 20.0),
        **options,
    )


async def lose(method: str) -> BackendLost:
    """Make the program misbehave by a call; return what that call raised."""
    found: list[BackendLost] = []

    async def call(peer: Peer) -> None:
        with pytest.raises(BackendLost) as caught:
            await peer.rpc.call(method, {})
        found.append(caught.value)

    async with trio.open_nursery() as nursery:
        async with open_echo() as peer:
            nursery.start_soon(call, peer)
            await peer.broken.wait()
            assert not found
    return found[0]


async def test_calls_go_there_and_back() -> None:
    async with open_echo() as peer:
        assert await peer.rpc.call("x", {"a": "\u2028ü" * 50_000}) == {"a": "\u2028ü" * 50_000}


async def test_a_program_is_not_lost_while_it_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnstop.transports.jsonrpc._LAST_WORDS", 0.0)
    async with open_echo() as peer:
        for number in range(3):
            assert await peer.rpc.call("x", {"a": number}) == {"a": number}
        assert not peer.broken.is_set()


async def test_a_line_of_ten_mebibytes_is_a_line() -> None:
    async with open_echo() as peer:
        answer = await peer.rpc.call("x", {"a": "y" * 10 * 2**20})
        assert len(answer["a"]) == 10 * 2**20


async def test_an_exit_is_told_with_status_and_stderr() -> None:
    error = await lose("exit")
    assert error.gone
    assert "exited with status 9; its stderr ends: last words" in str(error)


async def test_garbage_ends_the_program_and_is_quoted() -> None:
    error = await lose("garbage")
    assert error.gone
    assert "it wrote what is no JSON: Segmentation fault" in str(error)
    assert isinstance(error.__cause__, BackendMisbehaved)


async def test_a_closed_stdout_ends_the_program() -> None:
    error = await lose("deafen")
    assert error.gone
    assert "was ended by signal 15" in str(error)
    assert "it had closed its stdout" in str(error)


async def test_an_exit_shows_though_a_grandchild_holds_the_pipes() -> None:
    error = await lose("hold")
    assert error.gone
    assert "exited with status 11" in str(error)


async def test_what_was_said_before_an_exit_is_heard() -> None:
    async with open_echo() as peer:
        topic = peer.rpc.subscribe("a")
        peer.rpc.notify("farewell")
        await peer.broken.wait()
    assert (await topic.receive()).method == "bye"
    with pytest.raises(BackendLost, match="exited with status 0"):
        await topic.receive()


async def test_a_program_that_stops_reading_holds_nobody() -> None:
    async with open_echo() as peer:
        os.kill(peer.process.pid, signal.SIGSTOP)
        big = {"text": "x" * 1_000_000}
        with trio.move_on_after(0.1) as scope:
            await peer.rpc.call("stuck", big)
        assert scope.cancelled_caught
        with trio.move_on_after(0.1) as scope:
            await peer.rpc.call("behind it", {})
        assert scope.cancelled_caught
        os.kill(peer.process.pid, signal.SIGCONT)
        assert await peer.rpc.call("after", {"fine": True}) == {"fine": True}
    assert peer.process.returncode == 0


async def test_who_calls_after_the_block_is_told_how_the_program_ended() -> None:
    async with open_echo() as peer:
        topic = peer.rpc.subscribe("a")
    for late in (topic.receive(), peer.rpc.call("late", {})):
        with pytest.raises(BackendLost, match="exited with status 0") as caught:
            await late
        assert caught.value.gone
        assert "stdout" not in str(caught.value)


async def test_an_error_of_the_body_ends_the_program_and_callers_are_told() -> None:
    with pytest.raises(KeyError, match="the body"):
        async with open_echo() as peer:
            topic = peer.rpc.subscribe("a")
            raise KeyError("the body")
    with pytest.raises(BackendLost, match="exited with status 0"):
        await topic.receive()


@pytest.mark.parametrize(
    ("code", "text"),
    [
        ("import sys; sys.exit('bad config')", "status 1; its stderr ends: bad config"),
        ("print('Usage: echo')", "no JSON: Usage: echo"),
    ],
)
async def test_a_program_that_fails_at_once_is_told_as_lost(code: str, text: str) -> None:
    with pytest.raises(BackendLost, match=text) as caught:
        async with open_echo(code):
            raise AssertionError
    assert caught.value.gone


async def test_a_program_that_never_answers_is_given_up() -> None:
    with pytest.raises(BackendRefused, match=r"still running, and did not answer within 0\.2 s"):
        async with open_echo("import time; time.sleep(300)", patience=0.2):
            raise AssertionError


async def test_one_that_is_hastened_has_not_gone_on_by_itself() -> None:
    async with open_echo() as peer:
        peer.process.hasten()
    assert "was ended by signal 15" in str(peer.loss())
    assert "went on" not in str(peer.loss())


async def test_a_refused_handshake_is_told() -> None:
    code = 'print(\'{"id": 1, "error": {"code": 5, "message": "too old"}}\', flush=True)\n'
    code += "import sys; sys.stdin.read()"
    with pytest.raises(BackendLost, match="refused the handshake: too old"):
        async with open_echo(code):
            raise AssertionError


async def test_a_refusal_that_meets_a_cancellation_is_no_group() -> None:
    answered = trio.Event()

    async def refuse(_: Connection) -> None:
        await answered.wait()
        raise BackendRefused("it wants a login")

    async def run(scope: trio.CancelScope) -> None:
        with scope:
            async with open_echo(handshake=refuse):
                raise AssertionError

    scope = trio.CancelScope()
    with pytest.raises(BackendRefused, match="wants a login"):
        async with open_private_nursery() as nursery:
            nursery.start_soon(run, scope)
            await wait_all_tasks_blocked(0.05)
            answered.set()
            scope.cancel()


async def test_a_handshake_may_fail_by_any_error() -> None:
    async def fall(_: Connection) -> None:
        await trio.lowlevel.checkpoint()
        raise KeyError("unforeseen")

    with pytest.raises(KeyError, match="unforeseen"):
        async with open_echo(handshake=fall):
            raise AssertionError


async def test_a_missing_program_is_told_as_refused() -> None:
    with pytest.raises(BackendRefused, match="pip install echo"):
        async with open_peer(
            ["/no/such/echo"],
            topic_of=lambda _: None,
            fallback=lambda _: None,
            handshake=hello,
            install="pip install echo",
        ):
            raise AssertionError


async def test_a_request_without_a_topic_is_refused_by_the_fallback() -> None:
    code = (
        "import json, sys\n"
        "sys.stdin.readline()\n"
        "print(json.dumps({'id': 1, 'result': 0}), flush=True)\n"
        "print(json.dumps({'id': 'q', 'method': 'ask'}), flush=True)\n"
        "answer = json.loads(sys.stdin.readline())\n"
        "got = {'method': 'got', 'params': {'thread': 'a', 'it': answer}}\n"
        "print(json.dumps(got), flush=True)\n"
        "sys.stdin.read()\n"
    )
    topics: list[Topic] = []

    async def listen(rpc: Connection) -> None:
        topics.append(rpc.subscribe("a"))
        await hello(rpc)

    async with open_echo(code, dialect=JsonRpc(version=False), handshake=listen):
        answer = (await topics[0].receive()).params["it"]
    assert answer["error"]["message"] == "nobody asked"
