"""Turns of a Letta agent, natively on Trio. Needs the extra `letta`.

    async with open_letta("http://localhost:8283", agent_id="agent-...") as letta:
        async with turnstop.open_rooms(letta) as rooms:
            async with rooms.turn("kitchen", "bake a cake") as turn:
                ...

**What shows that the work ended.** A run that completes or fails says so in its stream, and its
model call is over by then. One that is cancelled is not: the server answers `cancelled` at once,
whatever the model does; ends the stream when the model's next chunk comes; and lets go of the model
call some time after that. It traces a call when that is over, so the trace is what is waited for.
"""

from ._sdk import check_sdk

check_sdk()

from ._open import AgentOf, open_letta  # noqa: E402
from ._session import LettaSession  # noqa: E402
from ._turn import LettaContent  # noqa: E402

__all__ = ["AgentOf", "LettaContent", "LettaSession", "open_letta"]
