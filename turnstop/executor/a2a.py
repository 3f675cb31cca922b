"""An executor as an agent of the A2A protocol, behind the server of a2a-sdk. Needs `a2a-sdk`.

    async with open_executor(agent) as executor:
        handler = A2AHandler(A2AExecutor(executor), InMemoryTaskStore(), card)
        # handler goes into the SDK's routes; its asyncio loop runs in a thread, or on Trio.

What it answers is what the SDK's own server answers (A2A 1.0; a2a-sdk 1.3.0), but for one thing:
CANCELED is said when the work has ended, and never before. The SDK has an executor say CANCELED
when it is asked to cancel, and cancels the asyncio task that runs it. Here that task stays, which
keeps the task's streams open; it asks the function to stop, and says CANCELED at the end.
"""

from __future__ import annotations

from ._a2a_executor import A2AExecutor
from ._a2a_handler import A2AHandler

__all__ = ["A2AExecutor", "A2AHandler"]
