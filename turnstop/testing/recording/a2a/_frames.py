"""What stands on the wire, as JSON values."""

from __future__ import annotations

from typing import Any, TypeAlias

Answer: TypeAlias = dict[str, Any]
URL = "http://agent.test/"


def card(streaming: bool, **more: object) -> Answer:
    """An agent's card."""
    interface = {"url": URL, "protocolBinding": "JSONRPC", "protocolVersion": "1.0"}
    return {
        "name": "recording agent",
        "description": "Does what its levers say.",
        "version": "1",
        "supportedInterfaces": [interface],
        "capabilities": {"streaming": streaming},
        "defaultInputModes": ["text/plain"],
        "defaultOutputModes": ["text/plain"],
        "skills": [],
        **more,
    }


def parts(text: str) -> list[Answer]:
    """A text as the parts of a message; none where it is empty."""
    return [{"text": text}] if text else []


def status(state: str, text: str = "") -> Answer:
    """A task's status, with the agent's words where there are any."""
    said: Answer = {"state": f"TASK_STATE_{state.upper()}"}
    if text:
        said["message"] = {"messageId": f"m-{text}", "role": "ROLE_AGENT", "parts": parts(text)}
    return said


def task(state: str, *artifacts: str, history: str = "", task_id: str = "t1") -> Answer:
    """A task as a whole; `history` is the id of the message that began it."""
    return {
        "id": task_id,
        "contextId": "",
        "status": status(state),
        "artifacts": [
            {"artifactId": str(number), "parts": parts(text)}
            for number, text in enumerate(artifacts)
        ],
        "history": [{"messageId": history, "role": "ROLE_USER", "parts": parts("x")}],
    }


def moved(state: str, text: str = "", task_id: str = "t1") -> Answer:
    """The event that a task is in another state now."""
    return {"statusUpdate": {"taskId": task_id, "contextId": "", "status": status(state, text)}}


def piece(text: str, *, append: bool = False, artifact: str = "0", task_id: str = "t1") -> Answer:
    """The event that there is an artifact, or more of one."""
    made = {"artifactId": artifact, "parts": parts(text)}
    return {"artifactUpdate": {"taskId": task_id, "artifact": made, "append": append}}


def refused(code: object, text: str = "no") -> Answer:
    """An error of JSON-RPC."""
    return {"error": {"code": code, "message": text}}
