"""What a Letta server says, as JSON values, in the form that 0.16.8 gives them."""

from __future__ import annotations

import json
from typing import Any, Final, TypeAlias

Answer: TypeAlias = dict[str, Any]
URL: Final = "http://letta.test"

_DATE: Final = "2026-01-01T00:00:00+00:00"
_NULLS: Final = ("name", "otid", "sender_id", "step_id", "is_err", "seq_id", "run_id")


def message(kind: str, number: str, **said: object) -> Answer:
    """A message of a stream."""
    nulls = dict.fromkeys(_NULLS)
    return {"id": number, "date": _DATE, **nulls, "message_type": kind, **said}


def ping(number: int, run_id: str) -> Answer:
    """The sign of life that a stream begins with, and that tells the run."""
    return message("ping", f"ping-{number}", run_id=run_id)


def stop_reason(reason: str) -> Answer:
    """Why the run ended."""
    return {"message_type": "stop_reason", "stop_reason": reason}


def usage(asked: int = 1, said: int = 1) -> Answer:
    """The tokens of a run."""
    tokens = {"completion_tokens": said, "prompt_tokens": asked, "total_tokens": asked + said}
    return {"message_type": "usage_statistics", **tokens, "step_count": 1, "run_ids": None}


def error(run_id: str, kind: str, text: str) -> Answer:
    """What went wrong in a run."""
    said = {"error_type": kind, "message": text, "detail": None, "seq_id": None}
    return {"message_type": "error_message", "run_id": run_id, **said}


def event(said: Answer, kind: str = "") -> str:
    """A value as an event of a stream."""
    name = f"event: {kind}\n" if kind else ""
    return f"{name}data: {json.dumps(said)}\n\n"


DONE: Final = "data: [DONE]\n\n"
