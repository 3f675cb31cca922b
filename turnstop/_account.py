"""What is known of a remote turn, and the records that are made of it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import attrs

from ._admission import Door
from ._calls import Call, Reaping
from ._ending import End, Proof, Verdict, judge
from ._errors import BackendError, BackendLost
from ._house import Block, House
from ._records import Settlement, StopRequest


@attrs.define(eq=False)
class Account:
    """The facts of one remote turn. `Life` notes them and does what is due.

    Attributes:
        block: what the body of the turn is told.
        door: its room, from the entering on.
        settlement: None until it is known.
        request: who asked for the stop first.
        since: when the stop began (Trio's clock), asked for or after a failure.
    """

    house: House
    room: str
    turn_id: str
    content: object
    block: Block = attrs.field(repr=False)
    door: Door | None = attrs.field(default=None, init=False)
    settlement: Settlement | None = attrs.field(default=None, init=False)
    request: StopRequest | None = attrs.field(default=None, init=False)
    since: float | None = attrs.field(default=None, init=False)
    _asked_wall: float | None = attrs.field(default=None, init=False)
    _sent_at: float | None = attrs.field(default=None, init=False)
    _acked_at: float | None = attrs.field(default=None, init=False)
    _ended_at: float | None = attrs.field(default=None, init=False)
    _remote: Any = attrs.field(default=None, init=False)
    _end: End | None = attrs.field(default=None, init=False)
    _error: BaseException | None = attrs.field(default=None, init=False)
    _errors: tuple[BaseException, ...] = attrs.field(default=(), init=False)
    _backlog_error: BackendError | None = attrs.field(default=None, init=False)
    _life: Call = attrs.field(factory=lambda: Call("start"), init=False)
    _cancel: Call | None = attrs.field(default=None, init=False)
    _kill: Call | None = attrs.field(default=None, init=False)
    _reaping: Reaping | None = attrs.field(default=None, init=False)
    _hands_on: bool = attrs.field(default=True, init=False)

    @property
    def _gone(self) -> bool:
        return isinstance(self._error, BackendLost) and self._error.gone

    def _judge(self) -> Verdict:
        request, cancel, kill = self.request, self._cancel, self._kill
        return judge(
            end=self._end,
            error=self._error,
            began=self._life.called,
            revealed=self._remote is not None,
            asked=request is not None,
            cancelled=cancel is not None and cancel.called,
            killed=kill is not None and kill.called,
            kill_returned=kill is not None and kill.ok,
            backlog=request is not None and request.kind == "backlog",
        )

    def _make_settlement(
        self, verdict: Verdict, survivors: tuple[str, ...], dropped: int, now: float
    ) -> Settlement:
        wall, ended_at = self._asked_wall, self._ended_at
        if ended_at is None and verdict.proof is Proof.PROCESS and self._kill is not None:
            ended_at = self._kill.returned_at
        return Settlement(
            room=self.room,
            turn_id=self.turn_id,
            ending=verdict.ending,
            proof=verdict.proof,
            gone=verdict.gone,
            request=self.request,
            asked_at=self.since if self.request is not None else None,
            sent_at=self._sent_at,
            acked_at=self._acked_at,
            ended_at=ended_at,
            settled_at=now,
            asked_wall=None if wall is None else datetime.fromtimestamp(wall, UTC),
            errors=self._errors,
            survivors=survivors,
            dropped=dropped,
            usage=None if self._end is None else self._end.usage,
        )

    def _look_back(self) -> None:
        """Read what the remote turn says of itself: adapter code, which may raise."""
        if self._remote is None or self.door is None:
            return
        try:
            if self._cancel is not None and getattr(self._remote, "acknowledges", True):
                self._acked_at = self._cancel.returned_at
            self._hand_on()
        except Exception as error:
            self._errors += (error,)

    def _hand_on(self) -> None:
        # Where a room has a session of its own, what another process has left there changes none.
        if self._hands_on and self.door is not None:
            self.door.session = self._remote.session

    def _name_survivors(self, stragglers: Sequence[Call]) -> tuple[str, ...]:
        survivors = self._reaping.survivors if self._reaping is not None else ()
        for call in stragglers:
            call.outlive(self.house.stragglers, self.turn_id)
            survivors += (self._name(call),)
        return survivors

    def _name(self, call: Call) -> str:
        return f"{call.name}() of turn {self.turn_id} has not returned"

    def _alive(self) -> list[Call]:
        calls = [self._life, self._cancel, self._kill]
        if self._reaping is not None:
            calls.append(self._reaping.call)
        return [call for call in calls if call is not None and call.alive]
