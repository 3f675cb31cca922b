"""A2A agents as transports of httpx: one that a test scripts, and one with levers.

Give one to `open_a2a(URL, transport=agent)`. Nothing here imports the SDK: what is said is what
stands on the wire.
"""

from ._agent import Kind, RecordingAgent
from ._frames import URL, Answer, card, moved, piece, refused, task
from ._scripted import Handler, ScriptedAgent, always, in_turn, never
from ._transport import AgentTransport, Stream

__all__ = [
    "URL",
    "AgentTransport",
    "Answer",
    "Handler",
    "Kind",
    "RecordingAgent",
    "ScriptedAgent",
    "Stream",
    "always",
    "card",
    "in_turn",
    "moved",
    "never",
    "piece",
    "refused",
    "task",
]
