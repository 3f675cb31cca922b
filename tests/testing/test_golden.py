"""Golden wire: a difference that matters is told, and noise is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from turnstop.testing.golden import (
    Recordings,
    Rule,
    Wire,
    WireFrame,
    differences,
    read_frames,
    read_wire,
    tidy,
    write_wire,
)

RULES = {
    "-> start": Rule(ids=("params.thread",)),
    "<- start = result": Rule(ids=("result.turn.id",)),
    "<- delta": Rule(kinds=("params.text",), ids=("params.turn",), repeats=True),
    "<- tick": Rule(anywhere=True),
    "<- cancel = error": Rule(values=("error.code",), repeats=True, optional=True),
    "-> cancel": Rule(ids=("params.turn",), repeats=True),
    "<- cancel = result": Rule(),
    "<- completed": Rule(values=("params.status", "params.items.0.type"), ids=("params.turn",)),
}


def told(number: int, method: str, **params: Any) -> WireFrame:
    return WireFrame("->", {"id": number, "method": method, "params": params})


def said(method: str, **params: Any) -> WireFrame:
    return WireFrame("<-", {"method": method, "params": params})


def answer(number: int, **body: Any) -> WireFrame:
    return WireFrame("<-", {"id": number, **body})


def scene(turn: str = "U1", thread: str = "T1") -> list[WireFrame]:
    return [
        told(1, "start", thread=thread),
        answer(1, result={"turn": {"id": turn}}),
        said("tick"),
        said("delta", turn=turn, text="a"),
        said("delta", turn=turn, text="b"),
        told(2, "cancel", turn=turn),
        answer(2, result={}),
        said("completed", turn=turn, status="interrupted", items=[{"type": "text"}]),
    ]


def test_the_same_wire_with_other_ids_is_no_difference() -> None:
    assert differences(scene(), scene("018f-x", "th"), RULES) == []


def test_noise_is_no_difference() -> None:
    noisy = [
        said("warning", text="whatever"),
        told(1, "start", thread="T1", more=True),
        answer(1, result={"turn": {"id": "U1", "status": "new"}}),
        said("delta", turn="U1", text="all in one"),
        told(2, "cancel", turn="U1"),
        answer(2, error={"code": 7}),
        told(3, "cancel", turn="U1"),
        answer(3, error={"code": 7}),
        told(4, "cancel", turn="U1"),
        answer(4, result={}),
        said("completed", turn="U1", status="interrupted", items=[{"type": "text", "n": 1}]),
        said("tick"),
    ]
    assert differences(scene(), noisy, RULES) == []


@pytest.mark.parametrize(
    ("place", "frame", "lines"),
    [
        (0, told(1, "begin", thread="T1"), ["-> start: does not come", "-> begin: comes, and"]),
        (1, answer(1, error={"code": 1}), ["<- start = result: does not come"]),
        (2, said("warning"), ["<- tick: does not come"]),
        (3, said("delta", turn="U1", text=None), ["params.text is null, and not text"]),
        (3, said("delta", turn="U2", text=""), ['params.turn is "U2"; "U1" is "U1" elsewhere']),
        (5, told(2, "cancel", turn="T1"), ['params.turn is "T1"; "U1" is "U1" elsewhere']),
        (6, said("warning"), ["<- cancel = result: does not come after <- delta"]),
        (7, said("completed", turn="U1", status="completed"), ['"completed", and not "interru']),
        (7, said("completed", status="interrupted"), ['params.turn is absent, and not "U1"']),
        (7, said("completed"), ['params.items.0.type is absent, and not "text"']),
    ],
)
def test_a_difference_that_matters_is_told(place: int, frame: WireFrame, lines: list[str]) -> None:
    changed = scene()
    changed[place] = frame
    found = differences(scene(), changed, RULES)
    for line in lines:
        assert any(line in one for one in found), found


def test_two_things_are_not_one() -> None:
    golden = [*scene("U1"), *scene("U2")]
    assert any("params.turn is" in one for one in differences(golden, scene() + scene(), RULES))


def test_the_order_matters_and_what_comes_twice() -> None:
    swapped = scene()
    swapped[6:] = swapped[:5:-1]
    assert len(differences(scene(), swapped, RULES)) == 2
    twice = [*scene(), scene()[-1]]
    assert differences(scene(), twice, RULES) == [
        "<- completed: comes, and is not due after <- completed"
    ]


def test_what_may_come_anywhere_is_missed_behind_nothing() -> None:
    without = [*scene()[:2], *scene()[3:]]
    assert differences(scene(), without, RULES) == ["<- tick: does not come"]


def test_what_is_of_one_machine_or_one_run_is_taken_out(tmp_path: Path) -> None:
    number = "0198c6b2-1f3a-7d10-9c55-0123456789ab"
    body = {
        "cwd": "/home/me/work/x",
        "id": number,
        "call": "call_0123456789abcdef0123456789abcdef",
        "again": f"of {number}",
        "url": "http://127.0.0.1:40123/v1",
        "startedAt": 1795994283,
        "durationMs": 12,
        "count": 12,
        "when": "2026-01-01T10:00:00.123Z",
    }
    frames = tidy([WireFrame("<-", body)], {"/home/me": "<home>", "/home/me/work": "<work>"})
    write_wire(tmp_path / "x.jsonl", Wire("p", "1", "s", frames))
    wire = read_wire(tmp_path / "x.jsonl")
    assert (wire.program, wire.version, wire.scene) == ("p", "1", "s")
    assert wire.frames == read_frames(tmp_path / "x.jsonl") == frames
    assert frames[0].body == {
        "cwd": "<work>/x",
        "id": "<1>",
        "call": "call_<2>",
        "again": "of <1>",
        "url": "http://<loopback>/v1",
        "startedAt": 0,
        "durationMs": 0,
        "count": 12,
        "when": "<time>",
    }


def test_a_file_without_a_header_is_no_recording(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"->": {}}\n')
    with pytest.raises(ValueError, match="has no header: 'program'"):
        read_wire(path)


def test_a_folder_of_recordings_is_of_one_program_and_of_its_scenes(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path / "wire", "p", RULES)
    assert recordings.misfits(["x"]) == ["x: has no recording"]
    for name in ("x", "y"):
        recordings.write(name, "1", scene())
    assert recordings.read("x") == Wire("p", "1", "x", tuple(scene()))
    assert recordings.misfits(["x"]) == ["y: is no scene"]
    write_wire(tmp_path / "wire" / "y.jsonl", Wire("q", "1", "x", ()))
    assert recordings.misfits("xy") == ["y: says that it is of q, x"]


def test_recordings_are_held_to_the_rules_of_their_program(tmp_path: Path) -> None:
    recordings = Recordings(tmp_path, "p", RULES)
    recordings.write("x", "1", scene())
    assert recordings.differences("x", scene("U2", "T2")) == []
    without = scene()[:-1]
    lines = ["<- completed: does not come after <- cancel = result"]
    assert recordings.differences("x", without) == lines
    mild = {**RULES, "<- completed": Rule(optional=True)}
    assert recordings.differences("x", without, mild) == []


def test_what_is_told_matters_and_what_has_a_rule_and_of_the_noise_what_is_named() -> None:
    frames = [*scene(), said("warning"), said("chatter"), told(9, "whatever")]
    kept = Recordings(Path(), "p", RULES).matter(frames, ["warning"])
    assert [frame for frame, _ in kept] == [one for one in frames if one != said("chatter")]
    assert [name for _, name in kept][-2:] == ["warning", "whatever"]
