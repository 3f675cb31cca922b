"""A backend that records what it is told, and does what its levers say."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

import attrs
import trio
import trio.testing

from turnstop import Turn
from turnstop.abc import Emit, End, How, Proof, Request
from turnstop.events import Event

COMPLETED = End(How.COMPLETED)
CANCELLED = End(How.CANCELLED)
FAILED = End(How.FAILED, detail="it broke")
SILENT = End(How.SILENT)
CLAIMED = End(How.CANCELLED, Proof.CLAIMED)


@attrs.define(eq=False)
class Act:
    """What one call does, in the order of these attributes.

    Attributes:
        sync: raised before there is anything to await.
        notify: called first.
        sent: whether a cancel says that it was sent.
        takes: seconds that it sleeps, and may be cancelled in.
        hold: what it waits for.
        stubborn: seconds in which it refuses to be cancelled.
        ends: what `follow` returns from then on.
        raises: what it raises.
        undo: called when it was cancelled.
        returns: what it returns.
    """

    sync: BaseException | None = None
    notify: Callable[[], object] | None = None
    sent: bool = True
    takes: float = 0.0
    hold: trio.Event | None = None
    stubborn: float = 0.0
    ends: End | BaseException | None = None
    raises: BaseException | None = None
    undo: Callable[[], object] | None = None
    returns: Any = None

    async def play(self) -> Any:
        try:
            if self.takes:
                await trio.sleep(self.takes)
            if self.hold is not None:
                await self.hold.wait()
        except trio.Cancelled:
            if self.undo is not None:
                self.undo()
            raise
        if self.stubborn:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.stubborn)
        if self.raises is not None:
            raise self.raises
        return self.returns


def hang() -> Act:
    """An act that never comes back, and lets itself be cancelled."""
    return Act(takes=1e6)


def ending(end: End | BaseException = CANCELLED, **more: Any) -> Act:
    """An act that makes `follow` return, or raise."""
    return Act(ends=end, **more)


@attrs.define(eq=False, slots=False)
class Remote:
    """A remote turn: `finish` and `fail` are what its backend does by itself."""

    backend: Recorder
    turn_id: str
    emit: Emit | None = None
    session: object | None = None
    _over: trio.Event = attrs.field(factory=trio.Event)
    _end: End | BaseException | None = None

    def finish(self, end: End | BaseException) -> None:
        self._end = end
        self._over.set()

    def say(self, event: Any) -> None:
        assert self.emit is not None
        self.emit(event)

    def follow(self, emit: Emit) -> Awaitable[End]:
        self.emit = emit
        return self.backend.called("follow", self, self.backend.follow, self._follow)

    async def _follow(self) -> Any:
        # What comes back of the act, where it says something, is the end.
        end = await self.backend.follow.play()
        if end is None:
            await self._over.wait()
            end = self._end
        if isinstance(end, BaseException):
            raise end
        return end

    def cancel(self, sent: Callable[[], None]) -> Awaitable[None]:
        async def play() -> None:
            act = self.backend.cancel
            if act.sent:
                sent()
            await act.play()
            if act.ends is not None:
                self.finish(act.ends)

        return self.backend.called("cancel", self, self.backend.cancel, play)


@attrs.define(eq=False)
class Recorder:
    """The backend. Levers may be moved between two turns.

    Attributes:
        log: what was called: the call, the turn's id and the time. `<call> left` is its return.
        kill: None: remote turns cannot be killed; `leftovers` likewise.
    """

    start_act: Act = attrs.field(factory=Act, alias="start")
    follow: Act = attrs.field(factory=Act)
    cancel: Act = attrs.field(factory=ending)
    kill: Act | None = None
    leftovers: Act | None = None
    sweep: Act = attrs.field(factory=lambda: Act(returns=()))
    forget_act: Act = attrs.field(factory=Act, alias="forget")
    session: object | None = None
    log: list[tuple[str, str, float]] = attrs.field(factory=list, init=False)
    requests: list[Request[Any]] = attrs.field(factory=list, init=False)
    remotes: list[Remote] = attrs.field(factory=list, init=False)
    swept: list[object] = attrs.field(factory=list, init=False)
    forgotten: list[object] = attrs.field(factory=list, init=False)
    make: Callable[[Recorder, str], Any] = Remote

    def called(
        self, name: str, remote: Any, act: Act, play: Callable[[], Awaitable[Any]]
    ) -> Awaitable[Any]:
        turn_id = remote if isinstance(remote, str) else remote.turn_id
        self.log.append((name, turn_id, trio.current_time()))
        if act.notify is not None:
            act.notify()
        if act.sync is not None:
            raise act.sync
        return self._play(name, turn_id, play)

    async def _play(self, name: str, turn_id: str, play: Callable[[], Awaitable[Any]]) -> Any:
        try:
            return await play()
        finally:
            self.log.append((f"{name} left", turn_id, trio.current_time()))

    def start(self, request: Request[Any]) -> Awaitable[Any]:
        self.requests.append(request)
        act = self.start_act

        async def play() -> Any:
            returned = await act.play()
            return self._reveal(request.turn_id) if returned is None else returned

        return self.called("start", request.turn_id, act, play)

    def _reveal(self, turn_id: str) -> Any:
        remote = self.make(self, turn_id)
        self.remotes.append(remote)
        if remote.__class__ is Remote:
            remote.session = self.session
        kill, leftovers, sweep = self.kill, self.leftovers, self.sweep
        if kill is not None:
            remote.kill = lambda: self.called("kill", remote, kill, lambda: self._kill(remote))
        if leftovers is not None:
            remote.leftovers = lambda: self.called("leftovers", remote, leftovers, leftovers.play)

            def do_sweep(found: Any) -> Awaitable[Any]:
                self.swept.append(found)
                return self.called("sweep", remote, sweep, sweep.play)

            remote.sweep = do_sweep
        return remote

    async def _kill(self, remote: Remote) -> None:
        assert self.kill is not None
        await self.kill.play()
        if self.kill.ends is not None:
            remote.finish(self.kill.ends)

    def forget(self, session: object) -> Awaitable[None]:
        self.forgotten.append(session)
        return self.called("forget", "", self.forget_act, self.forget_act.play)

    @property
    def remote(self) -> Remote:
        """The newest."""
        return self.remotes[-1]

    @property
    def calls(self) -> list[str]:
        """What was called, in order, whatever the turn."""
        return [name for name, _, _ in self.log if not name.endswith(" left")]

    def at(self, name: str, turn_id: str | None = None) -> list[float]:
        """When it was called."""
        return [when for call, turn, when in self.log if call == name and turn_id in (None, turn)]


async def occupy(
    turn: Turn, *, inside: Callable[[], Awaitable[object]] = trio.sleep_forever
) -> None:
    """Hold a turn's block open until it is cancelled."""
    async with turn:
        await inside()


async def settle() -> None:
    """Let everything happen that needs no time to go by."""
    await trio.testing.wait_all_tasks_blocked()


async def passes(count: int) -> None:
    for _ in range(count):
        await trio.lowlevel.cancel_shielded_checkpoint()


async def drain(turn: Turn) -> list[Event]:
    return [event async for event in turn]


class Passes(trio.abc.Instrument):
    """Counts the scheduler's passes."""

    def __init__(self) -> None:
        self.count = 0

    def after_io_wait(self, timeout: float) -> None:
        self.count += 1
