"""One Copilot CLI that serves all rooms: what it says, and what it is asked through the SDK."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final, TypeVar, TypeVarTuple, final

import trio

from ..._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from ...transports.aio import Aio
from ...transports.backlog import Backlog
from ...transports.framed import Message
from ...transports.orphans import ProcessAddress
from ...transports.pace import call_unless
from ...transports.reading import Reader, Reading
from . import _sdk

# The SDK sees by itself that the CLI is lost, and does not take a call then that was cancelled.
SEEN_WITHIN: Final = 0.2
_ANSWERED_WITHIN: Final = 60.0

Args = TypeVarTuple("Args")
Result = TypeVar("Result")


@final
class Cli:
    """A CLI that answers.

    Attributes:
        aio: where the SDK lives.
        reading: for tasks that outlive the calls which start them.
        address: what another process finds it by, and the mark of all that it starts.
        client: the SDK's.
        broken: set when it can no longer be talked to; it may still be on its way out.
    """

    def __init__(
        self,
        aio: Aio,
        reading: Reading,
        address: ProcessAddress,
        broken: trio.Event,
        describe: Callable[[], BackendLost],
    ) -> None:
        self.aio = aio
        self.reading = reading
        self.address = address
        self.client: _sdk.Client = None
        self.broken = broken
        self._describe = describe
        self._ended = trio.Event()
        self._listeners: dict[Backlog[Any], str] = {}
        self._leaving: dict[object, Callable[[], None]] = {}
        self._naming: dict[object, Callable[[str], None]] = {}
        self._sending: dict[object, Callable[[str], None]] = {}

    def loss(self) -> BackendLost:
        """A new error: how it was lost, and whether it is gone."""
        return self._describe()

    def listen(self, session: str, backlog: Backlog[Any]) -> None:
        """Post what this session says, and close the backlog when the CLI is lost."""
        self._listeners[backlog] = session
        if self._ended.is_set():
            backlog.close()

    def leave(self, backlog: Backlog[Any]) -> None:
        """Leave it alone."""
        self._listeners.pop(backlog, None)

    def declare_lost(self) -> None:
        """Tell everybody. Its process has been ended before, so that what they learn is final."""
        self._ended.set()
        for backlog in self._listeners:
            backlog.close()

    def note(self, direction: str, message: Message) -> None:
        """See a message go by: before the SDK does, which takes its time over each."""
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        number = _name(params.get("sessionId"))
        match direction, message.get("method"):
            case "<-", "session.event" if isinstance(event := params.get("event"), dict):
                for backlog, session in self._listeners.items():
                    if session == number:
                        backlog.post(event)
            case "<-", None:
                self._note_answer(message)
            case "->", "session.send" if number in self._naming:
                self._sending[_name(message.get("id"))] = self._naming.pop(number)
            case "->", "session.abort" if number in self._leaving:
                self._leaving.pop(number)()

    def _note_answer(self, message: Message) -> None:
        named, result = self._sending.pop(_name(message.get("id")), None), message.get("result")
        number = result.get("messageId") if isinstance(result, dict) else None
        if named is not None and isinstance(number, str) and number:
            named(number)

    def when_abort_left(self, session: str, left: Callable[[], None]) -> None:
        """Have `left` called when the next abort of this session has been written."""
        self._leaving[session] = left

    async def send(
        self, conversation: _sdk.Conversation, session: str, message: Mapping[str, Any]
    ) -> str:
        """Send a message for the current turn; its id, as soon as Copilot has told it.

        Raises:
            BackendRefused: the SDK cannot send it, or Copilot does not take it.
            BackendMisbehaved: Copilot took it, and did not tell its id.
            BackendLost: the CLI was lost, or has not answered in time.

        **Cancellation:** as `call`.
        """
        reader: Reader[tuple[str] | Exception] = Reader()
        self._naming[session] = lambda number: reader.post((number,))
        try:
            send = partial(self.aio.call, _sdk.send, conversation, message)
            return await self.ask(send, "send", reader=reader)
        except BackendError:
            raise
        except Exception as error:
            if _sdk.is_refusal(error):
                raise BackendRefused(f"copilot did not take the message: {error}") from error
            if session in self._naming:  # It has not gone by, and will not.
                raise BackendRefused(f"the message cannot be sent: {error}") from error
            raise BackendMisbehaved(
                f"copilot took a message and did not tell its id: {error!r}"
            ) from error
        finally:
            self._naming.pop(session, None)

    async def call(
        self, fn: Callable[[*Args], Awaitable[Result]], *args: *Args, within: float | None = None
    ) -> Result:
        """Call the SDK for the current turn.

        Raises:
            BackendLost: the CLI was lost, or has not answered in time.

        **Cancellation:** what has been sent stays so, and its answer is taken and dropped: the SDK
        knows no answer to a call that was cancelled.
        """
        return await self.ask(lambda: self.aio.call(fn, *args), fn.__name__, within)

    async def call_unowned(
        self, fn: Callable[[*Args], Awaitable[Result]], *args: *Args, within: float | None = None
    ) -> Result:
        """As `call`, for what belongs to no turn.

        **Cancellation:** as `call`.
        """
        return await self.ask(lambda: self.aio.call_unowned(fn, *args), fn.__name__, within)

    async def ask(
        self,
        call: Callable[[], Awaitable[Result]],
        name: str,
        within: float | None = None,
        reader: Reader[tuple[Result] | Exception] | None = None,
    ) -> Result:
        """The answer to a call of the SDK, or what was posted to the reader before it came.

        Raises:
            BackendLost: the CLI was lost, or has not answered in time.

        **Cancellation:** as `call`.
        """
        if self.broken.is_set():
            raise await self.wait_lost()
        within = _ANSWERED_WITHIN if within is None else within
        reader = reader or Reader()

        async def answer() -> None:
            try:
                reader.post(
                    (await call_unless(self.broken, call, within=within, grace=SEEN_WITHIN),)
                )
            except trio.Cancelled:
                reader.post(trio.BrokenResourceError())
                raise
            except Exception as error:
                reader.post(error)

        self.reading.start(reader, answer, name=f"copilot {name}")
        outcome = await reader.receive()
        if isinstance(outcome, tuple):
            return outcome[0]
        if isinstance(outcome, trio.TooSlowError):
            raise BackendLost(f"copilot has not answered {name} for {within:g} s")
        if not isinstance(outcome, trio.BrokenResourceError) and not _sdk.is_loss(outcome):
            raise outcome
        self.broken.set()
        raise await self.wait_lost()

    async def wait_lost(self) -> BackendLost:
        """How it was lost, once that is known for good.

        **Cancellation:** leaves nothing.
        """
        await self._ended.wait()
        return self.loss()


def _name(told: object) -> object:
    """An id, as a key; what is none is nobody's."""
    return told if isinstance(told, str | int) else None
