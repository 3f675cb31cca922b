"""One turn of codex: followed to its own `turn/completed`, interrupted, swept up after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

import trio

from ..._errors import BackendMisbehaved, Silenced
from ...abc import Emit, End, How
from ...transports.jsonrpc import Connection, Incoming, RpcError, Topic
from ...transports.serving import open_serving
from ._asks import cancelled, decline, to_answer, to_ask
from ._commands import Commands, ShellCommand
from ._events import Translator

CodexContent: TypeAlias = str | Sequence[Mapping[str, Any]]
"""What a turn of codex may be asked: a text, or codex's own list of input items."""

_TOO_EARLY = ("no active turn", "expected active turn")
_FIRST_PAUSE = 0.005
_LONGEST_PAUSE = 0.05
_HOW = {"completed": How.COMPLETED, "interrupted": How.CANCELLED, "failed": How.FAILED}


@final
class CodexTurn:
    """A turn that codex has named.

    Attributes:
        session: the id of the thread.
    """

    def __init__(self, rpc: Connection, topic: Topic, thread: str, turn: str, began: int) -> None:
        self.session = thread
        self._rpc = rpc
        self._topic = topic
        self._turn = turn
        self._commands = Commands(rpc, thread, began)
        self._translator = Translator()

    def __repr__(self) -> str:
        return f"<CodexTurn {self._turn} of thread {self.session}>"

    async def follow(self, emit: Emit) -> End:
        """Read the thread until it says that this turn is completed."""
        try:
            async with open_serving() as serving:
                while True:
                    incoming = await self._topic.receive()
                    if incoming.method == "serverRequest/resolved":
                        serving.withdraw(incoming.params.get("requestId"))
                    elif not self._is_mine(incoming):
                        decline(incoming)
                    elif incoming.method == "turn/completed":
                        return self._end(incoming)
                    elif incoming.wants_reply:
                        self._ask(serving.start, emit, incoming)
                    else:
                        self._tell(emit, incoming)
        finally:
            self._topic.close()

    def _is_mine(self, incoming: Incoming) -> bool:
        """Whether it is of this turn, or of no turn in particular."""
        named = incoming.params.get("turn")
        turn = named.get("id") if isinstance(named, dict) else incoming.params.get("turnId")
        return turn is None or turn == self._turn

    def _tell(self, emit: Emit, incoming: Incoming) -> None:
        self._commands.note(incoming)
        for event in self._translator.translate(incoming):
            emit(event)

    def _ask(self, start: Callable[..., None], emit: Emit, incoming: Incoming) -> None:
        ask = to_ask(incoming)
        if ask is None:
            decline(incoming)
            return

        async def serve(request: Incoming) -> None:
            try:
                request.reply(to_answer(request, await emit.ask(ask)))
            except Silenced:
                pass
            finally:
                # Also when codex has withdrawn it, or the turn is over: it takes no harm.
                request.reply(cancelled(request))

        start(incoming, serve)

    def _end(self, incoming: Incoming) -> End:
        turn = incoming.params["turn"]
        how = _HOW.get(turn.get("status"))
        if how is None:
            raise BackendMisbehaved(f"codex completed a turn as {turn.get('status')!r}")
        return End(how, usage=self._translator.usage, detail=_detail(turn.get("error")))

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Interrupt the turn: again and again, until codex takes it."""
        self._translator.stopped = True
        await interrupt(self._rpc, self.session, self._turn, sent)

    async def leftovers(self) -> list[ShellCommand]:
        """The shell commands of this turn that still run."""
        return await self._commands.find()

    async def sweep(self, leftovers: Sequence[object]) -> list[ShellCommand]:
        """End them, and whatever they started since."""
        mine = [command for command in leftovers if isinstance(command, ShellCommand)]
        return await self._commands.end(mine)


def _detail(error: object) -> str:
    if not isinstance(error, dict):
        return ""
    parts = (error.get("message"), error.get("additionalDetails"))
    return ": ".join(str(part) for part in parts if part)


async def interrupt(
    rpc: Connection,
    thread: str,
    turn: str,
    sent: Callable[[], None],
    *,
    tries: int | None = None,
) -> None:
    """Interrupt a turn by its own id; codex refuses until it has really begun it.

    At most one interrupt is ever accepted: codex 0.163 never answers a second one.

    **Cancellation:** an interrupt that has left may still be taken.
    """
    params = {"threadId": thread, "turnId": turn}
    pause = _FIRST_PAUSE
    while tries is None or tries > 0:
        try:
            await rpc.call("turn/interrupt", params, sent=sent)
            return
        except RpcError as error:
            if not error.message.startswith(_TOO_EARLY):
                raise BackendMisbehaved(f"codex refused the interrupt: {error}") from error
        sent = _already_sent
        tries = None if tries is None else tries - 1
        await trio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE)


def _already_sent() -> None:
    """The first request that left is the one to be timed."""
