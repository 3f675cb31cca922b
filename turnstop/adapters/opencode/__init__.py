"""Turns of opencode, by its server. Needs the extra `opencode`.

    async with open_opencode() as opencode, turnstop.open_rooms(opencode) as rooms:
        async with rooms.turn("kitchen", "fix the tests") as turn:
            async for event in turn:
                ...

One server serves all rooms, and one stream of its events tells of them all; a room is a session of
opencode, which stays on its disk. Where the stream breaks it is taken up again, and every turn asks
the server what it has missed. Where the server is lost, its turns are lost with it; the next turn
starts it again, or connects again, and goes on with its session.

**What shows that a turn ended** is what opencode says of the answers to this turn's own message,
whose id is chosen here: one that was aborted, or the last one, once its session is idle. The
session's idle events alone prove nothing: opencode sends them for every abort, and late.

**A stop** refuses what a person was asked, aborts the turn's sub-agents, and then the session,
once. opencode answers every abort by true, also where the turn's message had not been begun yet and
then runs on: so an abort that was sent that early is looked after, and sent again. An abort is the
session's, not the turn's, and one that is late would end the next turn: that waits until the abort
is answered, or was seen to end its own. Where neither comes, the room goes on in a fork of its
session, which no such abort reaches.

**What a turn leaves behind.** opencode ends the command that its shell tool runs when it aborts;
what has left its group lives on, and what an earlier call has left in the background. A server that
is run here marks the environment of each with its session and call, and a stop ends those of its
turn. Leaving `open_opencode` ends all that the server has started.

**Questions.** A permission comes as `Ask` with the choices `once`, `always` and `reject`; any other
reply rejects. A question comes with its options; several of them are answered by a sequence of
texts, one each.
"""

from __future__ import annotations

try:
    import httpx2 as _httpx2  # noqa: F401
except ImportError:
    install = "python -m pip install 'turnstop[opencode]'"
    raise ImportError(f"turnstop.adapters.opencode needs httpx2: {install}") from None

from ._open import open_opencode
from ._session import OpenCodeSession
from ._turn import OpenCodeContent

__all__ = ["OpenCodeContent", "OpenCodeSession", "open_opencode"]
