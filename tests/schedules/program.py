"""The users: what they do with turns, and what they may see while they do it."""

from __future__ import annotations

import attrs
import trio

from turnstop import Rooms, RoomsClosed, StopReceipt, StopVerdict
from turnstop.events import Ask, Event, Text, ToolCall

from .ledger import Record
from .script import NEVER, Block, Dice, Script
from .world import World

ROOMS = ("attic", "cellar")
USERS = ("ann", "bob", "cat", "dan", "eve", "fay")


class Boom(Exception):
    """What a body raises by itself."""


@attrs.define(eq=False)
class Program:
    """What all users share.

    Attributes:
        outer: the scope around the rooms, or around rooms and users.
        inside: whose body runs, by room.
        scopes: the scope that a user has around its block at the moment.
        torn: an error is tearing down the users' nursery.
    """

    world: World
    rooms: Rooms[Record]
    outer: trio.CancelScope
    inside: dict[str, Record] = attrs.field(factory=dict)
    scopes: dict[str, trio.CancelScope] = attrs.field(factory=dict)
    torn: bool = False

    def shut(self) -> None:
        """The rooms close in this step."""
        self.world.closing = min(self.world.closing, trio.current_time())
        self.world.closed = True
        self.world.say("rooms", "close")

    def note_stop(self, receipt: StopReceipt, what: str) -> None:
        self.world.say("chaos", f"{what}: {receipt.verdict.name} {receipt.turn_ids}")
        told = receipt.verdict in (StopVerdict.ASKED, StopVerdict.JOINED)
        if told is not bool(receipt.turn_ids):
            self.world.blame("stop", f"{receipt} contradicts itself")
        for turn_id in receipt.turn_ids:
            record = self.world.records[turn_id]
            record.stopped = min(record.stopped, trio.current_time())
            record.stopped_step = min(record.stopped_step, self.world.step())
            if record.turn.state in ("live", "waiting", "new"):
                self.world.blame(turn_id, f"{record.turn.state} after a stop")

    def note_retired(self, room: str) -> None:
        """A retirement, which gives no receipt, stops every turn of the room in this step."""
        for record in self.world.records.values():
            if record.turn.room == room and record.queued < NEVER and record.left == NEVER:
                record.stopped = min(record.stopped, trio.current_time())

    def check_all_told(self, rooms: tuple[str, ...], receipt: StopReceipt) -> None:
        """A stop of a room reaches each turn whose entering has begun and that is not over."""
        for record in self.world.records.values():
            turn = record.turn
            here = record.queued < NEVER and record.left == NEVER and turn.room in rooms
            gone = record.scope.cancel_called or self.outer.cancel_called or self.torn
            gone |= record.parent is not None and record.parent.turn.state != "live"
            if (
                here
                and not gone
                and turn.settlement is None
                and turn.turn_id not in receipt.turn_ids
            ):
                self.world.blame(turn.turn_id, "was not reached by a stop of its room")

    def enter(self, record: Record) -> None:
        """The body begins."""
        world, turn = self.world, record.turn
        world.say(turn.turn_id, f"enters {turn.room}")
        record.entered = trio.current_time()
        if turn.room in self.inside:
            world.blame(turn.turn_id, f"overlaps {self.inside[turn.room].turn.turn_id}")
        for other in world.records.values():
            if other is record or other.turn.room != turn.room or other.entered == NEVER:
                continue
            if other.turn.settlement is None:
                world.blame(turn.turn_id, f"entered before {other.turn.turn_id} is settled")
            if other.queued_step > record.queued_step:
                world.blame(turn.turn_id, f"came before {other.turn.turn_id}, entered after it")
        self.inside[turn.room] = record

    def leave(self, record: Record) -> None:
        """The body ends; its block has not left."""
        self.world.say(record.turn.turn_id, "leaves its body")
        record.body_left = trio.current_time()
        self.inside.pop(record.turn.room, None)


@attrs.define(eq=False)
class User:
    """One person, who takes one turn after the other."""

    name: str
    program: Program
    r: Dice

    async def run(self) -> None:
        for number in range(self.r.randrange(1, 5)):
            await trio.sleep(self.r.moment(2.0))
            await self.take_turn(f"{self.name}{number}")

    async def take_turn(self, turn_id: str, parent: Record | None = None) -> None:
        program, r = self.program, self.r
        world, block = program.world, Block.draw(r)
        record = Record(Script.draw(r), parent=parent)
        rooms = [room for room in ROOMS if parent is None or room != parent.turn.room]
        record.turn = turn = program.rooms.turn(r.choice(rooms), record, turn_id=turn_id)
        world.records[turn_id] = record
        if block.early:
            program.note_stop(turn.stop("early"), f"early stop of {turn_id}")
        record.scope = trio.CancelScope(deadline=trio.current_time() + block.timeout)
        program.scopes[self.name] = record.scope
        try:
            with record.scope:
                await self.enter(record, block)
        finally:
            record.left = trio.current_time()
            world.say(turn_id, f"has left: {turn!r}")

    async def enter(self, record: Record, block: Block) -> None:
        world, turn = self.program.world, record.turn
        record.queued, record.queued_step = trio.current_time(), world.step()
        world.say(turn.turn_id, f"wants {turn.room}: {block}")
        try:
            async with turn:
                self.program.enter(record)
                try:
                    await self.body(record, block)
                finally:
                    self.program.leave(record)
        except trio.Cancelled:
            record.cancelled = True
            raise
        except RoomsClosed:
            record.shut_out = True
            if not world.closing <= trio.current_time():
                world.blame(turn.turn_id, "RoomsClosed, and the rooms are open")
        except Boom as error:
            if error is not record.boom or error.__cause__ is not None:
                world.blame(turn.turn_id, f"left with {error!r}, not with the body's error")
        except BaseException as error:
            world.say(turn.turn_id, f"raises {error!r}")
            record.raised.append(error)

    async def body(self, record: Record, block: Block) -> None:
        if record.turn.state != "live":
            await trio.lowlevel.checkpoint()
            self.program.world.blame(record.turn.turn_id, "a stopped body gets past a checkpoint")
        kind = "read" if block.kind == "nest" and record.parent is not None else block.kind
        await getattr(self, f"body_{kind}")(record, block.lasts)

    async def body_read(self, record: Record, _lasts: float) -> None:
        await self.read(record, NEVER)
        record.to_end = True

    async def body_some(self, record: Record, lasts: float) -> None:
        await self.read(record, lasts)

    async def read(self, record: Record, most: float) -> None:
        record.read_from = trio.current_time()
        try:
            async for event in record.turn:
                self.hear(record, event)
                if len(record.heard) > most:
                    break
        finally:
            record.read_until = trio.current_time()

    async def body_nest(self, record: Record, lasts: float) -> None:
        """Take a turn of the other room inside: two who do so may wait for each other."""
        await trio.sleep(lasts)
        await self.take_turn(f"{record.turn.turn_id}+", record)

    async def body_sleep(self, _record: Record, lasts: float) -> None:
        await trio.sleep(lasts)

    async def body_fail(self, record: Record, lasts: float) -> None:
        await trio.sleep(lasts)
        record.boom = Boom(record.turn.turn_id)
        raise record.boom

    async def body_shield(self, record: Record, lasts: float) -> None:
        with trio.CancelScope(shield=True):
            await trio.sleep(lasts)
        await self.body_read(record, lasts)

    async def body_own(self, record: Record, lasts: float) -> None:
        await trio.sleep(lasts)
        self.program.note_stop(record.turn.stop("own"), f"own stop of {record.turn.turn_id}")
        await trio.lowlevel.checkpoint()
        self.program.world.blame(record.turn.turn_id, "a body gets past its own stop")

    async def body_apart(self, record: Record, lasts: float) -> None:
        self.program.world.asker.start_soon(self.read_apart, record)
        await trio.sleep(lasts)

    async def read_apart(self, record: Record) -> None:
        try:
            await self.body_read(record, 0.0)
        except Exception as error:
            self.program.world.say(record.turn.turn_id, f"gives its reader {error!r}")
            record.raised.append(error)
        if record.turn.settlement is None and not record.raised:
            self.program.world.blame(record.turn.turn_id, "its reader ended before it is settled")

    async def body_misuse(self, record: Record, lasts: float) -> None:
        turn, rooms = record.turn, self.program.rooms
        for wrong in (turn, rooms.turn(turn.room, Record(record.script))):
            try:
                async with wrong:
                    self.program.world.blame(turn.turn_id, "could be entered again")
            except RuntimeError:
                pass
        try:
            await rooms.retire(turn.room)
        except RuntimeError:
            await trio.sleep(lasts)
        else:
            self.program.world.blame(turn.turn_id, "could retire its own room")

    def hear(self, record: Record, event: Event) -> None:
        world, turn = self.program.world, record.turn
        text = event.delta if isinstance(event, Text) else getattr(event, "id", "")
        world.say(turn.turn_id, f"hears {text[:40]!r}")
        failed = isinstance(record.outcome, Exception)  # then the kernel stops it unasked
        if record.stopped < NEVER or (turn.state == "stopping" and not failed):
            world.blame(turn.turn_id, "heard something after its stop")
        for word in text.split():
            name, _, number = word.partition(":")
            if name != turn.turn_id or int(number) != len(record.heard) + 1:
                world.blame(turn.turn_id, f"heard {word} after {record.heard}")
            record.heard.append(int(number))
        if isinstance(event, Ask) and self.r.random() < 0.7:
            turn.answer(event, f"reply to {event.id}")
        elif isinstance(event, ToolCall):
            assert turn.answer(Ask(event.id, "question", "?"), "nobody asked") is False
