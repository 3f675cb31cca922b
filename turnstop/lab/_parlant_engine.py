"""The engine's half of `turnstop.lab.parlant`: everything here is asyncio-flavoured.

Annotations are evaluated here: Parlant reads those of a tool.
"""

import asyncio
import os
import socket
import tempfile
import weakref
from collections.abc import Coroutine
from contextvars import ContextVar
from typing import Any, TypeAlias

import attrs

from ._parlant_ledger import Ledger, Order, read_words

# Parlant makes this folder when it is imported, and keeps its log there.
_home = tempfile.TemporaryDirectory(prefix="turnstop-parlant-", ignore_cleanup_errors=True)
os.environ.setdefault("PARLANT_HOME", _home.name)

import parlant.sdk as sdk  # noqa: E402
from parlant.core.engines.alpha.perceived_performance_policy import (  # noqa: E402
    NullPerceivedPerformancePolicy,
)
from parlant.core.loggers import LogLevel  # noqa: E402
from parlant.core.sessions import SessionStore  # noqa: E402
from parlant.core.tracer import Tracer  # noqa: E402

from ._parlant_model import Service  # noqa: E402

__all__ = ["EngineTurn", "options", "prepare"]

Task: TypeAlias = asyncio.Task[Any]

_current: ContextVar["EngineTurn | None"] = ContextVar("turnstop.lab.parlant", default=None)


@attrs.define(eq=False)
class EngineTurn:
    """A turn, from the engine's first word on.

    Attributes:
        token: names it.
        word: what its message asks for, or was ordered later.
        moment: where it waits, if it does.
        session: the session's id.
        context: the engine's own.
        trace_id: what its events carry.
        told_at: when what it works at was cancelled, or the engine said so.
        orders: what those that wait are to do.
    """

    ledger: Ledger
    token: str
    word: str
    moment: str
    session: str
    context: Any
    trace_id: str
    loop: asyncio.AbstractEventLoop
    told_at: float | None = None
    orders: asyncio.Queue[tuple[str, str]] = attrs.field(factory=asyncio.Queue)
    _tasks: weakref.WeakSet[Task] = attrs.field(factory=weakref.WeakSet)
    _left: list[Task] = attrs.field(factory=list)

    def file(self, task: Task) -> None:
        """A task that works for this turn."""
        self._tasks.add(task)
        task.add_done_callback(lambda _: self.ledger.tell())

    def alive(self) -> list[str]:
        """Those that have not ended, by name."""
        return sorted(_name(task) for task in self._tasks if not task.done())

    def order(self, order: Order, text: str) -> None:
        """Have what waits do something. From any thread."""
        self.loop.call_soon_threadsafe(self.orders.put_nowait, (order, text))

    def end_left(self) -> None:
        """End what was left behind by order. From any thread."""
        for task in self._left:
            self.loop.call_soon_threadsafe(task.cancel)

    async def pass_by(self, moment: str) -> None:
        """Wait here until ordered to go on, where the message asked for that."""
        if self.word != "park" or self.moment != moment:
            return
        piece = self.ledger.begin(self.token, moment)
        try:
            await self._obey()
        except asyncio.CancelledError:
            if moment in ("hook", "matching", "generation"):
                self.note_told()
            if self.ledger.shields:
                self._left.append(asyncio.create_task(self._go_on()))
            elif await self._linger(self.ledger.late):
                self.ledger.end(piece)
                return
            self.ledger.end(piece, cut=True)
            raise
        self.ledger.end(piece)

    def note_told(self) -> None:
        """It was seen to be cancelled."""
        if self.told_at is None:
            self.told_at = self.ledger.now()
            self.ledger.tell()

    async def _obey(self) -> None:
        while True:
            order, text = await self.orders.get()
            if order == "say":
                await self._say(text)
            elif order == "leave":
                task = asyncio.create_task(_left_behind(self))
                self._left.append(task)
            else:
                if order != "end":
                    self.word = order
                return

    async def _say(self, text: str) -> None:
        emitter = self.context.session_event_emitter
        await emitter.emit_message_event(trace_id=self.trace_id, data=text)

    async def _go_on(self) -> None:
        """Work that was shielded from a cancellation, and knows of no other."""
        piece = self.ledger.begin(self.token, "shielded")
        await self._linger(None)
        self.ledger.end(piece)

    async def _linger(self, late: float | None) -> bool:
        """Go on after a cancellation for as long as the model says, however often it comes.

        Whether it was ordered to go on meanwhile: then it never was cancelled.
        """
        until = None if late is None else self.loop.time() + late
        while until is None or self.loop.time() < until:
            try:
                async with asyncio.timeout_at(until):
                    await self._obey()
                return True
            except asyncio.CancelledError:
                continue
            except TimeoutError:
                break
        return False


def _name(task: Task) -> str:
    coroutine = task.get_coro()
    return getattr(coroutine, "__qualname__", None) or repr(coroutine)


async def _left_behind(turn: EngineTurn) -> None:
    piece = turn.ledger.begin(turn.token, "left")
    try:
        await turn.loop.create_future()
    finally:
        turn.ledger.end(piece, cut=True)


def options(ledger: Ledger) -> dict[str, Any]:
    """See `ParkedModel.options`."""
    return {
        "port": _free_port(),
        "tool_service_port": _free_port(),
        "nlp_service": lambda _: Service(_pass_by),
        "configure_hooks": _Hooks(ledger).configure,
        "log_level": LogLevel.CRITICAL,
    }


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


async def prepare(ledger: Ledger, server: sdk.Server) -> str:
    """See `ParkedModel.prepare`."""
    ledger.tracer = server.container[Tracer]
    _file_tasks(asyncio.get_running_loop())
    _note_cancellations(ledger, server.container[SessionStore])
    agent = await server.create_agent(
        name="Baker", description="Bakes.", perceived_performance_policy=_Policy()
    )
    await agent.create_guideline("The customer wants a cake", "Bake one", tools=[bake])
    return str(agent.id)


def _file_tasks(loop: asyncio.AbstractEventLoop) -> None:
    """File every task under the turn that it works for, whoever else files it."""
    make = loop.get_task_factory()

    def factory(
        loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **given: Any
    ) -> Task:
        task: Task = (make or _make)(loop, coro, **given)  # type: ignore[assignment]
        context = given.get("context")
        turn = _current.get() if context is None else context.get(_current)
        if turn is not None:
            turn.file(task)
        return task

    loop.set_task_factory(factory)  # type: ignore[arg-type]


def _make(loop: asyncio.AbstractEventLoop, coro: Coroutine[Any, Any, Any], **given: Any) -> Task:
    return asyncio.Task(coro, loop=loop, **given)


def _note_cancellations(ledger: Ledger, store: Any) -> None:
    """Note when the engine says that a turn was cancelled: it has no hook for that."""
    create = store.create_event

    async def create_event(*args: Any, **given: Any) -> Any:
        data = given.get("data")
        turn = _current.get()
        if turn is not None and isinstance(data, dict) and data.get("status") == "cancelled":
            turn.note_told()
        return await create(*args, **given)

    store.create_event = create_event


async def _pass_by(schema: str) -> tuple[str, str]:
    """The model was asked; return the token and the word of the turn that asks."""
    turn = _current.get()
    if turn is None:
        return "", "answer"
    if schema in _MOMENTS:
        await turn.pass_by(_MOMENTS[schema])
    if turn.word == "park" and turn.moment == "tool":
        return turn.token, "tool"
    return turn.token, turn.word


_MOMENTS = {
    "GenericActionableGuidelineMatchesSchema": "matching",
    "CannedResponsePreambleSchema": "preamble",
    "CannedResponseDraftSchema": "generation",
}


class _Policy(NullPerceivedPerformancePolicy):
    """No delays; a preamble for those turns that ask for one."""

    async def is_preamble_required(self, context: Any = None) -> bool:
        """Whether this one does."""
        turn = _current.get()
        if turn is None:
            return False
        return turn.word == "greet" or (turn.word, turn.moment) == ("park", "preamble")


@attrs.frozen
class _Hooks:
    """What the engine calls on its way."""

    _ledger: Ledger

    async def configure(self, hooks: sdk.EngineHooks) -> sdk.EngineHooks:
        hooks.on_acknowledging.append(self._begin)
        hooks.on_preparing.append(self._prepare)
        hooks.on_generating_messages.append(self._fail)
        hooks.on_message_generated.append(self._emit)
        return hooks

    async def _begin(self, context: Any, *_: object) -> sdk.EngineHookResult:
        message = context.interaction.last_customer_message
        token, word, moment = read_words(message.content if message is not None else "")
        root = asyncio.current_task()
        assert root is not None
        turn = EngineTurn(
            self._ledger,
            token,
            word,
            moment,
            str(context.session.id),
            context,
            self._ledger.tracer.trace_id,
            asyncio.get_running_loop(),
        )
        _current.set(turn)
        _by_session[turn.session] = turn
        turn.file(root)
        self._ledger.note_turn(turn)
        piece = self._ledger.begin(token, "process")
        root.add_done_callback(lambda _: self._ledger.end(piece, cut=turn.told_at is not None))
        return sdk.EngineHookResult.CALL_NEXT

    async def _prepare(self, *_: object) -> sdk.EngineHookResult:
        turn = _current.get()
        if turn is not None:
            await turn.pass_by("hook")
        return sdk.EngineHookResult.CALL_NEXT

    async def _fail(self, *_: object) -> sdk.EngineHookResult:
        turn = _current.get()
        if turn is not None and turn.word == "fail":
            raise RuntimeError("no flour left")
        return sdk.EngineHookResult.CALL_NEXT

    async def _emit(self, *_: object) -> sdk.EngineHookResult:
        turn = _current.get()
        if turn is not None:
            await turn.pass_by("emission")
        return sdk.EngineHookResult.CALL_NEXT


@sdk.tool
async def bake(context: sdk.ToolContext) -> sdk.ToolResult:
    """Bake a cake."""
    # It works behind a server of the engine's, in no turn's context.
    turn = _by_session.get(context.session_id)
    if turn is not None:
        task = asyncio.current_task()
        assert task is not None
        turn.file(task)
        await turn.pass_by("tool")
    return sdk.ToolResult(data="a cake")


_by_session: weakref.WeakValueDictionary[str, EngineTurn] = weakref.WeakValueDictionary()
"""The last turn of each session."""
