"""Turns of Claude Code, by the stream-json protocol of its program. Needs nothing else.

    async with open_claude() as claude, turnstop.open_rooms(claude) as rooms:
        async with rooms.turn("kitchen", "fix the tests") as turn:
            async for event in turn:
                ...

Each room has a process of its own, begun with its first turn and kept for the next ones; `retire`
ends it. A room's session is Claude's: a process that was lost, or killed, is begun anew by the
room's next turn, and resumes it.

**What shows that a turn ended** is Claude's own `result` of this very message, named by its uuid,
or that the message was cancelled before it began. An interrupt that Claude has acknowledged shows
nothing: one that came before the turn began is acknowledged, and changes nothing. So Claude is told
to cancel the message as well where it still waits; an old Claude, which cannot, is told once more
when the turn has begun.

**By force**: SIGTERM to the process's group, on which Claude ends its tools, and SIGKILL where that
does not help. No other room is touched.

**What a turn leaves behind.** The commands that the Bash tool runs end with an interrupt; those
that it put into the background do not. They are found by their environment, wherever they went,
and a stop ends them, those of no other turn. Background tasks, monitors and timers would have
Claude begin turns that no room has asked for: they are off unless `background` is given.

**Questions.** Permissions and questions come as `Ask`. `"allow"` and `"deny"` are the replies to
the first; any other text denies, and is what Claude is told. A question takes one of its choices,
or any text. A mapping is Claude's own answer: `{"behavior": "allow", "updatedInput": {...}}`.
"""

from ._open import open_claude
from ._turn import ClaudeContent

__all__ = ["ClaudeContent", "open_claude"]
