"""What of A2A's wire matters: the frames and fields that the adapter reads, and all it sends."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ..._differences import Rule
from ..._wire import WireFrame

__all__ = ["RULES", "a2a_names"]

_INTERFACE = "result.supportedInterfaces.0"
_MESSAGE = Rule(
    values=("params.message.role", "params.message.parts", "params.configuration"),
    ids=("params.message.messageId", "params.message.contextId", "params.message.taskId"),
)
_TASK_IDS = ("id", "contextId", "history.0.messageId")
_MOVED = "result.statusUpdate"
_MADE = "result.artifactUpdate"


def _task(at: str, **more: Any) -> Rule:
    words = f"{at}.status.message.parts.0.text"
    return Rule(ids=tuple(f"{at}.{one}" for one in _TASK_IDS), values=(words,), **more)


def _moved(**more: Any) -> Rule:
    ids = (f"{_MOVED}.taskId", f"{_MOVED}.contextId", f"{_MOVED}.status.message.messageId")
    return Rule(ids=ids, values=(f"{_MOVED}.status.message.parts.0.text",), **more)


_STREAM = "<- SendStreamingMessage ="
_STATES = ("COMPLETED", "CANCELED", "FAILED", "INPUT_REQUIRED")

RULES: dict[str, Rule] = {
    "-> agent-card": Rule(),
    "<- agent-card = result": Rule(
        values=(
            "result.capabilities.streaming",
            f"{_INTERFACE}.protocolBinding",
            f"{_INTERFACE}.protocolVersion",
        ),
        kinds=(f"{_INTERFACE}.url",),
    ),
    "-> SendStreamingMessage": _MESSAGE,
    f"{_STREAM} task SUBMITTED": _task("result.task"),
    # A stop that comes at once may find it before it says that it works.
    f"{_STREAM} statusUpdate WORKING": _moved(optional=True),
    **{f"{_STREAM} statusUpdate {state}": _moved() for state in _STATES},
    f"{_STREAM} artifactUpdate": Rule(
        values=(f"{_MADE}.append", f"{_MADE}.artifact.parts"),
        ids=(f"{_MADE}.taskId", f"{_MADE}.contextId", f"{_MADE}.artifact.artifactId"),
    ),
    f"{_STREAM} end": Rule(),
    f"{_STREAM} error": Rule(values=("error.code",)),
    "-> SubscribeToTask": Rule(ids=("params.id",)),
    "<- SubscribeToTask = task WORKING": _task("result.task"),
    "<- SubscribeToTask = statusUpdate CANCELED": _moved(),
    "<- SubscribeToTask = end": Rule(),
    "-> SendMessage": _MESSAGE,
    **{
        f"<- SendMessage = task {state}": _task("result.task", anywhere=True)
        for state in ("SUBMITTED", "COMPLETED")
    },
    # Nobody waits for it once the cancel is answered.
    "<- SendMessage = task CANCELED": _task("result.task", anywhere=True, optional=True),
    # How often it is asked, and what it has made by then, is a matter of time.
    "-> GetTask": Rule(ids=("params.id",), repeats=True),
    "<- GetTask = WORKING": _task("result", repeats=True),
    **{
        f"<- GetTask = {state}": Rule(
            ids=tuple(f"result.{one}" for one in (*_TASK_IDS, "artifacts.1.artifactId")),
            values=("result.artifacts.0.parts", "result.status.message.parts.0.text"),
        )
        for state in _STATES
    },
    "-> ListTasks": Rule(ids=("params.contextId",), repeats=True, optional=True),
    "<- ListTasks = tasks": Rule(
        ids=tuple(f"result.tasks.0.{one}" for one in _TASK_IDS),
        repeats=True,
        optional=True,
        anywhere=True,
    ),
    "-> CancelTask": Rule(ids=("params.id",)),
    # What is said in the stream of the task crosses it.
    "<- CancelTask = CANCELED": _task("result", anywhere=True),
    "<- CancelTask = error": Rule(values=("error.code",)),
}
"""By direction and name; see `a2a_names`."""


def a2a_names(frames: Sequence[WireFrame]) -> list[str]:
    """`METHOD` for a request, and for what is said to it `METHOD = KIND STATE`."""
    asked: dict[object, str] = {}
    names = []
    for frame in frames:
        body = frame.body if isinstance(frame.body, dict) else {}
        if frame.direction == "->":
            names.append(str(body.get("method")))
            asked[body.get("id")] = names[-1]
        else:
            names.append(f"{asked.get(body.get('id'), '?')} = {_kind(body)}")
    return names


def _kind(body: Mapping[str, Any]) -> str:
    if "result" not in body:
        return next((kind for kind in ("error", "end") if kind in body), "garbage")
    result = body["result"]
    if "tasks" in result:
        return "tasks" if result["tasks"] else "no tasks"
    if "status" in result:
        return _state(result)
    for kind in ("task", "statusUpdate"):
        if kind in result:
            return f"{kind} {_state(result[kind])}"
    return next((kind for kind in ("artifactUpdate", "message") if kind in result), "result")


def _state(of: Mapping[str, Any]) -> str:
    return str(of["status"]["state"]).removeprefix("TASK_STATE_")
