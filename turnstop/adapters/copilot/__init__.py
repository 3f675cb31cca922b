"""Turns of GitHub Copilot, by its SDK and its CLI. Needs the extra `copilot`.

    async with open_copilot() as copilot, turnstop.open_rooms(copilot) as rooms:
        async with rooms.turn("kitchen", "fix the tests") as turn:
            async for event in turn:
                ...

One CLI serves all rooms, each with a session of its own. The SDK speaks to it from an asyncio loop
that stands around the rooms, through a port on loopback that only this process can use.

**What shows that a turn ended** is the session's idle after this very message. One that an earlier
turn has left to come is not taken for it, nor is the answer to an abort. Where no idle comes after
an abort, which happens, the CLI is asked whether the session works on anything.

**When a stop is told.** An abort that overtakes the answer to its message is lost, and says
nothing of that. So a turn is revealed when Copilot has named its message, and aborted after that.

**By force**: nothing, for the process is everybody's. A turn that does not obey is unconfirmed
when its time is over, and its room goes on in a fresh session.

**What a turn leaves behind.** The commands of its tools end with an abort. Those that went into the
background, and processes in sessions of their own, are found by Copilot's list of tasks and by
their environment, and a stop ends them, those of no other room.

**Questions.** Permissions come as `Ask`. `"allow"` and `"deny"` are the replies; any other text
denies, and is what Copilot is told. A permission decision of the SDK is taken as it is.
"""

from ._open import CopilotContent, open_copilot

__all__ = ["CopilotContent", "open_copilot"]
