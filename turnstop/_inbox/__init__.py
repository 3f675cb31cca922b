"""Messages and controls into rooms: one message of a room at a time, and controls overtake.

    async def handle(delivery):
        async with delivery.turn() as turn:
            async for event in turn:
                await post(event)

    await turnstop.serve_rooms(rooms, handle, feed)

The feed keeps the messages, in order, and knows which are finished; a message that it announces
only wakes its room, which then asks for the oldest that is unfinished. So nothing is lost here that
the feed has, and nothing is run that it takes for finished.

A control is applied in the step in which it arrives, whatever its room is doing: it never waits
behind a message, nor behind another control. What it decides is the fate of the message that is
being handled: STOP leaves it for PLAY and pauses the room, INTERRUPT has it count as handled.
"""

from ._applied import Applied as Applied
from ._applied import InboxStatistics as InboxStatistics
from ._delivery import Delivery as Delivery
from ._feed import Claim as Claim
from ._feed import Control as Control
from ._feed import ControlKind as ControlKind
from ._feed import Feed as Feed
from ._feed import Message as Message
from ._feed import Standing as Standing
from ._inbox import Inbox as Inbox
from ._inbox import serve_rooms as serve_rooms
