"""Every promise is removed once from the kernel and once from the adapters, and that is seen."""

from __future__ import annotations

import functools
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import attrs
import pytest
from killable import KillableProbe

from turnstop import _account, _admission, _calls, _gate, _life, _rooms, _turn, _watch
from turnstop.abc import Emit, End
from turnstop.testing import OBLIGATIONS, Probe, Stage, probe_backend
from turnstop.testing.inventory import Missing, load_probes
from turnstop.testing.probes.local import LocalProbe
from turnstop.testing.saboteurs import SABOTEURS, Matrix, Toothless, check_probe, play_matrix
from turnstop.testing.saboteurs.__main__ import main
from turnstop.testing.saboteurs._unseen import UNSEEN
from turnstop.testing.saboteurs._wrap import Ears, wrap
from turnstop.testing.saboteurs.adapters._ending import Apart

# Those in virtual time: over a thread it takes minutes.
PROBES: dict[str, tuple[str | type[Probe], int]] = {
    "local": ("local", 0),
    "claude": ("claude", 0),
    "codex": ("codex", 0),
    "copilot": ("copilot", 0),
    "acp": ("acp", 0),
    "acp-shared": ("acp", 1),
    "a2a": ("a2a", 0),
    "a2a-polling": ("a2a", 1),
    "a2a-plain": ("a2a", 2),
    "letta": ("letta", 0),
    "letta-agent": ("letta", 1),
    "opencode": ("opencode", 0),
    "parlant": ("parlant", 0),
    "killable": (KillableProbe, 0),
}


def probe_of(name: str) -> Callable[[], Probe]:
    adapter, number = PROBES[name]
    if not isinstance(adapter, str):
        return adapter
    try:
        return load_probes(adapter)[number]
    except Missing as error:
        pytest.skip(str(error))


@functools.cache
def play(name: str) -> Matrix:
    return play_matrix([probe_of(name)])


@pytest.mark.parametrize("name", PROBES)
def test_each_saboteur_is_caught_wherever_the_promise_is_kept(name: str) -> None:
    assert play(name).faults == []


@pytest.mark.parametrize("name", PROBES)
def test_what_is_seen_is_the_broken_promise_and_no_crash(name: str) -> None:
    crashed = [f"{cell}: {cell.text}" for cell in play(name).cells if cell.leaked]
    assert crashed == []


class Between(Apart):
    """Hands on all that it hears and is told, and removes nothing."""

    async def listen(self, emit: Emit) -> End:
        return await super().listen(Ears(emit, emit.ask))


@pytest.mark.parametrize("name", PROBES)
def test_what_saboteurs_are_made_of_breaks_nothing(name: str) -> None:
    make_probe = probe_of(name)
    report = probe_backend(lambda: wrap(make_probe(), Between))
    assert [f"{row.obligation.name}: {row.text}" for row in report.red] == []


def claims() -> Iterator[tuple[str, str]]:
    return ((name, one.name) for one in SABOTEURS.values() for name in one.breaks)


def test_each_saboteur_is_caught_somewhere_by_each_obligation_it_belongs_to() -> None:
    caught = {
        (cell.obligation, cell.saboteur)
        for name in PROBES
        for cell in play(name).cells
        if cell.caught
    }
    assert [claim for claim in claims() if claim not in caught] == []


# Who is let in when, and whose turn a stop is of: no adapter has a say in it.
ONLY_OF_THE_ROOMS = [
    "stop_of_a_room_reaches_its_queue",
    "room_is_first_come_first_served",
    "closing_rooms_take_no_turn",
]


@pytest.mark.parametrize(("where", "never"), [("kernel", []), ("adapter", ONLY_OF_THE_ROOMS)])
def test_each_promise_is_removed(where: str, never: list[str]) -> None:
    removed = {name for one in SABOTEURS.values() if one.where == where for name in one.breaks}
    assert [name for name in OBLIGATIONS if name not in removed] == never


def test_each_saboteur_belongs_to_obligations_that_there_are() -> None:
    assert [one.name for one in SABOTEURS.values() if not one.breaks] == []
    assert [claim for claim in claims() if claim[0] not in OBLIGATIONS] == []


def test_what_is_unseen_is_what_there_is() -> None:
    known = set(claims())
    assert [pair for pairs in UNSEEN.values() for pair in pairs if pair not in known] == []


def test_an_obligation_that_looks_at_nothing_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    async def look_away(stage: Stage) -> None:
        async with stage.open():
            await stage.begin()

    vacuous = attrs.evolve(OBLIGATIONS["completion_wins"], play=look_away)
    monkeypatch.setitem(OBLIGATIONS, "completion_wins", vacuous)
    matrix = play_matrix([LocalProbe], only=["completion_wins"])
    missed = "completion_wins with {} over local: green: what it promises was removed"
    names = [one.name for one in SABOTEURS.values() if "completion_wins" in one.breaks]
    assert matrix.faults == [missed.format(name) for name in names]


def functions_of_the_kernel() -> list[Any]:
    found: list[Any] = []
    for module in (_account, _admission, _calls, _gate, _life, _rooms, _turn, _watch):
        for value in vars(module).values():
            found.append(value)
            if isinstance(value, type):
                found += vars(value).values()
    return found


def test_the_kernel_is_honest_again_after_a_saboteur() -> None:
    before = functions_of_the_kernel()
    with ExitStack() as stack:
        for one in SABOTEURS.values():
            stack.enter_context(one.at_work(LocalProbe))
        assert functions_of_the_kernel() != before
    assert functions_of_the_kernel() == before


class Hasty(LocalProbe):
    """Its work ends at once, whatever its lever says."""

    def end_late(self, seconds: float) -> None:
        pass


def test_a_probe_that_bites_is_told_so() -> None:
    matrix = check_probe(LocalProbe, only=["settled_means_ended"])
    assert {cell.saboteur for cell in matrix.cells} >= {"AskingIsTheEnd", "FollowDawdles"}


def test_a_lever_that_does_nothing_is_found() -> None:
    assert not probe_backend(Hasty, only=["settled_means_ended"]).red
    with pytest.raises(Toothless) as caught:
        check_probe(Hasty, only=["settled_means_ended"])
    missed = [cell.saboteur for cell in caught.value.matrix.cells if not cell.caught]
    assert missed == ["AskingIsTheEnd"]
    assert "settled_means_ended with AskingIsTheEnd over local: green" in str(caught.value)


def test_what_is_said_to_be_unseen_must_be() -> None:
    pair = ("completion_wins", "CompletedIsCancelled")
    with pytest.raises(Toothless, match="the excuse is not true: nobody looks"):
        check_probe(LocalProbe, only=["completion_wins"], unseen={pair: "nobody looks"})


def test_the_matrix_is_printed_in_words(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "--only", "completion_wins", "--seen"]) == 0
    printed = capsys.readouterr().out
    assert "  adapter CompletedIsCancelled: caught over local" in printed
    assert "            local: it completed, and is stopped" in printed


def test_the_matrix_is_printed_for_machines(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "--only", "completion_wins", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["faults"] == []
    assert {cell["outcome"] for cell in found["cells"]} == {"red"}


def test_an_obligation_that_there_is_not_is_no_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["local", "--only", "nothing"]) == 2
    assert "there is no obligation nothing" in capsys.readouterr().err


def test_an_adapter_that_there_is_not_is_no_matrix(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["nobody"]) == 2
    assert "there is no adapter nobody" in capsys.readouterr().err
