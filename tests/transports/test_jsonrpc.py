"""JSON-RPC: two-phase calls, requests both ways, and what a cancelled caller leaves behind."""

import json
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import attrs
import pytest
import trio
from trio.testing import MockClock, memory_stream_pair, wait_all_tasks_blocked

from turnstop._errors import BackendLost, BackendMisbehaved
from turnstop.transports._lines import LineSplitter
from turnstop.transports.backlog import MAX_UNREAD
from turnstop.transports.dialect import JsonRpc
from turnstop.transports.jsonrpc import Connection, Incoming, RpcError, open_connection


@attrs.define
class Far:
    """The other end of the wire."""

    stream: trio.StapledStream[Any, Any]
    buffer: bytes = b""

    async def read(self) -> dict[str, Any]:
        while b"\n" not in self.buffer:
            chunk = await self.stream.receive_some()
            assert chunk
            self.buffer += chunk
        line, _, self.buffer = self.buffer.partition(b"\n")
        frame = json.loads(line)
        assert isinstance(frame, dict)
        return frame

    async def write(self, frame: object) -> None:
        await self.stream.send_all(json.dumps(frame).encode() + b"\n")


def topic_of(incoming: Incoming) -> str | None:
    return incoming.params.get("thread")


@asynccontextmanager
async def wire(**options: Any) -> AsyncGenerator[tuple[Connection, Far, list[Incoming]], None]:
    near, far = memory_stream_pair()
    strays: list[Incoming] = []
    with trio.fail_after(5):  # whoever waits in vain
        async with open_connection(
            near, near, topic_of=topic_of, fallback=strays.append, **options
        ) as connection:
            yield connection, Far(far), strays


async def test_a_call_has_two_phases() -> None:
    async with wire() as (connection, far, _), trio.open_nursery() as nursery:
        said: list[object] = []

        async def call() -> None:
            result = await connection.call("go", {"x": 1}, sent=lambda: said.append("sent"))
            said.append(result)

        nursery.start_soon(call)
        frame = await far.read()
        assert frame == {"jsonrpc": "2.0", "id": 1, "method": "go", "params": {"x": 1}}
        await wait_all_tasks_blocked()
        assert said == ["sent"]
        await far.write({"id": 1, "result": [2]})
        await wait_all_tasks_blocked()
        assert said == ["sent", [2]]


async def test_the_version_member_can_be_left_out() -> None:
    async with wire(dialect=JsonRpc(version=False)) as (connection, far, _):
        connection.notify("hello")
        assert await far.read() == {"method": "hello"}


async def test_replies_may_come_in_any_order() -> None:
    async with wire() as (connection, far, _), trio.open_nursery() as nursery:
        results: dict[str, object] = {}

        async def call(name: str) -> None:
            results[name] = await connection.call(name, {})

        for name in "abc":
            nursery.start_soon(call, name)
        frames = [await far.read() for _ in range(3)]
        for frame in reversed(frames):
            await far.write({"id": frame["id"], "result": frame["method"].upper()})
        await wait_all_tasks_blocked()
        assert results == {"a": "A", "b": "B", "c": "C"}


@pytest.mark.parametrize(
    ("error", "code", "data"),
    [
        ({"code": -32600, "message": "no", "data": [1]}, -32600, [1]),
        ("no", None, None),
        ({"message": "no"}, None, None),
    ],
)
async def test_an_error_answer_is_raised(error: object, code: object, data: object) -> None:
    async with wire() as (connection, far, _), trio.open_nursery() as nursery:
        nursery.start_soon(answer_next, far, {"error": error})
        with pytest.raises(RpcError) as caught:
            await connection.call("go", {})
        assert (caught.value.message, caught.value.code, caught.value.data) == ("no", code, data)
        assert str(caught.value) == f"no ({code})"


async def answer_next(far: Far, answer: dict[str, object]) -> None:
    frame = await far.read()
    await far.write({"id": frame["id"], **answer})


async def test_a_cancelled_call_that_has_not_left_never_does() -> None:
    async with wire() as (connection, far, _):
        with trio.CancelScope() as scope:
            scope.cancel()
            await connection.call("never", {})
        connection.notify("next")
        assert (await far.read())["method"] == "next"


async def test_a_cancelled_call_is_sent_whole_and_its_late_reply_is_dropped() -> None:
    async with wire() as (connection, far, _), trio.open_nursery() as nursery:
        with trio.CancelScope() as scope:
            await cancel_when_read(nursery, scope, far)
            await connection.call("slow", {"text": "x" * 100_000})
        nursery.start_soon(answer_next, far, {"result": "fresh"})
        await far.write({"id": 1, "result": "stale"})
        assert await connection.call("next", {}) == "fresh"


async def cancel_when_read(nursery: trio.Nursery, scope: trio.CancelScope, far: Far) -> None:
    async def read_then_cancel() -> None:
        assert len((await far.read())["params"]["text"]) == 100_000
        scope.cancel()

    nursery.start_soon(read_then_cancel)


async def test_a_cancel_in_the_middle_of_a_frame_leaves_whole_frames_behind() -> None:
    near, far_stream = memory_stream_pair()
    far = Far(far_stream)
    gate = trio.Event()
    whole = near.send_stream.send_all_hook

    async def halfway() -> None:
        await gate.wait()
        if whole is not None:
            await whole()

    near.send_stream.send_all_hook = halfway
    async with open_connection(
        near, near, topic_of=topic_of, fallback=lambda _: None
    ) as connection:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.call, "first", {})
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        connection.notify("second")
        gate.set()
        assert [(await far.read())["method"] for _ in range(2)] == ["first", "second"]


async def test_what_a_cancelled_call_made_can_be_undone_when_its_reply_comes() -> None:
    async with wire() as (connection, far, _):
        undone: list[object] = []

        async def undo(result: object) -> None:
            undone.append(result)

        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await connection.call("make", {}, late=undo)

            nursery.start_soon(call)
            assert (await far.read())["method"] == "make"
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await far.write({"id": 1, "result": "thing"})
        await wait_all_tasks_blocked()
        assert undone == ["thing"]


async def test_what_a_call_made_is_undone_when_its_reply_and_its_cancel_come_together() -> None:
    near, far = memory_stream_pair()
    undone: list[object] = []

    async def undo(result: object) -> None:
        undone.append(result)

    scope = trio.CancelScope()
    async with open_connection(
        near, near, topic_of=topic_of, fallback=lambda _: scope.cancel()
    ) as connection:
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                with scope:
                    await connection.call("make", {}, late=undo)

            nursery.start_soon(call)
            assert (await Far(far).read())["method"] == "make"
            await wait_all_tasks_blocked()
            # One chunk: the reader cancels the caller, and reads the reply before the caller runs.
            await far.send_all(b'{"method":"cancel it"}\n{"id":1,"result":"thing"}\n')
        await wait_all_tasks_blocked()
    assert scope.cancelled_caught
    assert undone == ["thing"]


async def test_a_request_has_left_where_its_refusal_is_here_already() -> None:
    near, far = memory_stream_pair()

    async def refuse() -> None:
        await far.send_all(b'{"id":1,"error":{"code":1,"message":"no"}}\n')
        await wait_all_tasks_blocked()

    near.send_stream.send_all_hook = refuse
    sent: list[str] = []
    async with open_connection(
        near, near, topic_of=topic_of, fallback=lambda _: None
    ) as connection:
        with pytest.raises(RpcError, match="no"):
            await connection.call("interrupt", {}, sent=lambda: sent.append("interrupt"))
    assert sent == ["interrupt"]


async def test_a_cancelled_call_that_nothing_answers_is_forgotten() -> None:
    async with wire() as (connection, far, _):
        for _ in range(3):
            async with trio.open_nursery() as nursery:
                nursery.start_soon(connection.call, "ignored", {})
                await far.read()
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
        assert not connection._calls


async def test_a_call_with_a_limit_says_who_has_not_answered_what(
    autojump_clock: MockClock,
) -> None:
    async with wire(describe=lambda: "echo is running") as (connection, far, _):
        with pytest.raises(BackendLost, match=r"echo is running.* answered go for 2 s"):
            await connection.call_within(2.0, "go", {})
        assert (await far.read())["method"] == "go"
        async with trio.open_nursery() as nursery:
            nursery.start_soon(answer_next, far, {"result": "here"})
            assert await connection.call_within(2.0, "go", {}) == "here"


async def test_a_reply_in_time_is_not_undone() -> None:
    async with wire() as (connection, far, _), trio.open_nursery() as nursery:
        undone: list[object] = []

        async def undo(result: object) -> None:
            undone.append(result)

        nursery.start_soon(answer_next, far, {"result": 1})
        assert await connection.call("make", {}, late=undo) == 1
        await wait_all_tasks_blocked()
        assert undone == []


async def test_a_topic_hears_its_own_in_order_and_strays_fall_back() -> None:
    async with wire() as (connection, far, strays):
        topic = connection.subscribe("a")
        for number in range(3):
            await far.write({"method": "say", "params": {"thread": "a", "n": number}})
        await far.write({"method": "say", "params": {"thread": "b", "n": 9}})
        assert [(await topic.receive()).params["n"] for _ in range(3)] == [0, 1, 2]
        await wait_all_tasks_blocked()
        assert [stray.params["n"] for stray in strays] == [9]


async def test_a_topic_hears_what_it_was_told_to_hear_too_once_and_until_it_is_closed() -> None:
    async with wire() as (connection, far, strays):
        topic = connection.subscribe("a")
        for key in ("a", "b", "b"):
            topic.also(key)
        for key in ("a", "b", "a"):
            await far.write({"method": key, "params": {"thread": key}})
        await wait_all_tasks_blocked()
        assert [(await topic.receive()).method for _ in range(3)] == ["a", "b", "a"]
        topic.close()
        assert strays == []
        for key in ("a", "b"):
            await far.write({"method": key, "params": {"thread": key}})
        await wait_all_tasks_blocked()
        assert [stray.method for stray in strays] == ["a", "b"]
        assert not connection._topics


async def test_what_a_topic_has_not_received_can_be_taken_at_once() -> None:
    async with wire() as (connection, far, strays):
        topic = connection.subscribe("t")
        assert topic.take() == []
        for number in range(3):
            await far.write({"method": str(number), "params": {"thread": "t"}})
        await wait_all_tasks_blocked()
        assert (await topic.receive()).method == "0"
        assert [incoming.method for incoming in topic.take()] == ["1", "2"]
        topic.close()
        assert (topic.take(), strays) == ([], [])


async def test_a_reader_keeps_up_with_a_flood() -> None:
    async with wire() as (connection, far, _), trio.open_nursery() as nursery:
        topic, longest, heard = connection.subscribe("t"), 0, 0
        chunk = b'{"method":"x","params":{"thread":"t"}}\n' * 400

        async def flood() -> None:
            for _ in range(50):
                await far.stream.send_all(chunk)

        nursery.start_soon(flood)
        while heard < 50 * 400:
            await topic.receive()
            longest, heard = max(longest, len(topic._unread)), heard + 1
    assert longest <= 3 * 400


async def test_what_nobody_reads_is_kept_up_to_a_bound_and_others_are_untouched() -> None:
    answered: list[object] = []

    def fallback(incoming: Incoming) -> None:
        answered.append(incoming.number)
        incoming.refuse("nobody reads")

    near, far = memory_stream_pair()
    async with open_connection(near, near, topic_of=topic_of, fallback=fallback) as connection:
        topic, both = connection.subscribe("t"), connection.subscribe("t")
        other = connection.subscribe("o")
        chunk = b'{"method":"x","id":1,"params":{"thread":"t"}}\n'
        await far.send_all(chunk * MAX_UNREAD)
        await wait_all_tasks_blocked()
        assert (len(topic._unread), answered) == (MAX_UNREAD, [])
        assert (await both.receive()).number == 1
        await far.send_all(chunk.replace(b"1", b"2"))
        await far.send_all(b'{"method":"y","params":{"thread":"o"}}\n')
        await wait_all_tasks_blocked()
        assert len(topic._unread) == 0
        # Each request is answered, and that once.
        assert answered == [1] * MAX_UNREAD + [2]
        with pytest.raises(BackendMisbehaved, match="more than 10000 things before any was read"):
            await topic.receive()
        assert len(both._unread) == MAX_UNREAD
        assert (await other.receive()).method == "y"
        topic.close()
        assert len(answered) == MAX_UNREAD + 1


async def test_a_notification_is_told_when_it_has_left() -> None:
    near, far = memory_stream_pair()
    clogged, pump = trio.Event(), near.send_stream.send_all_hook
    assert pump is not None

    async def wait_and_pump() -> None:
        await clogged.wait()
        await pump()

    near.send_stream.send_all_hook = wait_and_pump
    async with open_connection(near, near, topic_of=topic_of, fallback=print) as connection:
        left: list[str] = []

        async def tell(method: str) -> None:
            await connection.tell(method, {"x": 1})
            left.append(method)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell, "first")
            await wait_all_tasks_blocked()
            with trio.CancelScope() as scope:
                scope.cancel()
                await connection.tell("withdrawn")
            assert left == []
            clogged.set()
        assert left == ["first"]
        await connection.tell("second")
        lines = (await far.receive_some()).splitlines()
        assert [json.loads(line) for line in lines] == [
            {"jsonrpc": "2.0", "method": "first", "params": {"x": 1}},
            {"jsonrpc": "2.0", "method": "second"},
        ]


async def test_a_notification_that_cannot_leave_is_told_of_the_loss() -> None:
    near, _ = memory_stream_pair()
    near.send_stream.send_all_hook = trio.sleep_forever
    async with open_connection(near, near, topic_of=topic_of, fallback=print) as connection:
        async with trio.open_nursery() as nursery:
            nursery.start_soon(tell_in_vain, connection)
            await wait_all_tasks_blocked()
            connection.declare_lost(lambda: BackendLost("gone"))
        await tell_in_vain(connection)


async def tell_in_vain(connection: Connection) -> None:
    with pytest.raises(BackendLost, match="gone"):
        await connection.tell("first")


async def test_several_topics_hear_of_one_thing_until_each_is_closed() -> None:
    async with wire() as (connection, far, strays):
        one, two = connection.subscribe("a"), connection.subscribe("a")
        await far.write({"method": "both", "params": {"thread": "a"}})
        assert [(await topic.receive()).method for topic in (one, two)] == ["both", "both"]
        one.close()
        await far.write({"method": "the other", "params": {"thread": "a"}})
        assert (await two.receive()).method == "the other"
        assert strays == []


async def test_a_notification_is_not_answered() -> None:
    async with wire() as (connection, far, _):
        topic = connection.subscribe("a")
        await far.write({"method": "tell", "params": {"thread": "a"}})
        heard = await topic.receive()
        assert not heard.wants_reply
        heard.reply("fine")
        heard.refuse("no")
        connection.notify("next")
        assert (await far.read())["method"] == "next"


class Held:
    """A connection whose first frame is held on its way out until `gate` is set."""

    def __init__(self) -> None:
        self.near, far = memory_stream_pair()
        self.far = Far(far)
        self.gate = trio.Event()
        self.said: list[str] = []
        self.send_on = self.near.send_stream.send_all_hook
        self.near.send_stream.send_all_hook = self._hold

    async def _hold(self) -> None:
        await self.gate.wait()
        if self.send_on is not None:
            await self.send_on()

    @asynccontextmanager
    async def open(self) -> AsyncGenerator[Connection, None]:
        with trio.fail_after(5):
            async with open_connection(
                self.near, self.near, topic_of=topic_of, fallback=lambda _: None
            ) as connection:
                yield connection

    async def call(self, connection: Connection, method: str) -> None:
        try:
            await connection.call(method, {}, sent=lambda: self.said.append(f"sent {method}"))
            self.said.append(f"answered {method}")
        except BackendLost:
            self.said.append(f"lost {method}")


async def test_a_request_is_said_to_be_sent_only_when_it_has_left() -> None:
    held = Held()
    async with held.open() as connection, trio.open_nursery() as nursery:
        nursery.start_soon(held.call, connection, "go")
        await wait_all_tasks_blocked()
        assert held.said == []
        held.gate.set()
        assert (await held.far.read())["method"] == "go"
        await wait_all_tasks_blocked()
        assert held.said == ["sent go"]
        await held.far.write({"id": 1, "result": None})


async def test_what_a_call_made_is_undone_also_where_it_was_cancelled_on_its_way_out() -> None:
    held = Held()
    undone: list[object] = []

    async def undo(result: object) -> None:
        undone.append(result)

    async with held.open() as connection:
        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await connection.call("make", {}, late=undo)

            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        held.gate.set()
        assert (await held.far.read())["method"] == "make"
        await held.far.write({"id": 1, "result": "made"})
        await wait_all_tasks_blocked()
    assert undone == ["made"]


async def test_nothing_leaves_after_the_loss_was_told_and_nothing_is_said_to_have_left() -> None:
    held = Held()
    async with held.open() as connection, trio.open_nursery() as nursery:
        nursery.start_soon(held.call, connection, "first")
        await wait_all_tasks_blocked()
        nursery.start_soon(held.call, connection, "second")
        await wait_all_tasks_blocked()
        connection.declare_lost(lambda: BackendLost("over", gone=True))
        connection.notify("third")
        await wait_all_tasks_blocked()
        assert sorted(held.said) == ["lost first", "lost second"]
        held.gate.set()
        assert (await held.far.read())["method"] == "first"
        await wait_all_tasks_blocked()
        await held.near.send_stream.aclose()
        assert await held.far.stream.receive_some() == b""


async def test_the_first_word_on_a_loss_stands() -> None:
    async with wire() as (connection, _, _):
        topic = connection.subscribe("a")
        connection.declare_lost(lambda: BackendLost("this", gone=True))
        connection.declare_lost(lambda: BackendLost("that", gone=True))
        late = connection.subscribe("b")
        for receive in (topic.receive, late.receive):
            with pytest.raises(BackendLost, match="this"):
                await receive()
        assert connection.broken.is_set()


async def test_what_the_peer_says_after_the_loss_was_told_changes_nothing() -> None:
    near, far = memory_stream_pair()
    async with open_connection(
        near,
        near,
        topic_of=topic_of,
        fallback=lambda _: connection.declare_lost(lambda: BackendLost("over", gone=True)),
    ) as connection:

        async def call() -> None:
            with pytest.raises(BackendLost, match="over"):
                await connection.call("go", {})

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            await Far(far).read()
            # One chunk: the reader tells the loss, and reads on before the caller runs.
            await far.send_all(b'{"method":"bye"}\n{"id":1,"error":{"code":1,"message":"no"}}\n')


async def test_an_answer_is_undone_only_where_something_was_made() -> None:
    """Neither an error nor a call without a way back is anything to undo."""
    async with wire() as (connection, far, _):
        undone: list[object] = []

        async def undo(result: object) -> None:
            undone.append(result)

        for number, answer in ((1, {"error": "no"}), (2, {"result": "made"})):
            async with trio.open_nursery() as nursery:

                async def call() -> None:
                    await connection.call("make", {}, late=undo)

                nursery.start_soon(call)
                await far.read()
                await wait_all_tasks_blocked()
                nursery.cancel_scope.cancel()
            await far.write({"id": number, **answer})
            await wait_all_tasks_blocked()
        assert undone == ["made"]
        assert not connection._calls


@pytest.mark.parametrize("error", [RpcError(1, "no"), BackendLost("over", gone=True)])
async def test_an_undoing_that_fails_harms_nobody(error: Exception) -> None:
    async with wire() as (connection, far, _):

        async def undo(_: object) -> None:
            raise error

        async with trio.open_nursery() as nursery:

            async def call() -> None:
                await connection.call("make", {}, late=undo)

            nursery.start_soon(call)
            await far.read()
            await wait_all_tasks_blocked()
            nursery.cancel_scope.cancel()
        await far.write({"id": 1, "result": "made"})
        await wait_all_tasks_blocked()
        connection.notify("next")
        assert (await far.read())["method"] == "next"


async def test_what_first_broke_a_connection_is_why() -> None:
    async with wire() as (connection, far, _):
        assert connection.why is None
        connection.give_up("it hangs")
        assert connection.broken.is_set()
        connection.give_up("it is gone")
        await far.stream.send_all(b"garbage\n")
        await wait_all_tasks_blocked()
        assert str(connection.why) == "it hangs"


async def test_last_words_are_waited_for_half_a_second_and_no_longer_than_they_come(
    autojump_clock: MockClock,
) -> None:
    async with wire() as (connection, _, _):
        began = trio.current_time()
        await connection.run_down()
        assert trio.current_time() - began == pytest.approx(0.5)
        assert connection.broken.is_set()
    async with wire() as (connection, far, _):
        topic = connection.subscribe("a")
        async with trio.open_nursery() as nursery:
            nursery.start_soon(connection.run_down)
            await trio.sleep(0.2)
            assert not connection.broken.is_set()
            await far.write({"method": "last", "params": {"thread": "a"}})
            await far.stream.send_eof()
            began = trio.current_time()
        assert trio.current_time() == began
        assert (await topic.receive()).method == "last"


async def test_a_request_is_answered_once() -> None:
    async with wire() as (connection, far, _):
        topic = connection.subscribe("a")
        await far.write({"id": "q", "method": "ask", "params": {"thread": "a"}})
        request = await topic.receive()
        assert request.wants_reply
        request.reply({"yes": True})
        request.refuse("twice")
        assert not request.wants_reply
        connection.notify("next")
        assert await far.read() == {"jsonrpc": "2.0", "id": "q", "result": {"yes": True}}
        assert (await far.read())["method"] == "next"


async def test_a_room_that_reads_nothing_holds_nobody() -> None:
    async with wire() as (connection, far, _), trio.open_nursery() as nursery:
        connection.subscribe("idle")
        for number in range(1000):
            await far.write({"method": "say", "params": {"thread": "idle", "n": number}})
        nursery.start_soon(answer_next, far, {"result": "here"})
        assert await connection.call("go", {}) == "here"


async def test_a_closed_topic_hands_its_unread_requests_to_the_fallback() -> None:
    async with wire() as (connection, far, strays):
        topic = connection.subscribe("a")
        await far.write({"id": 7, "method": "ask", "params": {"thread": "a"}})
        await wait_all_tasks_blocked()
        topic.close()
        assert [stray.raw["id"] for stray in strays] == [7]
        with pytest.raises(BackendLost, match="closed"):
            await topic.receive()
        await far.write({"id": 8, "method": "ask", "params": {"thread": "a"}})
        await wait_all_tasks_blocked()
        assert [stray.raw["id"] for stray in strays] == [7, 8]


async def test_a_lost_connection_tells_every_caller_and_topic_with_an_error_of_its_own() -> None:
    async with wire() as (connection, far, _):
        topic = connection.subscribe("a")
        errors: list[BackendLost] = []

        async def call() -> None:
            with pytest.raises(BackendLost, match="over") as caught:
                await connection.call("go", {})
            errors.append(caught.value)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(call)
            nursery.start_soon(call)
            await wait_all_tasks_blocked()
            await far.write({"method": "last", "params": {"thread": "a"}})
            await far.stream.send_eof()
            await connection.broken.wait()
            assert errors == []
            connection.declare_lost(lambda: BackendLost("over", gone=True))
        assert len(set(map(id, errors))) == 2
        assert (await topic.receive()).method == "last"
        with pytest.raises(BackendLost, match="over"):
            await topic.receive()
        with pytest.raises(BackendLost, match="over"):
            await connection.call("more", {})


@pytest.mark.parametrize(
    ("line", "text"),
    [
        (b"Traceback (most recent call last)\n", "no JSON: Traceback"),
        (b"[1, 2]\n", "no JSON-RPC"),
        (b"{}\n", "no JSON-RPC"),
        (b'{"id": [1], "result": 1}\n', "no JSON-RPC"),
        (b'{"id": {}, "method": "ask"}\n', "no JSON-RPC"),
        (b'{"id": null, "error": {"code": -32700}}\n', "no JSON-RPC"),
        (b"[" * 100_000 + b"\n", "no JSON"),
        (b"\xff\xfe\n", "no JSON"),
        (b"x" * 5000 + b"\n", "more than 4096 bytes"),
        (b"x" * 5000, "more than 4096 bytes"),
    ],
)
async def test_garbage_breaks_the_connection_and_says_what_was_wrong(
    line: bytes, text: str
) -> None:
    limit = 4096 if text.startswith("more") else 2**20
    async with wire(max_line=limit) as (connection, far, _):
        await far.stream.send_all(line)
        await connection.broken.wait()
        assert text in str(connection.why)
        assert len(str(connection.why)) < 300


async def test_blank_lines_and_unknown_replies_are_no_garbage() -> None:
    async with wire() as (connection, far, _), trio.open_nursery() as nursery:
        await far.stream.send_all(b"\n  \r\n" + b'{"id": 99, "result": 1}\n')
        nursery.start_soon(answer_next, far, {"result": "fine"})
        assert await connection.call("go", {}) == "fine"


async def test_a_peer_that_closes_its_input_breaks_the_connection(autojump_clock: object) -> None:
    async with wire() as (connection, far, _):
        await far.stream.receive_stream.aclose()
        connection.notify("hello")
        await connection.broken.wait()
        assert "closed its input" in str(connection.why)


async def test_callers_outlive_a_cancellation_around_the_connection() -> None:
    """A floor is cancelled only after the floors above have left."""
    answers = []
    with trio.CancelScope() as outer:
        async with wire() as (connection, far, _), trio.open_nursery() as nursery:
            nursery.start_soon(answer_later, far)
            with trio.CancelScope(shield=True):
                outer.cancel()
                answers.append(await connection.call("stop", {}))
    assert answers == ["stopped"]


async def answer_later(far: Far) -> None:
    with trio.CancelScope(shield=True):
        await answer_next(far, {"result": "stopped"})


def pieces(data: bytes, size: int) -> Iterator[bytes]:
    return (data[at : at + size] for at in range(0, len(data), size))


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
def test_lines_are_the_same_however_they_are_cut(size: int) -> None:
    splitter = LineSplitter(limit=64)
    lines = [
        line for piece in pieces(b"one\n\ntwo three\nfour", size) for line in splitter.feed(piece)
    ]
    assert lines == [b"one", b"", b"two three"]


def test_only_a_line_has_a_limit_and_not_a_chunk_of_many() -> None:
    assert LineSplitter(limit=3).feed(b"one\ntwo\nsix\n") == [b"one", b"two", b"six"]
