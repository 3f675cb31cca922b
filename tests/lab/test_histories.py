"""What a history comes to: whose turn a request is, and what no real API would take."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from asking import DIALECTS, Dialect, Json, connect

from turnstop.lab import Exchange, Lab, open_lab

RECORDED = Path(__file__).parent / "recorded"
RESPONSES, CHAT, MESSAGES, GEMINI = DIALECTS
every_dialect = pytest.mark.parametrize("wire", DIALECTS, ids=lambda wire: wire.name)


async def take(lab: Lab, wire: Dialect, *items: Json, tools: bool = True) -> Exchange:
    """What the lab takes a request with this history to be; it is answered, or parked."""
    return await take_body(lab, wire.path(stream=True), wire.body(*items, tools=tools))


async def take_body(lab: Lab, path: str, body: Json) -> Exchange:
    async with connect(lab) as client:
        count = len(lab.exchanges)
        await client.ask(body, path)
        await lab.until(lambda: len(lab.exchanges) > count)
        exchange = lab.exchanges[-1]
        await lab.until(lambda: exchange.parked_at or exchange.ended_at)
    return exchange


@every_dialect
async def test_the_newest_prompt_is_the_turns(wire: Dialect) -> None:
    old, new = wire.user("[turn:a1] tool answer $ x"), wire.user("[turn:b2] tool park $ y")
    async with open_lab() as lab:
        exchange = await take(lab, wire, old, wire.call("c1"), wire.result("c1"), new)
        assert (exchange.token, exchange.behaviour.word) == ("b2", "tool")
        assert lab.requests("a1") == lab.side_requests("a1") == []


@every_dialect
async def test_what_programs_add_is_not_the_prompt(wire: Dialect) -> None:
    stopped = "[Request interrupted by user]"
    texts = ["<reminder>\nx\n</reminder>", "[turn:a1] park\n", stopped, "[turn:b2] park 2"]
    async with open_lab() as lab:
        exchange = await take(lab, wire, wire.user(*texts, "<reminder>\ny\n</reminder>"))
        assert (exchange.token, exchange.behaviour.number, exchange.side) == ("b2", 2, False)
        wrapped = "<time>1</time>\n\n[turn:c3] tool park $ sleep 60\necho\n\n<reminder>\nx"
        exchange = await take(lab, wire, wire.user(wrapped))
        assert exchange.behaviour.command == "sleep 60\necho"


@every_dialect
async def test_results_count_after_their_prompt_only(wire: Dialect) -> None:
    prompt = wire.user("[turn:a1] tool park $ x")
    async with open_lab() as lab:
        for items, word in [
            ([prompt], "tool"),
            ([prompt, wire.call("c1"), wire.result("c1")], "park"),
            ([prompt, wire.call("c1"), wire.result("c1"), prompt], "tool"),
        ]:
            assert (await take(lab, wire, *items)).behaviour.word == word
        assert lab.faults == []


@every_dialect
async def test_what_is_asked_without_tools_is_beside_the_turn(wire: Dialect) -> None:
    async with open_lab() as lab:
        items = [wire.user("Make a title."), wire.user("[turn:a1] park")]
        exchange = await take(lab, wire, *items, tools=False)
        assert exchange.side
        assert exchange.parked_at is None
        assert lab.requests("a1") == []
        assert lab.side_requests("a1") == [exchange]
        assert lab.side_requests("a") == []


@every_dialect
async def test_what_is_asked_after_the_answer_is_beside_the_turn(wire: Dialect) -> None:
    prompt, answer = wire.user("[turn:a1] park"), wire.model("piece 0 ")
    async with open_lab() as lab:
        exchange = await take(lab, wire, prompt, answer, wire.user("Sum it up."))
        assert lab.side_requests("a1") == [exchange]
        assert lab.requests("a1") == []
        # A call is no answer, and neither is silence: what is said then is said within the turn.
        for before in ([answer, wire.call("c1"), wire.result("c1")], [wire.model("")]):
            exchange = await take(lab, wire, prompt, *before, wire.user("Go on."))
            assert not exchange.side
        assert not (await take(lab, wire, prompt, answer, wire.user("Sum up."), prompt)).side


async def test_a_thought_is_no_answer() -> None:
    async with open_lab() as lab:
        thought = {"role": "model", "parts": [{"text": "Hm.", "thought": True}]}
        items = [GEMINI.user("[turn:a1] park"), thought, GEMINI.user("Go on.")]
        assert not (await take(lab, GEMINI, *items)).side


@every_dialect
async def test_what_has_no_token_at_all_is_beside_nothing(wire: Dialect) -> None:
    async with open_lab() as lab:
        exchange = await take(lab, wire, wire.user("x"), wire.model("y"), wire.user("z"))
        assert (exchange.token, exchange.side) == ("", False)


async def test_codex_has_tools_in_an_item_for_some_models() -> None:
    _, title = recorded("codex-title")
    async with open_lab() as lab:
        body = RESPONSES.body(title["input"][0], RESPONSES.user("[turn:a1] park"), tools=False)
        assert not (await take_body(lab, "/v1/responses", body)).side


@pytest.mark.parametrize(
    ("wire", "more"),
    [
        (RESPONSES, {"max_output_tokens": 1}),
        (CHAT, {"max_tokens": 1}),
        (CHAT, {"max_completion_tokens": 1}),
        (MESSAGES, {"max_tokens": 1}),
        (GEMINI, {"generationConfig": {"maxOutputTokens": 1}}),
    ],
)
async def test_a_check_of_the_account_is_beside_the_turn(wire: Dialect, more: Json) -> None:
    async with open_lab() as lab:
        body = wire.body(wire.user("[turn:a1] park")) | more
        assert (await take_body(lab, wire.path(stream=True), body)).side


@pytest.mark.parametrize(
    ("wire", "more"),
    [
        (RESPONSES, {"text": {"format": {"type": "json_schema", "schema": "SCHEMA"}}}),
        (CHAT, {"response_format": {"json_schema": {"schema": "SCHEMA"}}}),
        (MESSAGES, {"output_config": {"format": {"schema": "SCHEMA"}}}),
        (GEMINI, {"generationConfig": {"responseJsonSchema": "SCHEMA"}}),
        (GEMINI, {"generationConfig": {"responseSchema": "SCHEMA"}}),
    ],
)
async def test_who_asks_for_json_is_answered_with_json(wire: Dialect, more: Json) -> None:
    properties = {"score": {"type": "INTEGER"}, "parts": {"type": ["array"]}, "more": {}}
    schema = {"type": "OBJECT", "properties": properties, "required": ["score", "parts"]}
    more = json.loads(json.dumps(more).replace('"SCHEMA"', json.dumps(schema)))
    async with open_lab() as lab, connect(lab) as client:
        body = wire.body(wire.user("[turn:a1] park")) | more
        await client.ask(body, wire.path(stream=True))
        said = wire.read((await client.answer())[1])
        assert json.loads(said.text) == {"score": 1, "parts": []}
        assert lab.exchanges[0].side


def recorded(name: str) -> tuple[str, Any]:
    file = json.loads((RECORDED / f"{name}.json").read_text())
    return file["path"], file["body"]


@pytest.mark.parametrize(
    "name",
    [
        "claude-summary",
        "codex-summary",
        "codex-title",
        "copilot-summary",
        "gemini-router",
        "opencode-summary",
        "opencode-title",
        "qwen-summary",
    ],
)
async def test_what_the_programs_ask_beside_a_turn(name: str) -> None:
    path, body = recorded(name)
    async with open_lab() as lab:
        exchange = await take_body(lab, path, body)
        assert exchange.side
        assert lab.side_requests("t1") == [exchange]
        assert lab.faults == []


@pytest.mark.parametrize(
    ("name", "token", "word"),
    [
        ("claude-first", "t1", "answer"),
        ("claude-after-stops", "t10", "answer"),
        ("codex-after-a-stopped-tool", "t10", "answer"),
        ("copilot-after-a-stopped-tool", "t10", "answer"),
        ("gemini-first", "t1", "answer"),
        ("gemini-result", "t2", "answer"),
        ("omp-first", "t1", "answer"),
        ("opencode-after-a-stopped-tool", "t10", "answer"),
        ("qwen-after-stops", "t10", "answer"),
    ],
)
async def test_what_the_programs_ask_in_a_turn(name: str, token: str, word: str) -> None:
    path, body = recorded(name)
    async with open_lab() as lab:
        exchange = await take_body(lab, path, body)
        assert (exchange.token, exchange.behaviour.word) == (token, word)
        assert lab.requests(token) == [exchange]
        assert lab.faults == []


async def test_gemini_leaves_a_stopped_tool_without_its_response() -> None:
    async with open_lab() as lab:
        exchange = await take_body(lab, *recorded("gemini-after-a-stopped-tool"))
        (fault,) = lab.faults
        assert fault.token == exchange.token == "t6"
        assert "run_shell_command" in fault.text


CALL_SHELL: dict[str, Json] = {
    "claude-first": {"command": "ls"},
    "copilot-after-a-stopped-tool": {"command": "ls", "description": "W", "initial_wait": 600},
    "codex-after-a-stopped-tool": {"cmd": "ls", "yield_time_ms": 30_000},
    "gemini-first": {"command": "ls"},
    "omp-first": {"command": "ls", "i": "W"},
    "opencode-after-a-stopped-tool": {"command": "ls"},
    "qwen-after-stops": {"command": "ls"},
}


@pytest.mark.parametrize("name", CALL_SHELL)
async def test_each_programs_shell_is_called_with_what_it_requires(name: str) -> None:
    path, body = recorded(name)
    text = json.dumps(body)
    last = max(text.rfind("[turn:t10]"), text.rfind("[turn:t1]"))
    end = text.index("answer", last)
    body = json.loads(text[:end] + "tool answer $ ls" + text[end + len("answer") :])
    wire = next(one for one in DIALECTS if one.path(stream=True).partition("?")[0] == path)
    async with open_lab() as lab, connect(lab) as client:
        await client.ask(body, path)
        ((shell, arguments),) = wire.read((await client.answer())[1]).calls
        assert shell in ("Bash", "bash", "exec_command", "run_shell_command")
        words = json.dumps(arguments).replace(
            f"export TURNSTOP_LAB_TURN={lab.exchanges[0].token}; ", ""
        )
        assert json.loads(words.replace("a word of the lab's", "W")) == CALL_SHELL[name]


P = "[turn:a1] answer"


@every_dialect
@pytest.mark.parametrize("late", [False, True], ids=["at the end", "before another prompt"])
async def test_a_call_without_its_result_is_a_fault(wire: Dialect, late: bool) -> None:
    async with open_lab() as lab:
        after = [wire.user("[turn:b2] answer")] if late else []
        exchange = await take(lab, wire, wire.user(P), wire.call("c1"), *after)
        (fault,) = lab.faults
        assert (fault.request, fault.token) == (exchange.number, exchange.token)
        assert wire.shell in fault.text


@every_dialect
@pytest.mark.parametrize("how", ["none", "another", "again"])
async def test_a_result_without_its_call_is_a_fault(wire: Dialect, how: str) -> None:
    prompt, call, result = wire.user(P), wire.call("c1"), wire.result("c1")
    items = {
        "none": [prompt, wire.result("c0")],
        "another": [prompt, call, result, wire.model("x"), wire.user("y"), wire.result("c0")],
        "again": [prompt, call, result, result],
    }[how]
    async with open_lab() as lab:
        await take(lab, wire, *items)
        assert len(lab.faults) == 1


@pytest.mark.parametrize(
    ("wire", "items", "word"),
    [
        (CHAT, [CHAT.user(P), CHAT.call("c1"), CHAT.user("x"), CHAT.result("c1")], "without"),
        (CHAT, [CHAT.user(P), {"role": "assistant", "content": None}, CHAT.user(P)], "neither"),
        (MESSAGES, [MESSAGES.model("x"), MESSAGES.user(P)], "first"),
        (MESSAGES, [MESSAGES.user(P, " \n")], "blank"),
        (MESSAGES, [MESSAGES.user(P), MESSAGES.model(""), MESSAGES.user("x")], "blank"),
        (
            MESSAGES,
            [MESSAGES.user(P), MESSAGES.call("c1"), MESSAGES.user("x"), MESSAGES.result("c1")],
            "behind",
        ),
        (
            MESSAGES,
            [MESSAGES.user(P)] + [MESSAGES.call("c1"), MESSAGES.result("c1")] * 2,
            "again",
        ),
        (GEMINI, [GEMINI.user(P), {"role": "model", "parts": []}, GEMINI.user("x")], "parts"),
        (GEMINI, [GEMINI.call("c1"), GEMINI.result("c1"), GEMINI.user(P)], "after nothing"),
        (
            GEMINI,
            [GEMINI.user(P), GEMINI.model("x"), GEMINI.call("c1"), GEMINI.result("c1")],
            "after model",
        ),
    ],
)
async def test_what_only_one_api_refuses(wire: Dialect, items: list[Json], word: str) -> None:
    async with open_lab() as lab:
        await take(lab, wire, *items)
        assert any(word in fault.text for fault in lab.faults), lab.faults


def both_calls(wire: Dialect) -> list[Json]:
    """Two calls at once and their results, as the format has them."""
    one, two = (wire.call(key) for key in ("c1", "c2"))
    first, second = (wire.result(key) for key in ("c1", "c2"))
    if wire is GEMINI:
        return [
            {**one, "parts": one["parts"] + two["parts"]},
            {**first, "parts": first["parts"] + second["parts"]},
        ]
    if wire is MESSAGES:
        return [{**one, "content": one["content"] + two["content"]}, first, second]
    if wire is CHAT:
        return [{**one, "tool_calls": one["tool_calls"] + two["tool_calls"]}, second, first]
    return [one, two, second, first]


@every_dialect
async def test_what_the_apis_allow_is_no_fault(wire: Dialect) -> None:
    async with open_lab() as lab:
        await take(lab, wire, wire.user("x"), wire.user(P))
        await take(lab, wire, wire.user(P), *both_calls(wire))
        exchange = await take(lab, wire, wire.user(P), *both_calls(wire), wire.model("x"))
        assert lab.faults == []
        assert len(lab.requests("a1")) == exchange.number


async def test_a_message_of_the_systems_parts_no_call_from_its_result() -> None:
    async with open_lab() as lab:
        system = {"role": "system", "content": "# Environment"}
        items = [MESSAGES.user(P), MESSAGES.call("c1"), system, MESSAGES.result("c1")]
        await take(lab, MESSAGES, *items)
        assert lab.faults == []
