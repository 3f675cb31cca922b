"""One turn of codex: followed to its own `turn/completed`, interrupted, swept up after."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias, final

import attrs
import trio

from ..._errors import BackendMisbehaved
from ...abc import Emit, End, How
from ...transports.jsonrpc import Connection, Incoming, Topic
from ...transports.orphans import ProcessAddress
from ...transports.proctable import find_marked
from ...transports.serving import ask_person, open_serving
from ._agents import Agents, SubAgent, UnknownAgents
from ._asks import cancelled, decline, to_answer, to_ask
from ._commands import Commands, Look, ShellCommand
from ._events import Translator
from ._interrupt import interrupt
from ._session import CodexSession

CodexContent: TypeAlias = str | Sequence[Mapping[str, Any]]
"""What a turn of codex may be asked: a text, or codex's own list of input items."""

_HOW = {"completed": How.COMPLETED, "interrupted": How.CANCELLED, "failed": How.FAILED}


@final
class CodexTurn:
    """A turn that codex has named.

    Attributes:
        session: the thread; it is known to be idle once the turn was seen to complete.
        address: where another process finds it, should this one die.
    """

    def __init__(
        self,
        rpc: Connection,
        topic: Topic,
        session: CodexSession,
        turn: str,
        where: ProcessAddress,
        look: Look = find_marked,
    ) -> None:
        thread = str(session)
        self.session = session
        self.address = str(attrs.evolve(where, turn=turn))
        self._rpc = rpc
        self._topic = topic
        self._turn = turn
        self._agents = Agents(rpc, thread, turn)
        agents = self._agents.threads
        self._commands = Commands(rpc, thread, where.since, agents, session.calls, look)
        self._translator = Translator()
        self._begun = trio.Event()

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
                        continue
                    self._note(incoming)
                    if not self._is_mine(incoming):
                        decline(incoming)
                        continue
                    if incoming.method == "turn/completed":
                        return self._end(incoming)
                    if incoming.wants_reply:
                        self._ask(serving.start, emit, incoming)
                    else:
                        self._tell(emit, incoming)
        finally:
            self._topic.close()

    def _is_mine(self, incoming: Incoming) -> bool:
        """Whether it is of this turn, or of no turn in particular; or a sub-agent that asks."""
        if self._is_agents(incoming):
            return incoming.wants_reply
        named = incoming.params.get("turn")
        turn = named.get("id") if isinstance(named, dict) else incoming.params.get("turnId")
        return turn is None or turn == self._turn

    def _is_agents(self, incoming: Incoming) -> bool:
        return incoming.params.get("threadId") in self._agents.threads

    def _note(self, incoming: Incoming) -> None:
        """Learn what the turn, or a sub-agent of it, starts."""
        if self._is_agents(incoming) or self._is_mine(incoming):
            self._commands.note(incoming)
            for thread in self._agents.note(incoming):
                self._topic.also(thread)

    def _tell(self, emit: Emit, incoming: Incoming) -> None:
        if incoming.method == "turn/started":
            self._begun.set()
        for event in self._translator.translate(incoming):
            emit(event)

    def _ask(self, start: Callable[..., None], emit: Emit, incoming: Incoming) -> None:
        ask = to_ask(incoming)
        if ask is None:
            decline(incoming)
        else:
            start(incoming, ask_person(emit, ask, to_answer, cancelled))

    def _end(self, incoming: Incoming) -> End:
        named = incoming.params.get("turn")
        turn = named if isinstance(named, dict) else {}
        status = turn.get("status")
        how = _HOW.get(status) if isinstance(status, str) else None
        if how is None:
            raise BackendMisbehaved(f"codex completed a turn as {status!r}")
        if turn.get("id") != self._turn:
            raise BackendMisbehaved("codex completed a turn and did not tell which")
        agents = self.session.agents or bool(self._agents.threads)
        calls = self.session.calls.union(self._commands.calls)
        self.session = CodexSession(self.session, self._rpc, agents=agents, calls=calls)
        return End(how, usage=self._translator.usage, detail=_detail(turn.get("error")))

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Interrupt the turn: again and again, until codex takes it."""
        self._translator.stopped = True
        await interrupt(self._rpc, self.session, self._turn, self._begun, sent)

    async def leftovers(self) -> list[SubAgent | UnknownAgents | ShellCommand]:
        """The sub-agents that still work for this turn, and its shell commands that still run."""
        agents = await self._agents.find()
        return [*agents, *await self._commands.find()]

    async def sweep(
        self, leftovers: Sequence[object]
    ) -> list[SubAgent | UnknownAgents | ShellCommand]:
        """End them, and whatever they started since."""
        # A sub-agent starts commands: it is ended first.
        agents = await self._agents.end(
            [one for one in leftovers if isinstance(one, SubAgent | UnknownAgents)]
        )
        commands = [one for one in leftovers if isinstance(one, ShellCommand)]
        return [*agents, *await self._commands.end(commands)]


def _detail(error: object) -> str:
    if not isinstance(error, dict):
        return ""
    parts = (error.get("message"), error.get("additionalDetails"))
    return ": ".join(str(part) for part in parts if part)
