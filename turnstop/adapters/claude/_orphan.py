"""A turn whose process was begun by another process, which is gone: Claude goes on without it.

Claude writes its conversation to disk as it goes, each line with its own uuid, so that there is
something to resume. From that file it is known afterwards whether a turn had come to its end. The
form of it is what Claude Code 2.1.332 was seen to write, and what `claude-agent-sdk` 0.2.189 reads.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from uuid import UUID

import trio

from ...abc import End, How, Proof
from ...transports.orphans import ProcessAddress

# A message that stops for anything else goes on.
_COMPLETED = ("end_turn", "stop_sequence", "refusal")
# What Claude says in the place of the model.
_SYNTHETIC = "<synthetic>"


def find_home(env: Mapping[str, str | None]) -> Path:
    """Where Claude keeps its conversations, with this laid over the environment."""
    whole = {**os.environ, **env}
    return Path(whole.get("CLAUDE_CONFIG_DIR") or Path(whole.get("HOME") or Path.home(), ".claude"))


async def tell(home: Path, process: ProcessAddress) -> tuple[End, str | None]:
    """How the turn of a process that is gone has ended, and the session, where it is on disk.

    **Cancellation:** leaves the reading thread to end by itself.
    """
    look = partial(_read, home, process.session, process.turn)
    entries = await trio.to_thread.run_sync(look, abandon_on_cancel=True)
    if entries is None:
        return End(How.CANCELLED, Proof.PROCESS), None
    return _to_end(entries[-1] if entries else {}), process.session


def _read(home: Path, session: str, turn: str) -> list[Mapping[str, Any]] | None:
    """What the conversation has of the turn: its last word; None where it is not on disk."""
    path = _find(home, session)
    if path is None:
        return None
    found, last = False, list[Mapping[str, Any]]()
    for entry in _entries(path):
        if found and entry.get("type") in ("user", "assistant") and not entry.get("isSidechain"):
            last = [entry]
        found = found or (entry.get("uuid") == turn and entry.get("type") == "user")
    return last


def _find(home: Path, session: str) -> Path | None:
    try:
        # It comes from a file: it shall not name another.
        number = str(UUID(session))
    except ValueError:
        return None
    # The folder is named after where Claude works, in a way of its own.
    return next(iter(home.glob(f"projects/*/{number}.jsonl")), None)


def _entries(path: Path) -> Iterator[Mapping[str, Any]]:
    try:
        with path.open(encoding="utf-8", errors="replace") as file:
            for line in file:
                try:
                    entry = json.loads(line)
                except ValueError:
                    continue  # The last one was cut where its process was killed.
                if isinstance(entry, dict):
                    yield entry
    except OSError:
        return


def _to_end(last: Mapping[str, Any]) -> End:
    message = last.get("message")
    said = message if isinstance(message, dict) else {}
    if last.get("isApiErrorMessage"):
        return End(How.FAILED, Proof.PROCESS, detail=_text(said.get("content")))
    is_models = last.get("type") == "assistant" and said.get("model") != _SYNTHETIC
    completed = is_models and said.get("stop_reason") in _COMPLETED
    return End(How.COMPLETED if completed else How.CANCELLED, Proof.PROCESS)


def _text(content: object) -> str:
    blocks = content if isinstance(content, list) else ()
    return "\n".join(str(one.get("text", "")) for one in blocks if isinstance(one, dict))
