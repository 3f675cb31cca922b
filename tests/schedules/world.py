"""The backend: starts remote turns, and sees who is let in when."""

from __future__ import annotations

import attrs
import trio

from turnstop.abc import Request

from .ledger import Ledger, Record
from .remote import ERRORS, Remote
from .script import NEVER, Plan


@attrs.define(eq=False)
class World(Ledger):
    """The backend."""

    async def start(self, request: Request[Record]) -> Remote:
        record = request.content
        remote = Remote(self, record)
        self._check_start(request, record)
        script = record.script
        with remote.called("start") as call:
            if script.start.outcome != "refuses":
                record.began = call.at + script.begins
                record.over = record.began + script.works
            try:
                await remote.perform(script.start, call)
            except trio.Cancelled:
                remote.undo()
                raise
            remote.reveal()
        return remote

    def _check_start(self, request: Request[Record], record: Record) -> None:
        turn, earlier = record.turn, self.started.setdefault(request.room, [])
        for other in earlier:
            if other.turn.settlement is None:
                self.blame(turn.turn_id, f"started before {other.turn.turn_id} is settled")
            elif other.body_left == NEVER:
                self.blame(turn.turn_id, f"started while {other.turn.turn_id} is in its body")
        if turn.settlement is not None or record in earlier or record.queued == NEVER:
            self.blame(turn.turn_id, f"start() of a turn that is {turn.state}")
        since = self.dropped.get(request.room, 0)
        session = previous = None
        for other in earlier[since:]:
            if other.call("follow") is not None:
                session, previous = other.session, None
            if other.turn.settlement is not None and not other.turn.settlement.gone:
                previous = other.turn.settlement
        if request.session != session:
            self.blame(turn.turn_id, f"got session {request.session}, not {session}")
        told = request.previous and request.previous.turn_id
        if told != (previous and previous.turn_id):
            self.blame(turn.turn_id, f"was told of {told} as previous, not of {previous}")
        earlier.append(record)

    async def forget(self, session: object) -> None:
        plan = self.forgetting.pop() if self.forgetting else Plan(0.0, "meek", "ok")
        self.say(f"forget {session}", f"{plan.manner} {plan.outcome} in {plan.lasts:.3f}")
        with trio.CancelScope(shield=plan.manner == "deaf"):
            await trio.sleep(plan.lasts)
        if plan.outcome in ERRORS:
            raise ERRORS[plan.outcome](f"forget {session}")
