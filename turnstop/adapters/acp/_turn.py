"""One turn of an agent: a `session/prompt`, followed to its own answer.

The prompt is a call, and its answer is the turn's end. Updates name only their session; what comes
in between a prompt and its answer is the turn's. A cancel is a notification of the session, and is
written behind the prompt: agents lose one that comes before.

`session/prompt`, `session/cancel` and `session/close` of the Agent Client Protocol, version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, TypeAlias

import attrs
import trio
import trio.lowlevel

from ..._errors import BackendError, BackendMisbehaved
from ...abc import Emit, End, How, Proof
from ...events import Other
from ...transports.dialect import shorten
from ...transports.jsonrpc import Incoming, RpcError, Topic
from ...transports.offspring import Look, Offspring
from ...transports.pace import wait_at_most
from ...transports.proctable import TableEntry, find_marked, ticks_now
from ...transports.reading import Reader, Reading
from ...transports.serving import Serving, ask_person, open_serving
from ._agent import Agent
from ._asks import cancelled, decline, to_answer, to_ask
from ._ends import to_detail, to_end, to_last_events
from ._events import Translator
from ._session import AcpSession
from ._signs import Signs

AcpContent: TypeAlias = str | Sequence[Mapping[str, Any]]
"""What a turn may be asked: a text, or the protocol's own list of content blocks."""


class AcpTurn:
    """A prompt of a session.

    Attributes:
        session: what the room's next turn goes on with.
        acknowledges: a cancel is a notification, which nothing answers.
    """

    acknowledges = False

    def __init__(
        self,
        agent: Agent,
        session: AcpSession,
        content: AcpContent,
        reading: Reading,
        look: Look = find_marked,
    ) -> None:
        self.session = session
        self._agent = agent
        self._content = content
        self._reading = reading
        self._look = look
        self._translator = Translator(session.named)
        self._began = ticks_now()
        self._prompt = Reader[None]()
        self._listening = trio.CancelScope()
        self._signs = Signs(counts=session.counts, mode=session.mode)
        self._told = trio.Event()
        self._answered = trio.Event()
        self._answer: object = None
        self._error: Exception | None = None
        self._asked = self._stopping = self._had_open_tools = False

    def __repr__(self) -> str:
        return f"<AcpTurn of session {self.session} of {self._agent.name}>"

    @property
    def address(self) -> str:
        """Where it is, for another process: its agent's process, and its session."""
        tool = self._tool() or self._agent.profile.tool or {}
        place = self._agent.address
        return str(attrs.evolve(place, session=str(self.session), tool=tool, since=self._began))

    async def follow(self, emit: Emit) -> End:
        """Send the prompt, and read until it is answered."""
        topic = self._agent.rpc.subscribe(self.session)
        try:
            # The call of a stop that was asked for meanwhile is made in the scheduler's next pass,
            # and the prompt's task runs in the one after that.
            await trio.lowlevel.checkpoint()
            if self.session.replaces is not None:
                emit(Other("session_replaced", raw={"sessionId": self.session.replaces}))
            self._reading.start(self._prompt, self._ask_agent, name="ACP prompt")
            async with open_serving() as serving:
                await self._listen(topic, serving, emit)
            if not self._asked:
                return End(How.CANCELLED, detail="the prompt was not sent")
            return await self._conclude(emit)
        finally:
            self._prompt.close()
            topic.close()

    async def _ask_agent(self) -> None:
        """Runs beside `follow`, which is not there any more when a stop has been given up."""
        if not self._stopping:
            # From here on a cancel is queued behind it: nothing runs before the call has queued it.
            self._asked = True
            try:
                params = {"sessionId": str(self.session), "prompt": self._blocks()}
                self._answer = await self._agent.rpc.call("session/prompt", params)
            except Exception as error:
                # `follow` raises it. Here it would end every room's turn, and content may be wrong.
                self._error = error
            self._answered.set()
        self._listening.cancel()

    def _blocks(self) -> list[Mapping[str, Any]]:
        content = self._content
        return [{"type": "text", "text": content}] if isinstance(content, str) else list(content)

    async def _listen(self, topic: Topic, serving: Serving, emit: Emit) -> None:
        await self._hear_until(self._listening, topic, serving, emit)
        if self._is_answered_ahead():
            if not self._signs.counts:
                # Claude's agent hands a change of the mode to Claude, behind the interrupt. A
                # request to the model may still begin behind the first one (4 of 24), and none did
                # behind the second (48).
                await self._wait_in_line(2, topic, serving, emit)
            while self._signs.counts and not self._signs.cost:
                self._hear(await topic.receive(), serving, emit)
        if "reads_on" in self._agent.remedies and self._reason() == "max_turn_requests":
            await self._tell()
            await self._wait_in_line(1, topic, serving, emit)

    async def _hear_until(
        self, answered: trio.CancelScope, topic: Topic, serving: Serving, emit: Emit
    ) -> None:
        with answered:
            while True:
                self._hear(await topic.receive(), serving, emit)
        # What has come before the answer is still the turn's.
        for incoming in topic.take():
            self._hear(incoming, serving, emit)

    def _is_answered_ahead(self) -> bool:
        """Whether the agent has answered a cancel, and may go on."""
        faulty = self._stopping and "answers_ahead" in self._agent.remedies
        return faulty and self._reason() == "cancelled"

    def _reason(self) -> object:
        return self._answer.get("stopReason") if isinstance(self._answer, dict) else None

    async def _wait_in_line(self, times: int, topic: Topic, serving: Serving, emit: Emit) -> None:
        """Ask for what changes nothing, and is answered behind a cancel.

        What the agent asks meanwhile is answered as ever: it may wait for that.
        """
        waiting, line = trio.CancelScope(), Reader[None]()

        async def ask() -> None:
            # Where the connection is lost, the topic says so.
            with suppress(BackendError):
                for _ in range(0 if self._signs.mode is None else times):
                    # Not before: the agent may have changed it meanwhile.
                    params = {"sessionId": str(self.session), "modeId": self._signs.mode}
                    with suppress(RpcError):
                        await self._agent.rpc.call("session/set_mode", params)
                waiting.cancel()

        self._reading.start(line, ask, name="ACP request in line")
        try:
            await self._hear_until(waiting, topic, serving, emit)
        finally:
            line.close()

    def _hear(self, incoming: Incoming, serving: Serving, emit: Emit) -> None:
        self._signs.note(incoming, stopping=self._stopping)
        if incoming.wants_reply:
            self._ask(incoming, serving, emit)
        elif (event := self._translator.translate(incoming)) is not None:
            emit(event)

    def _ask(self, incoming: Incoming, serving: Serving, emit: Emit) -> None:
        ask = to_ask(incoming)
        if ask is None:
            decline(incoming)
            return
        self._translator.note_asked(incoming)
        # Some agents take an answer that comes before the cancel for the turn's end, and some end
        # their turn only when they are answered.
        serve = ask_person(emit, ask, to_answer, cancelled, silenced=self._told.wait)
        serving.start(incoming, serve)

    async def _conclude(self, emit: Emit) -> End:
        """Judge the answer. An error of the protocol is an end as well, whatever it says."""
        error, answer = self._error, self._answer
        self._keep_session()
        if error is not None and not isinstance(error, RpcError):
            raise error
        proof = await self._remedy() if self._stopping else Proof.EVENT
        if isinstance(error, RpcError):
            return End(How.FAILED, proof, detail=to_detail(error))
        if not isinstance(answer, dict) or not isinstance(answer.get("stopReason"), str):
            raise BackendMisbehaved(f"{self._agent.name} answered a prompt with {shorten(answer)}")
        for event in to_last_events(answer):
            emit(event)
        # Whether a completion is only how the agent answers a cancel.
        faulty = self._stopping and "empty_completion" in self._agent.remedies
        return to_end(answer, proof, empty=faulty and not self._translator.has_said)

    def _keep_session(self) -> None:
        broken = self._stopping and "broken_history" in self._agent.remedies
        was_open = self._had_open_tools or self._translator.has_open_tools
        self.session = AcpSession(
            self.session,
            self.session.process,
            self._agent,
            named=frozenset(self._translator.named),
            mode=self._signs.mode,
            counts=self._signs.counts,
            is_left=broken and was_open,
        )

    async def _remedy(self) -> Proof:
        """End what the answer to a stopped prompt has not ended; what shows that it is over."""
        if "silent_connection" in self._agent.remedies:
            return await self._end_agent()
        return Proof.EVENT

    async def _end_agent(self) -> Proof:
        """End the process, where it is the room's own. Another is left, and nothing is shown."""
        await trio.lowlevel.checkpoint()
        return Proof.CLAIMED

    async def cancel(self, sent: Callable[[], None]) -> None:
        """Write the cancel behind the prompt; a prompt that was not sent yet never is."""
        self._stopping = True
        self._had_open_tools = self._translator.has_open_tools
        if not self._asked:
            return
        if self._agent.profile.hold:
            await wait_at_most(self._signs.working, self._agent.profile.hold)
        await self._tell()
        self._told.set()
        sent()
        if not self._signs.working.is_set() and "lost_early_cancel" in self._agent.remedies:
            await self._see_obeyed()
        while "missed_cancel" in self._agent.remedies:
            if await wait_at_most(self._answered, self._agent.profile.again):
                return
            await self._tell()

    async def _tell(self) -> None:
        await self._agent.rpc.tell("session/cancel", {"sessionId": str(self.session)})

    async def _see_obeyed(self) -> None:
        """Does nothing where nothing could be done: `OwnAcpTurn` has its own."""

    async def leftovers(self) -> list[TableEntry]:
        """The processes of its tools that are alive."""
        offspring = self._offspring()
        return [] if offspring is None else await offspring.find()

    async def sweep(self, leftovers: Sequence[object]) -> list[TableEntry]:
        """End them, and whatever they started since."""
        found = [one for one in leftovers if isinstance(one, TableEntry)]
        offspring = self._offspring()
        return found if offspring is None else await offspring.end(found)

    def _offspring(self) -> Offspring | None:
        mark, tool = self._agent.address.mark, self._tool()
        return None if tool is None else Offspring(mark, tool, self._began, self._look)

    def _tool(self) -> Mapping[str, str | None] | None:
        """What tells its tools from those of the rooms that share the process; None: nothing."""
        name = self._agent.profile.tool_session
        return None if name is None else {name: str(self.session)}
