"""Turns of codex, by its app server. Needs the program, and nothing else.

    async with open_codex() as codex, turnstop.open_rooms(codex) as rooms:
        async with rooms.turn("kitchen", "fix the tests") as turn:
            async for event in turn:
                ...

One process serves all rooms; a room is a thread of codex, and its session is the thread's id. When
the process ends, its turns are lost with it; the next turn starts it again and resumes its thread.

**What shows that a turn ended** is codex's own `turn/completed` of this very turn, and its status
says how. An interrupt that comes too early is refused by codex; it is repeated until codex takes
it, or the turn ends by itself.

**What a turn leaves behind.** An interrupt does not end the shell commands that the turn started.
codex marks each command's environment with its thread and its call, so that the commands of a
turn are found in the process table wherever they went (`setsid`, `nohup`, a double fork), codex's
own list of terminals is asked as well, and a stop ends them, those of no other turn. What drops
its environment *and* its parents is not found. The process table needs `/proc`; without it there is
only codex's list, which a `setsid` grandchild escapes.

The sub-agents that the turn set to work go on after an interrupt as well. They are found by the
turn that each of theirs goes back to, and a stop interrupts them, those of no other turn. codex's
goals are switched off in every thread: with one, codex begins turns that no room has asked for.

**Questions.** Approvals and questions come as `Ask`, and the reply is one of its `choices`; any
other reply declines. A call of one of `tools` comes as a question too: the reply is the tool's
output as a str, or a mapping that is codex's answer itself.
"""

from ._open import open_codex
from ._turn import CodexContent

__all__ = ["CodexContent", "open_codex"]
