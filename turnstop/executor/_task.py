"""A task: what is decided of it, once, and what is told of it, once the work has ended."""

from __future__ import annotations

import enum
import logging
import threading
from collections.abc import Callable
from typing import Any, Protocol, TypeAlias, final

import attrs
import trio
from trio.lowlevel import disable_ki_protection, enable_ki_protection

from .._errors import BackendLost
from .._records import OnlyMadeByUs
from .._turn import Turn
from ..events import Event
from ._threads import Threads

__all__ = [
    "Began",
    "Holding",
    "InputRequired",
    "Outcome",
    "Task",
    "TaskState",
    "call_unprotected",
    "check_thread",
]

logger = logging.getLogger("turnstop.executor")


class TaskState(enum.Enum):
    """Where a task is, in A2A's words."""

    SUBMITTED = "submitted"
    """It waits for its room, or for its claim."""
    WORKING = "working"
    """Its function runs, also after a cancel."""
    INPUT_REQUIRED = "input-required"
    """Its function has returned `InputRequired`: the next task of the room goes on."""
    COMPLETED = "completed"
    CANCELED = "canceled"
    FAILED = "failed"


@attrs.frozen
class InputRequired:
    """To be returned by a function that cannot go on without an answer.

    Attributes:
        text: what it wants to know.
    """

    text: str


@attrs.frozen
class Began:
    """Its function is about to be called."""


@attrs.frozen
class Outcome:
    """What became of a task. Made once, and final.

    Attributes:
        state: COMPLETED, FAILED, CANCELED or INPUT_REQUIRED.
        result: what the function returned; None but for COMPLETED.
        error: what it raised; None but for FAILED.
        text: the error's, or the question's.
    """

    task_id: str
    room: str
    state: TaskState
    result: object = None
    error: BaseException | None = None
    text: str = ""


Update: TypeAlias = "Event | Began | Outcome"
Hear: TypeAlias = Callable[[Update], object]


class Holding(Protocol):
    """What the executor asks of a claim, such as `turnstop.claims.Claim`. Never waits."""

    def note_progress(self) -> None:
        """The work goes on. Called from any thread."""

    def let_lapse(self) -> None:
        """Renew it no more: the work counts as over, though it has not ended."""

    def leave_held(self) -> None:
        """Do not release it when its block is left: a thread of the work goes on."""


def check_thread(token: trio.lowlevel.TrioToken, call: str) -> None:
    try:
        if trio.lowlevel.current_trio_token() is token:
            return
    except RuntimeError:
        pass
    raise RuntimeError(
        f"the executor lives in another thread: call executor.token.run_sync_soon({call}), or "
        f"from a thread of Trio's trio.from_thread.run_sync({call})"
    )


@disable_ki_protection
def call_unprotected(fn: Callable[[Any], object], update: object) -> None:
    """Call what is not ours, which Ctrl-C may interrupt, from what it may not."""
    fn(update)


@attrs.define(eq=False)
class Decision:
    """A compare-and-set, from Trio's thread and from those of functions."""

    made: Outcome | None = None
    _lock: threading.Lock = attrs.field(factory=threading.Lock)

    def make(self, outcome: Outcome) -> bool:
        """Whether this is it; False where there was one before."""
        with self._lock:
            if self.made is not None:
                return False
            self.made = outcome
            return True


@final
@attrs.define(eq=False, repr=False)
class Task(metaclass=OnlyMadeByUs):
    """One call of the function. Made by `Executor.submit`.

    Attributes:
        outcome: None until the work has ended and its claim is released.
    """

    task_id: str
    room: str
    content: object
    _hear: Hear | None
    _stop: Callable[[Task, str, str], None]
    turn: Turn = attrs.field(init=False)
    outcome: Outcome | None = attrs.field(default=None, init=False)
    scope: trio.CancelScope = attrs.field(factory=trio.CancelScope, init=False)
    claim: Holding | None = attrs.field(default=None, init=False)
    over: trio.Event | None = attrs.field(default=None, init=False)
    _working: bool = attrs.field(default=False, init=False)
    _decision: Decision = attrs.field(factory=Decision, init=False)
    _told: trio.Event = attrs.field(factory=trio.Event, init=False)
    threads: Threads = attrs.field(init=False)
    _token: trio.lowlevel.TrioToken = attrs.field(
        factory=trio.lowlevel.current_trio_token, init=False
    )

    def __attrs_post_init__(self) -> None:
        self.threads = Threads(f"task {self.task_id}", self._note_left)

    @property
    def state(self) -> TaskState:
        """Where it is. WORKING until the work has ended, whatever is decided."""
        if self.outcome is not None:
            return self.outcome.state
        return TaskState.WORKING if self._working else TaskState.SUBMITTED

    @property
    def is_cancelled(self) -> bool:
        """It was cancelled, in time."""
        made = self._decision.made
        return made is not None and made.state is TaskState.CANCELED

    @enable_ki_protection
    def cancel(self, *, reason: str = "", source: str = "") -> bool:
        """Cancel it. Never waits.

        Returns:
            Whether it ends CANCELED; False where its function had returned or failed before. Of
            one whose thread its executor leaves behind FAILED is told in its place.

        Raises:
            RuntimeError: called from another thread.
        """
        check_thread(self._token, "executor.cancel, task_id")
        if not self.abort():
            return self.is_cancelled
        self._stop(self, reason, source)
        return True

    async def wait(self) -> Outcome:
        """Wait until the work has ended.

        **Cancellation:** changes nothing about the task.
        """
        await self._told.wait()
        assert self.outcome is not None
        return self.outcome

    # For whoever runs it.

    def abort(self) -> bool:
        """Decide that it is cancelled, and cancel its work; False where it is decided."""
        if not self.decide(TaskState.CANCELED):
            return False
        self.scope.cancel()
        return True

    def decide(
        self,
        state: TaskState,
        *,
        result: object = None,
        error: BaseException | None = None,
        text: str = "",
    ) -> bool:
        """Say what becomes of it, from any thread. Only the first one does."""
        return self._decision.make(Outcome(self.task_id, self.room, state, result, error, text))

    def failed_by(self, error: BaseException) -> bool:
        """Whether it is this that has decided it."""
        made = self._decision.made
        return made is not None and made.error is error

    def begin(self) -> bool:
        """Its function may be called now; False where it may not, being cancelled."""
        if self.is_cancelled:
            return False
        self._working = True
        self.say(Began())
        # Who has heard of it may have cancelled it.
        return not self.is_cancelled

    def tell(self, event: Event) -> None:
        """It says something, which nobody hears once its end is decided."""
        if self._decision.made is None:
            self.say(event)

    def say(self, update: Update) -> None:
        """Tell whoever hears it, whose errors are logged, and never the work's."""
        if self._hear is None:
            return
        try:
            call_unprotected(self._hear, update)
        except Exception:
            logger.exception("who hears task %s has failed at %r", self.task_id, update)

    def conclude(self) -> Outcome:
        """The work has ended: say what became of it.

        What nobody has decided never began; or it was left in some other way, which is no cancel.
        """
        if self._working:
            text = "its function was left without a result and without an error of its own"
            self.decide(TaskState.FAILED, error=BackendLost(text), text=text)
        self.decide(TaskState.CANCELED)
        assert self._decision.made is not None
        self.outcome = self._left() if self.threads.left else self._decision.made
        self._told.set()
        self.say(self.outcome)
        return self.outcome

    def _left(self) -> Outcome:
        # CANCELED would say that nothing works on it.
        text = (
            "it was cancelled, and its thread has not ended: it was left behind, and may still be "
            "at work; see what it has done before you have it done again"
        )
        error = BackendLost(text)
        return Outcome(self.task_id, self.room, TaskState.FAILED, error=error, text=text)

    def _note_left(self) -> None:
        if self.claim is not None:
            self.claim.leave_held()

    def __repr__(self) -> str:
        return f"<Task {self.task_id} of {self.room!r}: {self.state.value}>"
