"""Who disturbs the users: stops, cancellations, retirements, closings."""

from __future__ import annotations

import attrs
import trio

from turnstop import BackendError, RoomsClosed, StopReceipt

from .program import ROOMS, Boom, Program
from .script import NEVER, Dice


@attrs.define(eq=False)
class Chaos:
    """One of those who disturb."""

    program: Program
    r: Dice

    async def run(self) -> None:
        for _ in range(self.r.randrange(8)):
            await trio.sleep(self.r.moment(2.0))
            act = self.r.pick(room=5, one=5, stale=1, all=1, cancel=4, retire=2, look=1)
            await getattr(self, f"act_{act}")()

    async def stopped(self, receipt: StopReceipt, what: str) -> None:
        self.program.note_stop(receipt, what)
        if self.r.random() < 0.3:
            asked = trio.current_time()
            found = await receipt.settled()
            budget = self.program.world.budget
            took = trio.current_time() - asked
            if took > budget.cancel_within + 2 * budget.kill_within + 1e-6:
                self.program.world.blame(what, f"settled() took {took}")
            if [settlement.turn_id for settlement in found] != list(receipt.turn_ids):
                self.program.world.blame(what, f"settled() returned {found}")

    async def act_room(self) -> None:
        room = self.r.choice(ROOMS)
        receipt = self.program.rooms.stop(room, reason="room", source="chaos")
        self.program.check_all_told((room,), receipt)
        await self.stopped(receipt, f"stop of {room}")

    async def act_one(self) -> None:
        records = self.program.world.records
        if records:
            turn = records[self.r.choice(list(records))].turn
            receipt = self.program.rooms.stop(turn.room, turn_id=turn.turn_id)
            await self.stopped(receipt, f"stop of {turn.turn_id}")

    async def act_stale(self) -> None:
        receipt = self.program.rooms.stop(self.r.choice(ROOMS), turn_id="zoe0")
        if receipt.verdict.value != "stale" or receipt.turn_ids:
            self.program.world.blame("stop", f"an unknown id gives {receipt}")

    async def act_all(self) -> None:
        receipt = self.program.rooms.stop_all()
        self.program.check_all_told(ROOMS, receipt)
        await self.stopped(receipt, "stop_all")

    async def act_cancel(self) -> None:
        scopes = self.program.scopes
        if scopes:
            name = self.r.choice(sorted(scopes))
            self.program.world.say("chaos", f"cancels {name}")
            scopes[name].cancel()

    async def act_look(self) -> None:
        found = self.program.rooms.statistics()
        self.program.world.say("chaos", f"sees {found}")
        if found.rooms > len(ROOMS) or found.live > len(ROOMS) or found.stopping > found.live:
            self.program.world.blame("statistics", f"{found}")

    async def act_retire(self) -> None:
        world, room = self.program.world, self.r.choice(ROOMS)
        until = trio.current_time() + self.r.moment(2.0) if self.r.random() < 0.3 else NEVER
        world.say("chaos", f"retires {room}")
        if world.closing > trio.current_time():
            self.program.note_retired(room)
        with trio.CancelScope(deadline=until) as scope:
            try:
                await self.program.rooms.retire(room)
            except RoomsClosed:
                if not world.closing <= trio.current_time():
                    world.blame("retire", "RoomsClosed, and the rooms are open")
                return
            except (BackendError, ConnectionResetError) as error:
                world.say("chaos", f"retire of {room}: {error!r}")
        if not scope.cancelled_caught:
            world.dropped[room] = len(world.started.get(room, ()))
            world.say("chaos", f"retired {room}")


async def close(program: Program, r: Dice, how: str) -> None:
    """Run inside the rooms: hold them open, and end it as `how` says."""
    await trio.sleep(r.moment(6.0))
    program.world.say("rooms", f"are about to close: {how}")
    if how == "cancel":
        program.world.closing = trio.current_time()
        program.outer.cancel()
        await trio.sleep_forever()
    if how == "error":
        program.torn = True
        raise Boom("rooms")
