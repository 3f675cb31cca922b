"""Stopping an agent means that its remote work really ended. turnstop makes that a `with` block.

Floors, lowest first; a module imports from lower floors only, and a test walks the imports:

    F0  abc, events, _errors, _ending, _records, _budget
    F1  _unwrap, _service, _calls, _gate, _admission, _watch, _workers, _house, _receipt
    F2  _account, _life, _turn
    F3  _rooms
    F4  _inbox              around rooms
    F5  feeds, server       messages and controls into rooms
    T   transports          F0, _service and _unwrap
    A   adapters            abc, F0 and transports; never each other
    L   lab                 a model endpoint on loopback, and the real programs
    F6  testing             the obligations kit: probes, saboteurs, schedules
    F7  cli
"""

from ._budget import StopBudget
from ._ending import Ending, Proof
from ._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused, RoomsClosed
from ._inbox import Applied, Control, ControlKind, Delivery, Inbox, Message, serve_rooms
from ._receipt import StopReceipt
from ._records import Settlement, Statistics, StopRequest, StopVerdict
from ._rooms import Rooms, open_rooms
from ._turn import Turn

__all__ = [
    "Applied",
    "BackendError",
    "BackendLost",
    "BackendMisbehaved",
    "BackendRefused",
    "Control",
    "ControlKind",
    "Delivery",
    "Ending",
    "Inbox",
    "Message",
    "Proof",
    "Rooms",
    "RoomsClosed",
    "Settlement",
    "Statistics",
    "StopBudget",
    "StopReceipt",
    "StopRequest",
    "StopVerdict",
    "Turn",
    "open_rooms",
    "serve_rooms",
]
