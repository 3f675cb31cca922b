"""Turns of a Parlant engine in this process. Needs the extra `parlant`.

    async def prepare(server):
        return await server.create_agent(name="Otto", description="You help with cars.")

    async with open_parlant(prepare) as parlant, turnstop.open_rooms(parlant) as rooms:
        async with rooms.turn("kitchen", "my brakes squeak") as turn:
            ...

Each room has a Parlant session of its own; a turn is one customer message in it, and everything
that the engine makes of that: the task that processes the session, and what that starts.

**What shows that the work ended.** The end of those tasks, which are all known: they are filed
under the turn in whose context they were made. Events prove nothing: the engine says `ready` after
a preamble, too, and in an error's case before the error.

**How it stops.** The processing task is cancelled once, and joined: a message that is already being
emitted is emitted, and the turn is finished. Then what the task has left is ended: the generation
of a preamble, which the engine forgets, and tools that are still running.

What is read and called here is Parlant 3.3.2's, private names among it; no other version will do.
"""

from ._library import Library as Library
from ._open import open_parlant as open_parlant
from ._tools import ParlantSession as ParlantSession

__all__ = ["Library", "ParlantSession", "open_parlant"]
