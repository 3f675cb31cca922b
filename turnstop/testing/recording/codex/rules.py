"""What of codex's wire matters: the frames and fields that the adapter reads, and all it sends."""

from __future__ import annotations

from collections.abc import Sequence

import attrs

from ..._differences import Rule, jsonrpc_names
from ..._wire import WireFrame

__all__ = ["RULES", "codex_names", "rules_for"]

_TURN = ("params.threadId", "params.turnId")
_NEW_TURN = ("params.threadId", "params.turn.id")
_APPROVAL = "item/commandExecution/requestApproval"
_LIST = "thread/backgroundTerminals/list"
_TERMINATE = "thread/backgroundTerminals/terminate"
_TOTAL = "params.tokenUsage.total"
_LAST = "params.tokenUsage.last"

RULES: dict[str, Rule] = {
    "-> initialize": Rule(values=("params.capabilities.experimentalApi",)),
    "<- initialize = result": Rule(),
    "-> thread/start": Rule(
        values=("params.config", "params.sandbox", "params.approvalPolicy", "params.dynamicTools")
    ),
    "<- thread/start = result": Rule(ids=("result.thread.id",)),
    "-> turn/start": Rule(ids=("params.threadId",), values=("params.input.0.type",)),
    "<- turn/start = result": Rule(ids=("result.turn.id",)),
    "<- turn/started": Rule(ids=_NEW_TURN),
    "<- turn/completed": Rule(
        ids=_NEW_TURN,
        values=("params.turn.status",),
        kinds=("params.turn.error", "params.turn.error.message"),
    ),
    "<- item/agentMessage/delta": Rule(
        ids=(*_TURN, "params.itemId"), kinds=("params.delta",), repeats=True
    ),
    "<- item/completed agentMessage": Rule(
        ids=(*_TURN, "params.item.id"), kinds=("params.item.text",)
    ),
    "<- item/started commandExecution": Rule(
        ids=(*_TURN, "params.item.id"), kinds=("params.item.command",)
    ),
    "<- item/completed commandExecution": Rule(
        ids=(*_TURN, "params.item.id"),
        values=("params.item.status",),
        kinds=("params.item.command", "params.item.aggregatedOutput"),
        anywhere=True,
    ),
    "<- item/completed collabAgentToolCall": Rule(
        ids=(*_TURN, "params.item.receiverThreadIds.0"),
        values=("params.item.tool", "params.item.status"),
    ),
    "<- thread/tokenUsage/updated": Rule(
        ids=_TURN,
        kinds=tuple(f"{one}.{two}Tokens" for one in (_TOTAL, _LAST) for two in ("input", "output")),
        repeats=True,
        anywhere=True,
    ),
    "-> turn/interrupt": Rule(ids=_TURN, repeats=True),
    "<- turn/interrupt = error": Rule(values=("error.code", "error.message"), repeats=True),
    "<- turn/interrupt = result": Rule(values=("result",)),
    f"<- {_APPROVAL}": Rule(
        ids=(*_TURN, "params.itemId"), kinds=("params.command", "params.availableDecisions.0")
    ),
    # A stop takes an open approval back and interrupts in one instant: neither waits for the other.
    f"-> {_APPROVAL} = result": Rule(values=("result.decision",), anywhere=True),
    # It comes with an answer as well as with the end: the adapter takes it in any place.
    "<- serverRequest/resolved": Rule(
        ids=("params.threadId",), values=("params.requestId",), anywhere=True
    ),
    "-> thread/list": Rule(
        ids=("params.ancestorThreadId",), values=("params.useStateDbOnly",), repeats=True
    ),
    "<- thread/list = result": Rule(
        ids=("result.data.0.id", "result.data.0.parentThreadId"),
        kinds=("result.data", "result.data.0.preview", "result.nextCursor"),
    ),
    "-> thread/turns/list": Rule(ids=("params.threadId",), values=("params.limit",)),
    "<- thread/turns/list = result": Rule(
        ids=("result.data.0.id", "result.data.0.rootTurnId"), values=("result.data.0.status",)
    ),
    f"-> {_LIST}": Rule(ids=("params.threadId",)),
    f"<- {_LIST} = result": Rule(
        ids=("result.data.0.itemId", "result.data.0.processId"),
        kinds=("result.data", "result.nextCursor"),
    ),
    f"-> {_TERMINATE}": Rule(ids=("params.threadId", "params.processId")),
    f"<- {_TERMINATE} = result": Rule(values=("result.terminated",)),
}
"""By direction and name; see `codex_names`."""


def rules_for(scene: str) -> dict[str, Rule]:
    """The rules of one scene: what codex says in it at one time, and at another not.

    A stop at the start may come too early for it, or just in time. A command that waits for its
    approval is completed by a stop, or goes without a word.
    """
    sometimes = {
        "stop_while_starting": "<- turn/interrupt = error",
        "stop_while_an_approval_is_open": "<- item/completed commandExecution",
    }
    if (name := sometimes.get(scene)) is None:
        return RULES
    return {**RULES, name: attrs.evolve(RULES[name], optional=True)}


def codex_names(frames: Sequence[WireFrame]) -> list[str]:
    """JSON-RPC's names, the type of an item added, and what is said of sub-agents told apart."""
    names = jsonrpc_names(frames)
    own: set[object] = set()
    for place, frame in enumerate(frames):
        if names[place] == "thread/start = result":
            own.add(frame.body["result"]["thread"]["id"])
        params = frame.body.get("params") if isinstance(frame.body, dict) else None
        if frame.direction == "->" or not isinstance(params, dict):
            continue
        item = params.get("item")
        if isinstance(item, dict):
            names[place] += f" {item.get('type')}"
        if params.get("threadId") not in own:
            names[place] += " of another thread"
    return names
