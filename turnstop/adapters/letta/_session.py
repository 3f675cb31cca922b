"""What a room's next turn continues."""

from __future__ import annotations

import attrs


@attrs.frozen
class LettaSession:
    """What a room's next turn continues.

    Attributes:
        agent_id: the agent.
        conversation_id: its conversation; None where the room speaks in the agent's own history.
        asked: the tool calls that wait there for an approval, or may do so: no answer to them is
            known to have arrived. The next turn denies them, once or again.
        run_id: the newest run there that the room knows of: the runs of its next turn come after.
    """

    agent_id: str
    conversation_id: str | None = None
    asked: tuple[str, ...] = ()
    run_id: str | None = attrs.field(default=None, eq=False, repr=False)

    def __str__(self) -> str:
        where = self.conversation_id or "its own history"
        return f"{self.agent_id}, {where}"
