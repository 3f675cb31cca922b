"""What the lab saw, when, and the conditions that a test waits for. Times are on Trio's clock."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeAlias

import attrs
import trio

from .._service import Service
from ._processes import ToolProcess, find_processes
from .behaviours import Behaviour

Order: TypeAlias = Literal["say", "end", "fail", "tool", "call"]

_SCAN_EVERY = 0.01


@attrs.define(eq=False)
class Connection:
    """A client's connection; `dropped_at` is None while it is open."""

    number: int
    opened_at: float
    dropped_at: float | None = None


@attrs.define(eq=False)
class Exchange:
    """One model request, and what became of it.

    Attributes:
        number: counts the lab's requests from 1.
        token: of the turn that asked; empty where the prompt carried none.
        behaviour: what the lab does with it.
        parked_at: when it fell silent, or began to drip.
        ending_at: when its last frames began to be sent, where it was ordered to end.
        finished_at: when the response was sent in full.
        dropped_at: when the client was seen to have gone before that.
        body: the request as it came, JSON.
        side: whether it is beside the turn, although it quotes its prompt: a title, a summary. It
            is answered at once, whatever the prompt says, and is no request of the turn.
        released: set when it is to answer to its end.
        orders: what it is yet to do where it is parked.
        ordered: set when there is more of it to do.
    """

    number: int
    token: str
    wire: str
    behaviour: Behaviour
    connection: Connection
    arrived_at: float
    body: bytes = attrs.field(repr=False)
    side: bool = False
    parked_at: float | None = None
    ending_at: float | None = None
    finished_at: float | None = None
    dropped_at: float | None = None
    released: trio.Event = attrs.field(factory=trio.Event, repr=False)
    orders: deque[tuple[Order, str, Mapping[str, Any]]] = attrs.field(factory=deque, repr=False)
    ordered: trio.Event = attrs.field(factory=trio.Event, repr=False)

    def json(self) -> Any:
        """The request's body."""
        return json.loads(self.body)

    @property
    def ended_at(self) -> float | None:
        """When it was over, either way; None while it is open."""
        return self.finished_at if self.dropped_at is None else self.dropped_at


@attrs.frozen
class Fault:
    """A request whose history is not valid: which one, of which turn, and why."""

    request: int
    token: str
    text: str


class Lab:
    """A running model endpoint. Made by `open_lab`.

    Attributes:
        url: `http://127.0.0.1:PORT`; most programs want it with `/v1`.
        exchanges: every model request so far, oldest first.
        connections: every connection so far, oldest first.
        faults: what was wrong with the requests' histories.
    """

    def __init__(self, url: str, service: Service) -> None:
        self.url = url
        self.exchanges: list[Exchange] = []
        self.connections: list[Connection] = []
        self.faults: list[Fault] = []
        self._service = service
        self._processes: dict[str, dict[tuple[int, int], ToolProcess]] = {}
        self._failed: set[str] = set()
        self._changed = trio.Event()

    def __repr__(self) -> str:
        still = sum(exchange.ended_at is None for exchange in self.exchanges)
        return f"<Lab {self.url}: {len(self.exchanges)} requests, {still} open>"

    def requests(self, token: str) -> list[Exchange]:
        """The turn's model requests, oldest first."""
        return [one for one in self.exchanges if one.token == token and not one.side]

    def side_requests(self, token: str) -> list[Exchange]:
        """Those that quote the turn's prompt and are none of its own, oldest first."""
        quoted = f"[turn:{token}]".encode()
        return [one for one in self.exchanges if one.side and quoted in one.body]

    def open_requests(self, token: str) -> list[Exchange]:
        """Those whose client still waits for the rest."""
        return [exchange for exchange in self.requests(token) if exchange.ended_at is None]

    def processes(self, token: str) -> list[ToolProcess]:
        """The turn's living tool processes. Looks, and from then on watches, each found one."""
        known = self._processes.setdefault(token, {})
        for process in find_processes(token, trio.current_time()):
            if (process.pid, process.started) not in known:
                known[process.pid, process.started] = process
                self._service.start_soon(self._watch, process)
        return [process for process in known.values() if process.gone_at is None]

    def seen_processes(self, token: str) -> list[ToolProcess]:
        """All tool processes of the turn that were ever found, the ended ones too."""
        return list(self._processes.get(token, {}).values())

    def alive(self, token: str) -> list[str]:
        """The turn's work that goes on now, by name: nothing when it is over."""
        requests = [f"model request {one.number}" for one in self.open_requests(token)]
        return requests + [f"process {one}" for one in self.processes(token)]

    def gone_at(self, token: str) -> float | None:
        """When the last work of the turn seen so far ended; None while some lives, or none came."""
        ends = [exchange.ended_at for exchange in self.requests(token)]
        ends += [process.gone_at for process in self.seen_processes(token)]
        if not ends or None in ends:
            return None
        return max(end for end in ends if end is not None)

    def release(self, token: str) -> None:
        """Let the turn's parked requests answer to their end."""
        for exchange in self.open_requests(token):
            exchange.released.set()
            exchange.ordered.set()

    def order(
        self, token: str, order: Order, text: str = "", arguments: Mapping[str, Any] | None = None
    ) -> None:
        """Have the turn's requests that are parked do something more.

        Args:
            token: the turn's.
            order: `say` another piece, `end` without another word, `fail`, run a command by the
                shell `tool`, or `call` any tool; after its result the next request does as the
                prompt says.
            text: the piece, the command, or the tool's name.
            arguments: what the tool is called with; None: nothing.
        """
        for exchange in self.open_requests(token):
            exchange.orders.append((order, text, arguments or {}))
            exchange.ordered.set()

    async def until(self, condition: Callable[[], object]) -> None:
        """Return when the condition holds, looking whenever something was recorded.

        **Cancellation:** leaves nothing.
        """
        await trio.lowlevel.checkpoint()
        while not condition():
            await self._changed.wait()

    async def arrived(self, token: str) -> Exchange:
        """Wait for the turn's first model request.

        **Cancellation:** leaves nothing.
        """
        await self.until(lambda: self.requests(token))
        return self.requests(token)[0]

    async def parked(self, token: str) -> Exchange:
        """Wait until a model request of the turn is open and parked (or drips).

        **Cancellation:** leaves nothing.
        """

        def found() -> list[Exchange]:
            return [one for one in self.open_requests(token) if one.parked_at is not None]

        await self.until(found)
        return found()[0]

    async def tool_running(self, token: str, count: int = 1) -> list[ToolProcess]:
        """Wait until this many processes of the turn's shell tool run.

        **Cancellation:** leaves nothing.
        """
        # Nothing tells of a process that another one starts: the table has to be read.
        while len(found := self.processes(token)) < count:  # noqa: ASYNC110
            await trio.sleep(_SCAN_EVERY)
        return found

    async def gone(self, token: str) -> None:
        """Wait until no request and no process of the turn is left.

        **Cancellation:** leaves nothing.
        """
        await self.until(lambda: not self.open_requests(token))
        while self.processes(token):
            await self.until(lambda: self.gone_at(token) is not None)

    async def _watch(self, process: ToolProcess) -> None:
        await process.watch()
        self._tell()

    def _tell(self) -> None:
        self._changed.set()
        self._changed = trio.Event()

    def _opened(self) -> Connection:
        connection = Connection(len(self.connections) + 1, trio.current_time())
        self.connections.append(connection)
        self._tell()
        return connection

    def _dropped(self, connection: Connection) -> None:
        connection.dropped_at = trio.current_time()
        self._tell()

    def _asked(self, exchange: Exchange, faults: tuple[str, ...]) -> None:
        self.exchanges.append(exchange)
        self.faults += [Fault(exchange.number, exchange.token, text) for text in faults]
        self._tell()

    def _parked(self, exchange: Exchange) -> None:
        if exchange.parked_at is None:
            exchange.parked_at = trio.current_time()
            self._tell()

    def _ended(self, exchange: Exchange, *, dropped: bool) -> None:
        if dropped:
            exchange.dropped_at = trio.current_time()
        else:
            exchange.finished_at = trio.current_time()
        self._tell()
