"""How an agent in memory speaks where it speaks otherwise than the protocol, as real ones do."""

from __future__ import annotations

from typing import Any

import attrs

__all__ = ["QUIRKS", "Quirks"]

_CAN = {"loadSession": True, "sessionCapabilities": {"resume": {}, "close": {}}}


@attrs.frozen
class Quirks:
    """What an agent says of itself, and what it gets wrong.

    Attributes:
        name: how it names itself.
        version: its version.
        capabilities: what it says that it can do.
        sign_after: after how many seconds it shows that it works on a prompt; None: it does not.
        loses_early: whether a cancel that comes before that sign is lost, and each later one too.
        misses: whether the first cancel of a prompt is not heard.
        stays: whether a cancelled prompt is answered, and the work goes on until its process ends.
        waits: whether a cancelled prompt is answered only when its questions are.
        error: what a prompt is answered that is cancelled before anything was said.
        resumes: whether it knows `session/resume`, which it may offer all the same.
        empty: whether a prompt that is cancelled before anything was said is answered as if it
            had completed.
        names_messages: whether each piece of an answer names its message; an empty one begins it.
        reads_on: whether a prompt that has come to a limit is answered, and the work goes on until
            a cancel comes.
        ahead: for how long after the answer to a cancelled prompt the work goes on, in seconds; a
            piece of an answer comes then, and what it has cost, where the process has counted the
            session's tokens: it does with the first words. `session/set_mode` waits for it, and it
            for the answers to what it asks.
    """

    name: str = ""
    version: str = ""
    capabilities: dict[str, Any] = attrs.field(factory=lambda: dict(_CAN))
    sign_after: float | None = None
    loses_early: bool = False
    misses: bool = False
    stays: bool = False
    waits: bool = False
    error: dict[str, Any] | None = None
    resumes: bool = True
    empty: bool = False
    names_messages: bool = False
    reads_on: bool = False
    ahead: float = 0.0


_LOADS: dict[str, Any] = {"loadSession": True}
_CLOSES: dict[str, Any] = {"loadSession": True, "sessionCapabilities": {"close": {}, "list": {}}}
_RESUMES: dict[str, Any] = {"loadSession": True, "sessionCapabilities": {"list": {}, "resume": {}}}

QUIRKS = {
    "generic": Quirks(names_messages=True),
    "copilot": Quirks("Copilot", "1.0.102", _CLOSES, sign_after=0.008, loses_early=True),
    "codex": Quirks("codex-acp", "0.16.0", stays=True),
    "codex-2": Quirks("@agentclientprotocol/codex-acp", "2.6.0"),
    "claude": Quirks(
        "@agentclientprotocol/claude-agent-acp", "0.49.0", names_messages=True, ahead=0.05
    ),
    "opencode": Quirks("OpenCode", "1.18.33", names_messages=True, empty=True),
    "gemini": Quirks("gemini-cli", "0.61.0", _LOADS, waits=True, reads_on=True),
    "qwen": Quirks(
        "qwen-code",
        "0.15.10",
        _RESUMES,
        waits=True,
        resumes=False,
        error={
            "code": -32603,
            "message": "Internal error",
            "data": {"details": "Request was aborted."},
        },
    ),
    "omp": Quirks("oh-my-pi", "18.2.3", names_messages=True),
    "cursor": Quirks("", "", _LOADS),
}
"""By the profile's name, as they were measured: codex's is the version that needs a remedy, and
`codex-2` the one that does not; Cursor's is the protocol and nothing else."""
