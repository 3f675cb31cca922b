"""The engine's far side: its levers, and all that it was asked."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Sequence
from typing import Any

from ....adapters.parlant import Library
from ..._probe import Work
from ._events import EventStore, Source
from ._processing import Processing
from ._server import APPLICATION, TASKS, TRACER, RecordingServer, ToolContext, ToolEntry

__all__ = ["RecordingParlant"]


class RecordingParlant:
    """What `open_parlant` is given in Parlant's place: `library` and `prepare`.

    Attributes:
        works: every message that it was sent, refused ones included.
        store: the sessions.
        agents: the ids of those who answer.
        held: not set while messages are not answered.
        refuses: whether messages are refused.
        swallows: whether a processing task ignores that it is cancelled.
        preamble_swallows: whether a preamble does.
        ends_after: seconds that a processing task takes to end once it is cancelled.
        dying: whether everything obeys, for the server ends.
        tools: those that run, by the names of their calls.
        server: the one that was made last.
    """

    def __init__(self) -> None:
        self.works: list[Work] = []
        self.store = EventStore()
        self.agents = set[str]()
        self.held = asyncio.Event()
        self.held.set()
        self.refuses = self.swallows = self.preamble_swallows = self.dying = False
        self.ends_after = 0.0
        self.tools: list[str] = []
        self.server: RecordingServer | None = None
        self._calls = itertools.count(1)
        self._processings: dict[str, Processing] = {}

    @property
    def library(self) -> Library:
        """It, as the adapter knows Parlant."""
        return Library(
            server=self._make_server,
            application=APPLICATION,
            tasks=TASKS,
            tracer=TRACER,
            moderation=str,
            customer=Source.CUSTOMER,
            guest="guest",
        )

    async def prepare(self, server: RecordingServer) -> str:
        """Make an agent with a tool that never ends.

        **Cancellation:** changes nothing.
        """
        server._plugin_server.tools["bake"] = ToolEntry("bake", self._bake)
        self.agents.add("agent-1")
        return "agent-1"

    def begin(self, work: Work) -> Processing:
        """Take a message that is about to be processed."""
        processing = Processing(work, self, self.store)
        self._processings[work.name] = processing
        return processing

    # The levers.

    def refuse_starts(self) -> None:
        """Refuse messages from now on, and those that are held."""
        self.refuses = True
        if not self.held.is_set():
            for work in self.works:
                if not self.store_knows(work):
                    work.began_at = None

    def store_knows(self, work: Work) -> bool:
        """Whether anything was said of it."""
        assert work.session is not None
        said = self.store.all_of(work.session)
        return any(e.trace_id == work.name and e.source is Source.AI_AGENT for e in said)

    def order(self, work: Work, verb: str, text: str = "", seconds: float = 0.0) -> None:
        """Have a work do something: say, finish, fail, or emit (a message behind the latch)."""
        processing = self._processings[work.name]
        if verb == "say" and not work.runs:
            processing.say(text)
        else:
            processing.order(verb, text, seconds)

    def say_end_again(self, work: Work) -> None:
        """Say a work's last words once more, in its session."""
        self._processings[work.name].tell("cancelled")
        self._processings[work.name].tell("ready", stage="completed")

    def call_tool(self, work: Work) -> None:
        """Have a tool called for a work, which does not end."""
        assert self.server is not None
        assert work.session is not None
        call = ToolContext(work.session, f"tool {next(self._calls)} of {work.name}")
        self.server.call_tool("bake", call)

    def babble(self) -> None:
        """Give out what makes no sense as the events of every work, from now on."""
        self.store.garbled.update(work.name for work in self.works if work.runs)

    def let_go(self) -> None:
        """End what goes on in spite of its cancellation; from now on everything obeys at once."""
        self.swallows = self.preamble_swallows = False
        self.ends_after = 0.0
        self.held.set()
        for work in self.works:
            # What nobody has told is not let go of: an application's end is still to tell it.
            if work.runs and work.told_at:
                self._processings[work.name].let_go()

    def die(self) -> None:
        """End the server, and everything that its engine works on."""
        self.dying = True
        self.held.set()
        for work in self.works:
            if work.runs and work.name in self._processings:
                self._processings[work.name].let_go()
        if self.server is not None:
            self.server.ends.set()

    def _make_server(self, **options: Any) -> RecordingServer:
        self.server = RecordingServer(self, **options)
        return self.server

    async def _bake(self, context: ToolContext) -> Sequence[str]:
        self.tools.append(context.call)
        try:
            await asyncio.Event().wait()
        finally:
            self.tools.remove(context.call)
        return ()
