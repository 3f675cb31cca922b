"""What a turn says, in the same words for every adapter.

Each event keeps the provider's own frame as `raw`. `raw` is for the reader: it takes no part in
equality, is left out of the repr, and is never logged.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import attrs


def _raw() -> object:
    return attrs.field(default=None, repr=False, eq=False, kw_only=True)


@attrs.frozen
class Text:
    """A piece of the answer. While the reader is behind, neighbouring pieces arrive as one."""

    delta: str
    raw: object = _raw()


@attrs.frozen
class Thought:
    """A piece of the agent's reasoning, merged like `Text`."""

    delta: str
    raw: object = _raw()


@attrs.frozen
class ToolCall:
    """A tool that the agent runs; the same `id` comes back as its state moves on.

    Attributes:
        id: the provider's id of the call, unique within the turn.
        name: the tool's name.
        state: `"started"`, `"running"` (progress), `"completed"` or `"failed"`.
        detail: what a person may want to read: a command line, an output's tail. May be empty.
    """

    id: str
    name: str
    state: Literal["started", "running", "completed", "failed"]
    detail: str = ""
    raw: object = _raw()


@attrs.frozen
class Ask:
    """The agent waits for a person: answer with `Turn.answer(ask, reply)`.

    Attributes:
        id: unique within the turn.
        kind: `"approval"` (may it do this?) or `"question"`.
        text: what is asked.
        choices: the replies that the backend takes; empty where any text will do.
    """

    id: str
    kind: Literal["approval", "question"]
    text: str
    choices: tuple[str, ...] = ()
    raw: object = _raw()


@attrs.frozen
class Usage:
    """Tokens spent by the turn so far; None where the provider does not tell."""

    input_tokens: int | None = None
    output_tokens: int | None = None
    raw: object = _raw()


@attrs.frozen
class Other:
    """A frame with no common meaning; `kind` is the provider's name for it."""

    kind: str
    raw: object = _raw()


Event: TypeAlias = Text | Thought | ToolCall | Ask | Usage | Other
