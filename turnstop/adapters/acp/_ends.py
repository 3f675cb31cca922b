"""What the answer to a prompt says of the turn's end.

`StopReason` and `PromptResponse` of the Agent Client Protocol, version 1.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from ...abc import End, How, Proof
from ...events import Event, Other, Usage
from ...transports.jsonrpc import RpcError

__all__ = ["to_detail", "to_end", "to_last_events"]

_HOW = {"cancelled": How.CANCELLED, "refusal": How.FAILED}
_DETAIL = {"refusal": "the agent refused to go on, and forgets the prompt"}
_PLAIN = ("end_turn", "cancelled")


def to_end(answer: Mapping[str, Any], proof: Proof, *, empty: bool) -> End:
    """The end that an answer tells; `empty` where a completion is none, for nothing was done.

    A turn that came to a limit has completed: what it said is there, and can be gone on with.
    """
    reason = answer["stopReason"]
    how = _HOW.get(reason, How.COMPLETED)
    if how is How.COMPLETED and empty:
        how = How.SILENT
    return End(how, proof, _to_usage(answer), _DETAIL.get(reason, ""))


def to_detail(error: RpcError) -> str:
    """What an error in the place of the answer tells: some keep the cause in what comes along."""
    details = error.data.get("details") if isinstance(error.data, dict) else None
    return f"{error}: {details}" if isinstance(details, str) else str(error)


def to_last_events(answer: Mapping[str, Any]) -> Iterator[Event]:
    """What an answer tells beside the end: the cost of the turn, and a reason that is not plain."""
    if (usage := _to_usage(answer)) is not None:
        yield usage
    if answer["stopReason"] not in _PLAIN:
        yield Other(answer["stopReason"], raw=answer)


def _to_usage(answer: Mapping[str, Any]) -> Usage | None:
    """What a prompt's answer says that the turn has cost."""
    told = answer.get("usage")
    if not isinstance(told, dict):
        return None
    return Usage(_count(told.get("inputTokens")), _count(told.get("outputTokens")), raw=told)


def _count(tokens: object) -> int | None:
    return tokens if isinstance(tokens, int) else None
