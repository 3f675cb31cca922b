"""The Copilot SDK: whether it is there and new enough, and what is asked of it.

Every async function here but `load` is asyncio-flavoured: it is called through the bridge. The SDK
is imported when the bridge is there, and in a thread: it takes half a second, or three.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from ..._errors import BackendMisbehaved
from ...transports.distribution import check_distribution, check_package, import_apart

SDK_FLOOR: Final = "1.0.5"
"""The oldest SDK that the adapter was tried with."""

SDK_INSTALL: Final = "python -m pip install 'turnstop[copilot]'"

_SDK: Final = "github-copilot-sdk"
_METHOD_NOT_FOUND: Final = -32601

Client: TypeAlias = Any
Conversation: TypeAlias = Any
"""A `copilot.CopilotSession`."""


def check_sdk() -> str:
    """The version of the SDK.

    Raises:
        ImportError: it is missing, or older than `SDK_FLOOR`, or hidden by a file of its name.
    """
    version = check_distribution(_SDK, SDK_FLOOR, extra="copilot", needed_by="open_copilot")
    check_package("copilot", _SDK)
    return version


async def load() -> None:
    """Import the SDK. Trio-flavoured.

    Raises:
        ImportError: something of it is missing.

    **Cancellation:** as `import_apart`.
    """
    await import_apart("copilot")


async def connect(port: int, token: str) -> Client:
    """A client of the program that is reached at this port."""
    from copilot import CopilotClient, RuntimeConnection

    place = RuntimeConnection.for_uri(f"127.0.0.1:{port}", connection_token=token)
    client, ready = CopilotClient(connection=place), False
    try:
        await client.start()
        ready = True
    finally:
        if not ready:
            # Its socket, and the thread that reads it.
            await client.force_stop()
    return client


async def disconnect(client: Client) -> None:
    """Let go of a client; its connection has ended."""
    # Its reading thread may not have seen that, and writes to stderr of what is closed under it.
    if (rpc := getattr(client, "_client", None)) is not None:
        rpc._running = False
    await client.force_stop()


async def begin(client: Client, number: str, options: Mapping[str, Any]) -> Conversation:
    """Begin a session with this id."""
    return await client.create_session(session_id=number, **options)


async def resume(client: Client, number: str, options: Mapping[str, Any]) -> Conversation:
    """Go on with a session that the program has on disk."""
    return await client.resume_session(number, **options)


async def detach(session: Conversation) -> None:
    """Let go of a session; the program keeps it on disk."""
    await session.disconnect()


async def send(session: Conversation, message: Mapping[str, Any]) -> str:
    """Send a message; the id that the program gave it.

    Raises:
        BackendMisbehaved: it gave it none.

    **Cancellation:** it may have been sent.
    """
    number = await session.send(**message)
    if not isinstance(number, str) or not number:
        raise BackendMisbehaved(f"copilot took a message and named it {number!r}")
    return number


async def abort(session: Conversation) -> None:
    """Abort what the session works on."""
    await session.abort()


async def is_active(session: Conversation) -> bool:
    """Whether the session works on something, in the background too."""
    activity = await session.rpc.metadata.activity()
    return bool(activity.has_active_work)


async def read_back(session: Conversation) -> list[Mapping[str, Any]]:
    """What is written down of the session, as the program writes it.

    As `get_events` asks for it; but of its records an old SDK leaves fields out.
    """
    told = await session._client.request("session.getMessages", {"sessionId": session.session_id})
    return [event for event in told["events"] if isinstance(event, dict)]


async def decide(session: Conversation, request: str, decision: Any) -> None:
    """Answer a permission request."""
    from copilot.rpc import PermissionDecisionRequest

    answer = PermissionDecisionRequest(request_id=request, result=decision)
    await session.rpc.permissions.handle_pending_permission_request(answer)


async def list_tasks(session: Conversation) -> list[Any]:
    """The session's background tasks."""
    return list((await session.rpc.tasks.list()).tasks)


async def cancel_task(session: Conversation, number: str) -> bool:
    """End a background task; whether that could be done."""
    from copilot.rpc import TasksCancelRequest

    result = await session.rpc.tasks.cancel(TasksCancelRequest(id=number))
    return bool(result.cancelled)


def is_unknown(error: Exception) -> bool:
    """Whether the program is too old to know what it was asked."""
    return is_refusal(error) and getattr(error, "code", None) == _METHOD_NOT_FOUND


def is_refusal(error: Exception) -> bool:
    """Whether it is an error that the program has answered, in place of what was asked for."""
    return type(error).__name__ == "JsonRpcError"


def is_loss(error: Exception) -> bool:
    """Whether it tells that the program cannot be talked to any more."""
    return isinstance(error, OSError) or type(error).__name__ == "ProcessExitedError"
