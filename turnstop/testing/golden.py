"""Golden wire: what a real program was told and said in one scene, and what of it matters.

A recording is a file of JSON lines. The first one says of which program it is, in which version,
and in which scene; each further line is a frame under its direction: `->` is what the program is
told, `<-` what it says.

    {"program": "codex", "version": "0.163.0", "scene": "running stop"}
    {"->": {"id": 3, "method": "turn/start", "params": {"threadId": "<1>"}}}
    {"<-": {"id": 3, "result": {"turn": {"id": "<2>"}}}}

A double is honest where the same scene, played on it, shows no `differences` from the recording.
Which frames and fields matter is said by rules, a name each: those that the adapter reads.
Everything else that a program says may come and go; what it is told always matters.
`Recordings` is a folder of such files.
"""

from ._differences import Rule, differences, jsonrpc_names
from ._recordings import Recordings
from ._wire import Wire, WireFrame, read_frames, read_wire, tidy, write_wire

__all__ = [
    "Recordings",
    "Rule",
    "Wire",
    "WireFrame",
    "differences",
    "jsonrpc_names",
    "read_frames",
    "read_wire",
    "tidy",
    "write_wire",
]
