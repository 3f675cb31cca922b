"""`open_parlant`: a server on the bridge's loop, and turns of its engine."""

from __future__ import annotations

import itertools
import signal
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import Any, ClassVar, Final, Literal, final

import attrs
import trio

from ..._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from ...abc import Backend, RemoteTurn, Request, current_turn
from ...transports.aio import Aio, open_aio
from ...transports.distribution import import_apart
from ...transports.owners import OwnerAddress, attach_owner, new_owner
from ...transports.reading import Reader, Reading, open_reading
from ._engine import Engine, OpenSession, Prepare, gave_up, serve
from ._library import Library, check_version, import_library
from ._tools import Live, ParlantSession
from ._turn import ParlantTurn

__all__ = ["open_parlant"]

# A server that is told to end answers its last requests first, and closes its stores.
_CLOSING: Final = 3.0


@final
@attrs.define(eq=False)
class _Served:
    """A server that comes up, serves, and ends.

    Attributes:
        news: the engine, once it is prepared; None, once it serves; or why it does not.
        prepared: whether the application has prepared it.
        ready: whether it has served.
        outcome: why it does so no more.
    """

    news: Reader[Engine | Exception | None] = attrs.field(factory=Reader)
    prepared: bool = False
    ready: bool = False
    outcome: Exception | None = None

    async def serve(
        self, aio: Aio, library: Library, prepare: Prepare, options: Any, make: Any
    ) -> None:
        """To the server's end, which whoever waits for it is told."""

        def made(server: Any, agent_id: str, live: Live) -> None:
            aio.post(self._made, make(server, agent_id, live=live))

        try:
            await aio.call_unowned(serve, library, prepare, options, made)
            self.outcome = BackendLost("the Parlant server has ended")
        except Exception as error:
            self.outcome = error
        if self.prepared and not self.ready:
            # What the application made was good: its own error is not hidden by this.
            self.outcome = gave_up(self.outcome)
        self.news.post(self.outcome)

    def _made(self, engine: Engine) -> None:
        self.prepared = True
        self.news.post(engine)

    async def wait_ready(self, aio: Aio, engine: Engine) -> None:
        """Tell when the server answers."""
        # A loop that is closed has raised its own error already.
        with suppress(RuntimeError):
            await aio.call_unowned(engine.server.ready.wait)
            self.ready = True
            self.news.post(None)

    async def expect(self) -> Engine | None:
        """What comes next.

        Raises:
            Exception: the server did not come up.
        """
        item = await self.news.receive()
        if isinstance(item, Exception):
            raise item
        return item

    @contextmanager
    def opening(self) -> Iterator[None]:
        """Have a server that does not come up refused, where it would end the program."""
        try:
            yield
        except SystemExit as error:
            if self.ready:
                raise
            raise gave_up(error) from error


@final
@attrs.define(eq=False)
class _Parlant:
    name: ClassVar[str] = "parlant"
    announces: ClassVar[bool] = True
    aio: Aio
    reading: Reading
    engine: Engine
    poll_every: float
    served: _Served
    _owner: OwnerAddress = attrs.field(factory=new_owner, init=False)
    _numbers: Iterator[int] = attrs.field(factory=itertools.count, init=False)

    def check_nesting(self) -> None:
        self.aio.check_nesting()

    async def start(self, request: Request[str]) -> RemoteTurn:
        if not isinstance(request.content, str):
            # What was asked is nobody's business in a log.
            kind = type(request.content).__name__
            raise BackendRefused(f"Parlant is asked by a text, and this is of type {kind}")
        if self.served.outcome is not None:
            raise BackendLost(f"{self.served.outcome}: open it again", gone=True)
        session = request.session if request.previous is None else None
        if not isinstance(session, ParlantSession):
            session = await self._begin_session(request.room)
        address = str(self._owner.of_turn(next(self._numbers), session.id))
        await request.announce(address)
        turn_id = current_turn.get()
        turn = ParlantTurn(self.aio, self.engine, turn_id, session, address, self.poll_every)
        await self._post(turn, request.content)
        self.reading.start(turn.reader, turn.read, name=f"parlant turn {request.turn_id}")
        return turn

    async def attach(self, address: str) -> RemoteTurn:
        turn = attach_owner(address)
        turn.session = None
        # It is there where the store outlives the process, and agents keep their ids.
        with suppress(Exception):
            turn.session = await self.aio.call_unowned(self.engine.recall, turn.owner.session)
        return turn

    async def _begin_session(self, room: str) -> ParlantSession:
        try:
            return await self.aio.call_unowned(self.engine.begin_session, room)
        except BackendError:
            raise
        except Exception as error:
            raise BackendRefused(f"Parlant opened no session: {error!r}") from error

    async def _post(self, turn: ParlantTurn, text: str) -> None:
        def ended(cancelled: bool, error: BaseException | None) -> None:
            self.aio.post(turn.processed, cancelled, error)

        try:
            turn.reveal(
                await self.aio.call(self.engine.post, turn.session, text, turn.tools, ended)
            )
        except trio.Cancelled:
            # It may be processed all the same, and nobody else will ever know of it.
            self.reading.start(Reader(), turn.undo, name="parlant undo")
            raise
        except Exception as error:
            if not turn.works and not isinstance(error, BackendError):
                raise BackendRefused(
                    f"Parlant took no message in {turn.session}: {error!r}; where the session is "
                    "gone, retire the room, and it has another one"
                ) from error
            await turn.undo()
            if turn.works:
                raise BackendMisbehaved(f"{error}; and what began refuses to end") from error
            raise


@asynccontextmanager
async def open_parlant(
    prepare: Prepare,
    *,
    thread: bool = False,
    customer_id: str | None = None,
    moderation: Literal["none", "auto", "paranoid"] = "none",
    open_session: OpenSession | None = None,
    poll_every: float = 0.1,
    library: Library | None = None,
    **options: Any,
) -> AsyncGenerator[Backend[str], None]:
    """Open a Parlant server in this process as a backend: many rooms, one engine.

    The server is made, prepared and served on an asyncio loop of its own, as `async with
    parlant.sdk.Server(...) as server` would; on 127.0.0.1, unless the options say otherwise. Each
    room has a session of its own. A message that comes into it from elsewhere meanwhile takes the
    turn's place: the turn is lost.

    Args:
        prepare: `async def prepare(server)`, asyncio-flavoured: makes the agent with all that
            belongs to it, and returns the agent, or its id.
        thread: run the loop in a thread of its own. The engine takes many small steps, which are
            cheaper there, and what blocks it blocks no room. The only way on Python 3.14.
        customer_id: who asks; Parlant's guest by default.
        moderation: what is done with what the customer says, as in Parlant's API.
        open_session: `async def open_session(server, room)`, asyncio-flavoured: opens a room's
            session instead, with a customer, an agent and metadata of your choice, and returns it
            or its id.
        poll_every: seconds between two looks for a turn's events, for the engine tells of none.
            The end of a turn is seen at once.
        library: what stands in Parlant's place, in tests.
        **options: of `parlant.sdk.Server`: `nlp_service`, `port`, `tool_service_port`, ...

    Yields:
        A backend that is asked by a text. Its sessions are `ParlantSession`.

    Raises:
        ImportError: the extra is missing, or Parlant is not the version that is needed, which is
            named with the one found.
        BackendRefused: the server gave up before it served.
        BackendMisbehaved: `prepare` returns no agent.
        ValueError: an argument makes no sense.
        Exception: whatever `prepare` raises.

    **Cancellation:** the server is ended when the body has left, within some seconds.
    """
    if not poll_every > 0:
        raise ValueError(f"poll_every is a number of seconds above 0: got {poll_every!r}")
    if library is None:
        check_version()
    served = _Served()
    with served.opening():
        async with open_aio(thread=thread, grace=_CLOSING, close_within=_CLOSING) as aio:
            if library is None:
                # Not before the loop is there: what is imported earlier has to be repaired.
                await import_apart("parlant.sdk")
                library = import_library()
            make = partial(
                Engine,
                customer_id=customer_id or library.guest,
                moderation=library.moderation(moderation),
                open_session=open_session,
                library=library,
            )
            async with open_reading() as reading:
                serve = partial(served.serve, aio, library, prepare, options, make)
                with _signals_kept():
                    reading.start(served.news, serve, name="parlant server")
                    engine = await served.expect()
                    assert engine is not None
                    wait = partial(served.wait_ready, aio, engine)
                    reading.start(Reader(), wait, name="parlant server ready")
                    await served.expect()
                yield _Parlant(aio, reading, engine, poll_every, served)


@contextmanager
def _signals_kept() -> Iterator[None]:
    """Give the signals back that a server takes for itself: a Ctrl-C is to stop the turns first."""
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in kept.items():
            if signal.getsignal(number) is not handler:
                signal.signal(number, handler)
