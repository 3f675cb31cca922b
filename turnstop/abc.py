"""The contract for adapter authors: what a backend is, and what the kernel asks of it.

An adapter never shields, sets no deadline, holds no lock, keeps no table of rooms, and never
serialises turns: the kernel and the transports do. It may open a scope to end its own stream, or
a nursery.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextvars import ContextVar
from typing import Generic, Protocol, TypeAlias, TypeVar

import attrs

from ._ending import End, How, Proof
from ._errors import Silenced
from ._records import Settlement
from .events import Ask, Event

__all__ = [
    "Backend",
    "Emit",
    "End",
    "How",
    "Leftover",
    "Proof",
    "RemoteTurn",
    "Request",
    "Silenced",
    "SupportsAttach",
    "SupportsForget",
    "SupportsKill",
    "SupportsLeftovers",
    "SupportsNesting",
    "current_turn",
]

Content_co = TypeVar("Content_co", covariant=True)
Content_contra = TypeVar("Content_contra", contravariant=True)

current_turn: ContextVar[str] = ContextVar("turnstop.current_turn")
"""The id of the turn that this code runs for. The kernel sets it around `start`, `follow`,
`cancel`, `kill`, `leftovers` and `sweep`; no other ambient state may be relied on. Turns of two
rooms may have equal ids. The objects are never the same: whoever keeps something by turn in one
place for all rooms tells them apart with `is`."""

Leftover: TypeAlias = object
"""Something that a turn started and left. Opaque to the kernel; its `str` names it to people."""


def check_address(address: object) -> str:
    """Return a turn's address, if it is one; a TypeError says what is wanted."""
    if not isinstance(address, str):
        raise TypeError(f"a turn's address is a str: got {address!r}")
    return address


async def _keep_nothing(address: str) -> None:
    """There is no journal. What no journal takes is told all the same."""
    check_address(address)


@attrs.frozen
class Request(Generic[Content_co]):
    """What `Backend.start` is asked to begin.

    Attributes:
        room: the conversation.
        turn_id: unique among the room's turns.
        content: a str, or what the adapter documents.
        session: what the room's last remote turn left to be continued; None: make one.
        previous: the room's last settlement whose work may be alive, else None. Where there is
            one, take a fresh session. Told to every start until one has returned.
        announce: to be awaited, with the turn's address, just before what can begin the work is
            sent, where the address is known by then: where the rooms have a journal, it is on the
            disk when this returns. It waits half a second at most, and raises `BackendRefused`,
            to be passed on, where the turn was stopped meanwhile, or is over: so nothing was sent;
            and TypeError where the address is no str.
    """

    room: str
    turn_id: str
    content: Content_co
    session: object | None = None
    previous: Settlement | None = None
    announce: Callable[[str], Awaitable[None]] = attrs.field(
        default=_keep_nothing, eq=False, repr=False
    )


class Emit(Protocol):
    """How `follow` tells the reader what the backend says."""

    def __call__(self, event: Event, /) -> None:
        """Hand over an event. Never waits, never raises; dropped and counted after a stop."""

    def ask(self, ask: Ask, /) -> Awaitable[object]:
        """Hand over a question and wait for a person's reply.

        Awaited by whatever serves the backend's request, never by the task that reads the
        terminal frame.

        Raises:
            Silenced: the turn is stopped or over: answer the backend "cancelled".
            ValueError: an ask with this id is open already.

        **Cancellation:** the question is withdrawn; a later reply finds nobody.
        """
        ...


class RemoteTurn(Protocol):
    """One request that the backend works on, from the moment it can be named.

    Optional members, found by name: `acknowledges` (a bool, default True: False where cancel is
    a notification that nothing answers), `kill` (`SupportsKill`), `leftovers` with `sweep`
    (`SupportsLeftovers`), and `address` (a str: what another process needs to find this turn with
    `SupportsAttach`, should this one die; read at the reveal, where anything else but None is
    misbehaviour).
    """

    @property
    def session(self) -> object | None:
        """What the room's next turn continues. Read at the reveal and again at settlement."""

    async def follow(self, emit: Emit, /) -> End:
        """Read to the backend's own end of this turn, also while it is being stopped.

        Raises:
            BackendLost: the connection broke before the end was seen.
            BackendMisbehaved: the backend broke its protocol.

        **Cancellation:** comes only after settlement: let go of what is local.
        """
        ...

    async def cancel(self, sent: Callable[[], None], /) -> None:
        """Tell the backend to stop this turn. Called at most once, between reveal and end.

        Call `sent()` when the request has left. Return when the backend has acknowledged it;
        where it cannot be told yet, retry: the kernel cancels this call when its budget is over,
        or as soon as `follow` has returned.
        """


class SupportsKill(Protocol):
    """A remote turn with a forceful rung."""

    async def kill(self) -> None:
        """End the work by force, and nothing beyond this turn. Return when it is gone."""


class SupportsLeftovers(Protocol):
    """A remote turn that may start things which outlive it: processes, sub-agents."""

    async def leftovers(self) -> Sequence[Leftover]:
        """What this turn started and left alive."""
        ...

    async def sweep(self, leftovers: Sequence[Leftover], /) -> Sequence[Leftover]:
        """End them; return what is still alive."""
        ...


class Backend(Protocol[Content_contra]):
    """Where turns are worked on.

    Optional members, found by name: `forget` (`SupportsForget`), `attach` (`SupportsAttach`),
    `check_nesting` (`SupportsNesting`), `name` (a str: by it a journal tells whose turns are
    whose, also in the next process; the class's full name by default), and `announces` (a bool:
    True where no `start` sends anything that it has not announced: a journal then has a turn from
    its announcement on).
    """

    async def start(self, request: Request[Content_contra], /) -> RemoteTurn:
        """Begin the turn, and return as soon as the backend can be told to cancel it.

        Raises:
            BackendRefused: the backend did not begin, for certain.
            BackendLost: the connection broke; the turn may have begun.

        **Cancellation:** comes only when a stop's budget is over without a reveal: undo what was
        made.
        """
        ...


class SupportsAttach(Protocol):
    """A backend whose turns can be taken up by another process than the one that began them."""

    async def attach(self, address: str, /) -> RemoteTurn:
        """Take up the turn at an address, to stop it: the process that began it is gone.

        Of a turn that has ended since, `follow` tells the end.

        Raises:
            BackendRefused: nothing works there, for certain.
            BackendLost: the backend did not tell; or the address is another backend's.

        **Cancellation:** comes when the stop's budget is over.
        """
        ...


class SupportsForget(Protocol):
    """A backend that keeps something per room."""

    async def forget(self, session: object, /) -> None:
        """The room is retired: let go of its session."""


class SupportsNesting(Protocol):
    """A backend that must outlive the rooms which are opened on it, and can tell."""

    def check_nesting(self) -> None:
        """Called by `open_rooms`, in its task, before anything else.

        Raises:
            RuntimeError: the backend would close before what this task opens now. The text says
                what to move.
        """
