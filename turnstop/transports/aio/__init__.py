"""Asyncio libraries from Trio, without their ways of refusing to die. Needs the extra `aio`.

    async with open_aio() as aio:
        answer = await aio.call(client.ask, "fix the tests")

A Trio deadline does not bound asyncio code by itself: an asyncio task is cancelled once, and may
swallow that. So nobody waits for a task here, but for an event that its end sets, and that wait
lets itself be cancelled in time. What a task does after that is its own affair: it is named,
counted, and ended with the loop at the latest.

**What belongs to a turn.** Every task that code of a turn starts on the loop, and every task that
one starts in its turn, is filed under the turn in whose context it was made
(`turnstop.abc.current_turn`). So whatever a library leaves behind can be found and ended, root
first, and a neighbour's work is never touched.

**Nesting.** The loop goes around the rooms, as a service: it is closed when everything that was
opened inside has left, and not before.

Only this package imports trio_asyncio, which replaces parts of asyncio in the whole process when
it is imported, and cannot be imported on Python 3.14. `open_aio(thread=True)` needs none of it.
"""

from ._aio import Aio as Aio
from ._aio import open_aio as open_aio
from ._records import AioStatistics as AioStatistics
from ._records import Bridged as Bridged

__all__ = ["Aio", "AioStatistics", "Bridged", "open_aio"]
