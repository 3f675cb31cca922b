"""Turns of agents that speak the Agent Client Protocol, version 1. Needs the agent's program.

    async with open_acp(["gemini", "--experimental-acp"]) as gemini:
        async with turnstop.open_rooms(gemini) as rooms:
            async with rooms.turn("kitchen", "fix the tests") as turn:
                ...

A process a room, a session of it for each room; the session's id is what the room keeps. What
differs between agents is in small tables, the profiles.

**What shows that a turn ended** is the answer to its own `session/prompt`, whatever it says: an
error is an end as well. An agent that exits has ended its turn.

**A stop** writes one `session/cancel` behind the prompt, and answers what the agent has asked as
cancelled; a prompt that was not sent yet never is. An agent that does not obey is ended with its
group, and the room's next turn takes its session up again, where the agent can; where it cannot,
the turn begins with an `Other("session_replaced")`.

**Questions.** A permission comes as `Ask`, and the reply is the id of one of its options, the
option's name or its kind (`"allow_once"`), or True or False; any other reply is a no. A form with
one field is answered by its value, a longer one by a mapping that is the protocol's own answer.
"""

from ._open import open_acp
from ._profile import Profile
from ._profiles import PROFILES
from ._turn import AcpContent

__all__ = ["PROFILES", "AcpContent", "Profile", "open_acp"]
