"""What the kernel tells a journal, and what it does with turns that another process has left."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import attrs
import pytest
import trio

from turnstop import (
    BackendLost,
    BackendMisbehaved,
    BackendRefused,
    Ending,
    Settlement,
    StopBudget,
    open_rooms,
)
from turnstop._house import ANNOUNCED_WITHIN, Orphan
from turnstop.abc import Emit, End, How, Request
from turnstop.journal import open_journal


@attrs.define(eq=False)
class Entry:
    """Notes go into the journal's log, with the turn's id."""

    turn_id: str
    log: list[tuple[Any, ...]]
    saves_within: float = 0.0

    def note_address(self, address: str) -> None:
        self.log.append((self.turn_id, "address", address))

    def note_asked(self, request: Any) -> None:
        self.log.append((self.turn_id, "asked", request.kind))

    def note_settled(self, settlement: Settlement) -> None:
        self.log.append((self.turn_id, "settled", settlement.ending))

    def note_left(self) -> None:
        self.log.append((self.turn_id, "left"))

    async def saved(self) -> None:
        await trio.sleep(self.saves_within)


@attrs.define(eq=False)
class Notebook:
    """A journal in memory.

    Attributes:
        left: what is found, at each look.
        looks: when it was looked for.
        looks_for: seconds, for which a look cannot be cancelled.
    """

    left: list[list[Orphan]] = attrs.field(factory=list)
    log: list[tuple[Any, ...]] = attrs.field(factory=list)
    looks: list[tuple[str, bool, float]] = attrs.field(factory=list)
    looks_for: float = 0.0
    saves_within: float = 0.0

    def admit(self, backend: str, room: str, turn_id: str) -> Entry:
        self.log.append((turn_id, "admitted", backend, room))
        return Entry(turn_id, self.log, self.saves_within)

    async def take_over(self, backend: str, *, again: bool = False) -> Sequence[Orphan]:
        self.looks.append((backend, again, trio.current_time()))
        if again:
            with trio.CancelScope(shield=True):
                await trio.sleep(self.looks_for)
        return self.left.pop(0) if self.left else []

    def orphan(self, room: str, turn_id: str, address: str | None = "there") -> Orphan:
        return Orphan(room, turn_id, address, Entry(turn_id, self.log))


@attrs.define(eq=False, slots=False)
class Far:
    """A backend whose turns end a second after they were told to."""

    name = "far"
    log: list[str] = attrs.field(factory=list)
    announced: float = 0.0

    async def start(self, request: Request[str]) -> Remote:
        begun = trio.current_time()
        await request.announce(f"at {request.turn_id}")
        self.announced = trio.current_time() - begun
        self.log.append(f"start {request.turn_id}")
        return Remote(f"at {request.turn_id}")

    async def attach(self, address: str) -> Remote:
        self.log.append(f"attach {address}")
        return Remote(address)


class Remote:
    session = None

    def __init__(self, address: str) -> None:
        self.address = address
        self.told = trio.Event()

    async def follow(self, emit: Emit) -> End:
        await self.told.wait()
        await trio.sleep(1)
        return End(How.CANCELLED)

    async def cancel(self, sent: Any) -> None:
        sent()
        self.told.set()


async def test_each_step_of_a_turn_is_noted() -> None:
    notebook = Notebook()
    async with open_rooms(Far(), journal=notebook) as rooms:
        async with rooms.turn("kitchen", "bake", turn_id="1") as turn:
            await trio.sleep(1)
            turn.stop()
    assert notebook.log == [
        ("1", "admitted", "far", "kitchen"),
        ("1", "address", "at 1"),
        ("1", "address", "at 1"),
        ("1", "asked", "stop"),
        ("1", "settled", Ending.STOPPED),
    ]


async def test_a_backend_without_a_name_is_called_by_its_class() -> None:
    class Nameless:
        async def start(self, request: Request[str]) -> Remote:
            raise BackendRefused("no")

    notebook = Notebook()
    async with open_rooms(Nameless(), journal=notebook):
        pass
    assert [name for name, _, _ in notebook.looks] == [f"{__name__}.{Nameless.__qualname__}"]


async def test_an_announcement_is_waited_for_no_longer_than_its_bound() -> None:
    for saves_within, waited in ((0.1, 0.1), (1e6, ANNOUNCED_WITHIN)):
        far = Far()
        async with open_rooms(far, journal=Notebook(saves_within=saves_within)) as rooms:
            async with rooms.turn("kitchen", "bake"):
                await trio.sleep(2)
        assert abs(far.announced - waited) < 1e-6


async def test_a_stop_ends_the_wait_for_an_announcement() -> None:
    far = Far()
    async with open_rooms(far, journal=Notebook(saves_within=1e6)) as rooms:
        async with rooms.turn("kitchen", "bake") as turn:
            await trio.sleep(0.1)
            asked = trio.current_time()
            turn.stop()
        assert trio.current_time() == asked
    assert turn.ending is Ending.UNSTARTED
    assert far.log == []


async def test_a_stop_ends_the_wait_for_every_announcement() -> None:
    class Twofold(Far):
        refused = 0

        async def start(self, request: Request[str]) -> Remote:
            async with trio.open_nursery() as nursery:
                for _ in range(2):
                    nursery.start_soon(self.tell, request)
            raise BackendRefused("neither may be sent")

        async def tell(self, request: Request[str]) -> None:
            with pytest.raises(BackendRefused):
                await request.announce("there")
            self.refused += 1

    class Uneven(Notebook):
        def admit(self, backend: str, room: str, turn_id: str) -> Entry:
            return Quick(turn_id, self.log)

    class Quick(Entry):
        waits = 0

        async def saved(self) -> None:
            self.waits += 1
            await trio.sleep(0.05 if self.waits == 2 else 1e6)

    far = Twofold()
    async with open_rooms(far, journal=Uneven()) as rooms:
        async with rooms.turn("kitchen", "bake") as turn:
            # One of them is refused by the stop only when its own wait is over.
            await trio.sleep(0.01)
            turn.stop()
        assert trio.current_time() == 0.01
    assert (far.refused, turn.ending) == (2, Ending.UNSTARTED)


async def test_nothing_is_announced_of_a_turn_that_is_over(nursery: trio.Nursery) -> None:
    class Failing(Far):
        announces = True
        requests: list[Request[str]] = []  # noqa: RUF012

        async def start(self, request: Request[str]) -> Remote:
            self.requests.append(request)
            if request.content == "late":
                nursery.start_soon(self.announce)
                await trio.sleep(0.1)
            raise BackendLost("it is gone", gone=True)

        async def announce(self) -> None:
            with pytest.raises(BackendRefused):
                await self.requests[-1].announce("there")
            self.log.append("refused")

    far, notebook = Failing(), Notebook(saves_within=1e6)
    async with open_rooms(far, journal=notebook) as rooms:
        with pytest.raises(BackendLost):
            async with rooms.turn("kitchen", "bake", turn_id="1"):
                await trio.sleep(1)
        await far.announce()
        assert notebook.log == []
        with pytest.raises(BackendLost):
            async with rooms.turn("kitchen", "late", turn_id="2"):
                await trio.sleep(1)
        await trio.sleep(1)
    assert far.log == ["refused"] * 2
    assert [row[1] for row in notebook.log] == ["admitted", "address", "settled"]


async def test_who_keeps_a_request_keeps_no_turn_that_is_over() -> None:
    class Keeping(Far):
        requests: list[Request[str]] = []  # noqa: RUF012

        async def start(self, request: Request[str]) -> Remote:
            self.requests.append(request)
            return await super().start(request)

    far = Keeping()
    async with open_rooms(far, journal=Notebook()) as rooms:
        async with rooms.turn("kitchen", "bake") as turn:
            await trio.sleep(0.1)
        life = weakref.ref(turn._life)
        gc.collect()
        gc.disable()
        try:
            del turn
            assert life() is None
        finally:
            gc.enable()
    assert len(far.requests) == 1


async def test_of_what_a_backend_says_of_itself_nothing_can_end_a_turn() -> None:
    class Fickle(Far):
        reads = 0

        @property
        def announces(self) -> bool:
            self.reads += 1
            if self.reads > 1:
                raise ValueError("not now")
            return False

        name = announces  # type: ignore[assignment]

    for journal in (None, Notebook()):
        fickle = Fickle()
        fickle.reads = -1
        async with open_rooms(fickle, journal=journal) as rooms:
            for _ in range(3):
                async with rooms.turn("kitchen", "bake"):
                    await trio.sleep(0.1)
            assert rooms.statistics().rooms == 0
        # Once each, and not at all where nothing is noted.
        assert fickle.reads == (-1 if journal is None else 1)


async def test_who_announces_after_a_stop_waits_for_nothing() -> None:
    class Late(Far):
        async def start(self, request: Request[str]) -> Remote:
            with trio.CancelScope(shield=True):
                await trio.sleep(1)
            return await super().start(request)

    far = Late()
    async with open_rooms(far, journal=Notebook(saves_within=1e6)) as rooms:
        async with rooms.turn("kitchen", "bake") as turn:
            await trio.sleep(0.1)
            turn.stop()
        assert trio.current_time() == 1
    assert turn.ending is Ending.UNSTARTED
    assert far.log == []


async def test_the_asking_is_noted_before_the_end_also_where_nothing_began() -> None:
    notebook = Notebook()
    async with open_rooms(Far(), journal=notebook) as rooms:
        async with rooms.turn("kitchen", "bake", turn_id="1") as turn:
            turn.stop()
    assert notebook.log == [
        ("1", "admitted", "far", "kitchen"),
        ("1", "asked", "stop"),
        ("1", "settled", Ending.UNSTARTED),
    ]


async def test_without_a_journal_an_announcement_is_nothing() -> None:
    far = Far()
    async with open_rooms(far) as rooms, rooms.turn("kitchen", "bake"):
        await trio.sleep(1)
    assert far.announced == 0.0


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("address", [7, None, Path("here")])
async def test_what_is_announced_is_a_str(address: Any, keeps: bool) -> None:
    class Elsewhere(Far):
        async def start(self, request: Request[str]) -> Remote:
            with pytest.raises(TypeError, match="a turn's address is a str: got "):
                await request.announce(address)
            raise BackendRefused("so it is not begun")

    async with open_rooms(Elsewhere(), journal=Notebook() if keeps else None) as rooms:
        with pytest.raises(BackendRefused, match="so it is not begun"):
            async with rooms.turn("kitchen", "bake") as turn:
                async for _ in turn:
                    pass


@pytest.mark.parametrize("address", [7, Path("here")])
async def test_a_turn_that_tells_no_str_of_where_it_is_has_failed_and_is_stopped(
    address: Any,
) -> None:
    made: list[Remote] = []

    class Elsewhere(Far):
        async def start(self, request: Request[str]) -> Remote:
            made.append(Remote(address))
            return made[-1]

    async with open_rooms(Elsewhere(), journal=Notebook()) as rooms:
        with pytest.raises(BackendMisbehaved, match="a turn's address is a str: got "):
            async with rooms.turn("kitchen", "bake") as turn:
                async for _ in turn:
                    pass
    assert made[0].told.is_set()
    assert turn.ending is Ending.FAILED


async def test_what_was_left_holds_its_room_and_is_stopped() -> None:
    notebook, far, found = Notebook(), Far(), list[Settlement]()
    notebook.left = [[notebook.orphan("a", "a-1"), notebook.orphan("b", "b-1")]]
    async with open_rooms(far, journal=notebook, observers=[found.append]) as rooms:
        assert rooms.statistics().stopping == 2
        async with rooms.turn("c", "bake", turn_id="c-2"):
            assert trio.current_time() == 0.0
            async with rooms.turn("a", "bake", turn_id="a-2"):
                assert trio.current_time() == 1.0
                await trio.sleep(0.1)
    assert far.log[:2] == ["attach there", "attach there"]
    assert far.log.index("attach there") < far.log.index("start a-2")
    recovered = [one for one in found if one.request and one.request.kind == "recovery"]
    assert sorted((one.room, one.turn_id, one.ending) for one in recovered) == [
        ("a", "a-1", Ending.STOPPED),
        ("b", "b-1", Ending.STOPPED),
    ]
    assert ("a-1", "settled", Ending.STOPPED) in notebook.log
    assert ("a-1", "admitted", "far", "a") not in notebook.log


async def test_rooms_that_are_cancelled_at_once_end_what_was_left() -> None:
    notebook, far = Notebook(), Far()
    notebook.left = [[notebook.orphan("a", "a-1")]]
    with trio.CancelScope() as scope:
        async with open_rooms(far, journal=notebook):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert ("a-1", "settled", Ending.STOPPED) in notebook.log


async def test_of_two_in_a_room_both_are_ended_where_the_rooms_are_cancelled_meanwhile() -> None:
    notebook, far = Notebook(), Far()
    notebook.left = [[notebook.orphan("a", "a-1"), notebook.orphan("a", "a-2")]]
    with trio.CancelScope() as scope:
        async with open_rooms(far, journal=notebook):
            scope.cancel()
            await trio.lowlevel.checkpoint()
    assert sorted(row[:3] for row in notebook.log if row[1] == "settled") == [
        ("a-1", "settled", Ending.STOPPED),
        ("a-2", "settled", Ending.STOPPED),
    ]
    assert far.log == ["attach there"] * 2


async def recover(backend: Any, address: str | None) -> Settlement:
    notebook, found = Notebook(), list[Settlement]()
    notebook.left = [[notebook.orphan("a", "a-1", address)]]
    async with open_rooms(backend, journal=notebook, observers=[found.append]):
        pass
    (settlement,) = found
    assert notebook.log[-1] == ("a-1", "settled", settlement.ending)
    return settlement


async def test_what_cannot_be_taken_up_may_be_alive() -> None:
    class Deaf:
        async def start(self, request: Request[str]) -> Remote:
            raise BackendRefused("no")

    for backend, address, says in (
        (Deaf(), "there", "cannot take up"),
        (Far(), None, "before it was known where"),
    ):
        settlement = await recover(backend, address)
        assert (settlement.ending, settlement.gone) == (Ending.UNCONFIRMED, False)
        assert says in str(settlement.errors[0])


async def test_an_announcing_backend_s_turn_is_noted_with_its_address() -> None:
    class Announcing(Far):
        announces = True

        async def start(self, request: Request[str]) -> Remote:
            await trio.sleep(1)
            assert notebook.log == []
            return await super().start(request)

    # A disk that fails is not waited for: what it has of the turn may be all that it will have.
    notebook = Notebook(saves_within=1e6)
    async with open_rooms(Announcing(), journal=notebook) as rooms:
        async with rooms.turn("kitchen", "bake", turn_id="1"):
            await trio.sleep(5)
    assert notebook.log[:2] == [("1", "admitted", "far", "kitchen"), ("1", "address", "at 1")]
    settlement = await recover(Announcing(), None)
    assert (settlement.ending, settlement.gone) == (Ending.UNCONFIRMED, False)


async def test_what_an_announcing_backend_does_not_announce_is_noted_when_it_is_revealed() -> None:
    class Silent(Far):
        announces = True

        async def start(self, request: Request[str]) -> Remote:
            return Remote("there")

    notebook = Notebook()
    async with open_rooms(Silent(), journal=notebook) as rooms:
        async with rooms.turn("kitchen", "bake", turn_id="1"):
            await trio.sleep(1)
    assert notebook.log[:2] == [("1", "admitted", "far", "kitchen"), ("1", "address", "there")]


async def test_what_waits_for_its_room_is_stopped_when_it_has_it_and_has_its_whole_time() -> None:
    notebook, far, found = Notebook(), Far(), list[Settlement]()
    notebook.left = [[notebook.orphan("a", f"a-{number}") for number in range(3)]]
    budget = StopBudget(cancel_within=1.5, kill_within=0.1)
    async with open_rooms(far, journal=notebook, observers=[found.append], budget=budget) as rooms:
        await trio.sleep(0.5)
        assert len(rooms.stop("a").turn_ids) == 3
    assert [one.ending for one in found] == [Ending.STOPPED] * 3
    assert [one.request and one.request.kind for one in found] == ["recovery"] * 3
    assert [one.asked_at for one in found] == [0.0, 1.0, 2.0]
    assert far.log == ["attach there"] * 3


async def test_a_room_that_has_gone_on_keeps_its_session() -> None:
    class Keeping(Far):
        told: list[object] = []  # noqa: RUF012

        async def start(self, request: Request[str]) -> Remote:
            self.told.append(request.session)
            return Kept("mine")

        async def attach(self, address: str) -> Remote:
            return Kept("theirs")

    class Kept(Remote):
        def __init__(self, session: str) -> None:
            super().__init__("there")
            self.session = session  # type: ignore[assignment]

    notebook, far = Notebook(), Keeping()
    notebook.left = [[notebook.orphan("b", "b-1")], [notebook.orphan("a", "a-1")]]
    async with open_rooms(far, journal=notebook) as rooms:
        for room in ("a", "b"):
            async with rooms.turn(room, "bake"):
                await trio.sleep(1)
        await trio.sleep(20)
        for room in ("a", "b"):
            async with rooms.turn(room, "bake"):
                await trio.sleep(1)
    assert far.told == [None, "theirs", "mine", "mine"]


async def test_what_may_be_alive_in_a_room_is_told_although_another_turn_was_taken_up() -> None:
    class Half(Far):
        seen: list[object] = []  # noqa: RUF012

        async def start(self, request: Request[str]) -> Remote:
            self.seen.append(request.previous and request.previous.turn_id)
            return await super().start(request)

    notebook, half = Notebook(), Half()
    notebook.left = [[notebook.orphan("a", "lost", None)], [notebook.orphan("a", "found")]]
    async with open_rooms(half, journal=notebook) as rooms:
        await trio.sleep(15)
        assert ("found", "settled", Ending.STOPPED) in notebook.log
        async with rooms.turn("a", "bake"):
            await trio.sleep(1)
    assert half.seen == ["lost"]


async def test_what_is_no_journal_is_refused() -> None:
    for wrong in ("turns.db", open_journal("turns.db")):
        with pytest.raises(TypeError, match="as `async with open_journal"):
            async with open_rooms(Far(), journal=wrong):  # type: ignore[arg-type]
                raise AssertionError


async def test_it_is_looked_again_until_the_rooms_close() -> None:
    notebook = Notebook()
    async with open_rooms(Far(), journal=notebook):
        await trio.sleep(25)
    closed = trio.current_time()
    await trio.sleep(25)
    assert closed == 25
    assert notebook.looks == [("far", False, 0), ("far", True, 10), ("far", True, 20)]


async def test_rooms_that_close_look_no_more_however_long_that_takes(nursery: trio.Nursery) -> None:
    notebook = Notebook()

    async def cling() -> None:
        async with rooms.turn("a", "bake"):
            with trio.CancelScope(shield=True):
                await trio.sleep(25)

    async with open_rooms(Far(), journal=notebook) as rooms:
        nursery.start_soon(cling)
        await trio.sleep(1)
    assert trio.current_time() == 25
    assert notebook.looks == [("far", False, 0)]


async def test_what_is_found_later_is_the_next_in_its_room() -> None:
    notebook, far = Notebook(), Far()
    notebook.left = [[], [notebook.orphan("a", "a-1")]]

    async def take(turn_id: str, seconds: float) -> None:
        async with rooms.turn("a", "bake", turn_id=turn_id):
            await trio.sleep(seconds)

    async with open_rooms(far, journal=notebook) as rooms, trio.open_nursery() as nursery:
        nursery.start_soon(take, "a-2", 15)
        await trio.sleep(1)
        nursery.start_soon(take, "a-3", 1)
    assert far.log == ["start a-2", "attach there", "start a-3"]


async def test_what_is_found_while_rooms_close_is_left() -> None:
    notebook, far = Notebook(looks_for=5), Far()
    notebook.left = [[], [notebook.orphan("a", "a-1")]]
    async with open_rooms(far, journal=notebook):
        await trio.sleep(12)
    assert notebook.left == []
    assert notebook.log == [("a-1", "left")]
    assert far.log == []


async def test_what_does_not_end_is_unconfirmed_in_its_budget() -> None:
    class Stubborn(Far):
        async def attach(self, address: str) -> Remote:
            await trio.sleep_forever()
            raise AssertionError

    notebook, found = Notebook(), list[Settlement]()
    notebook.left = [[notebook.orphan("a", "a-1")]]
    budget = StopBudget(cancel_within=2, kill_within=1)
    async with open_rooms(
        Stubborn(), budget=budget, journal=notebook, observers=[found.append]
    ) as rooms:
        async with rooms.turn("a", "bake", turn_id="a-2"):
            assert trio.current_time() <= 3
    assert found[0].ending is Ending.UNCONFIRMED
