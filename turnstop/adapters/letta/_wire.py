"""What is said to a Letta server, and what its answers mean when they are errors.

Requests and ordinary answers go through letta-client. Its stream does not: at `[DONE]` it drops the
generators below it half-read, and Trio rightly complains. Here a stream is read by one loop, to its
very end: a server lets the next message in only after that.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, final
from urllib.parse import quote

import attrs
import httpx
from letta_client import (
    APIConnectionError,
    APIError,
    APIStatusError,
    AsyncLetta,
    NotFoundError,
)

from ..._errors import BackendError, BackendLost, BackendMisbehaved, BackendRefused
from ...transports.httpcalls import Departures, bare_url, read_events
from ...transports.sse import ServerEvent
from ._address import MARK
from ._events import Frame, Message

Answer = TypeVar("Answer")

_SHOWN: Final = 500
_FEW: Final = 20
_MANY: Final = 100


@attrs.frozen
class Run:
    """A run, as the server keeps it.

    Attributes:
        id: its name.
        conversation_id: where; None in the agent's own history.
        status: created, running, completed, failed or cancelled.
        reason: its stop reason, once there is one. What is cancelled has one at once.
    """

    id: str
    conversation_id: str | None
    status: str
    reason: str | None


@attrs.frozen
class Step:
    """A step of a run: a call of the model, and the tools that it asks for.

    Attributes:
        id: its name.
        over: whether the server has seen its end.
        mark: of the message that began it; None where the server keeps none.
    """

    id: str
    over: bool
    mark: str | None


@final
class Wire:
    """One server, and the calls.

    Args:
        url: where it is.
        client: letta-client, which makes its requests through `http`.
        http: the client of HTTPX.
    """

    def __init__(self, url: str, client: AsyncLetta, http: httpx.AsyncClient) -> None:
        self.url = bare_url(url)
        self._client = client
        self._departures = Departures(http)

    async def check(self) -> None:
        """See that a Letta server answers.

        **Cancellation:** changes nothing.
        """
        none = f"what answers at {self.url} is no Letta server: its address has no path, as /v1"
        try:
            found = await self._client.health()
        except NotFoundError as error:
            raise BackendMisbehaved(none) from error
        except Exception as error:
            raise explain(error, self.url) from error
        if not isinstance(getattr(found, "version", None), str):
            raise BackendMisbehaved(none)

    async def make_conversation(self, agent_id: str) -> str:
        """Make a conversation of an agent, and return its id.

        **Cancellation:** it may have been made.
        """
        made = await self._calling(self._client.conversations.create(agent_id=agent_id))
        found = getattr(made, "id", None)
        if not isinstance(found, str):
            raise BackendMisbehaved("Letta made a conversation and did not tell its id")
        return found

    async def fork(self, agent_id: str, conversation_id: str | None) -> str:
        """Make a conversation with what was said in another one; return its id.

        Args:
            agent_id: the agent.
            conversation_id: the other one; None is the agent's own history.

        **Cancellation:** it may have been made.
        """
        # letta-client 1.7.1 has no name for it.
        path = f"/v1/conversations/{quote(conversation_id or 'default', safe='')}/fork"
        params = {} if conversation_id else {"agent_id": agent_id}
        made = await self._calling(
            self._client.post(path, cast_to=object, options={"params": params})
        )
        found = made.get("id") if isinstance(made, Mapping) else None
        if not isinstance(found, str):
            raise BackendMisbehaved("Letta forked a conversation and did not tell its id")
        return found

    async def drop_conversation(self, conversation_id: str) -> None:
        """Delete a conversation; one that is gone already is none to delete.

        **Cancellation:** it may have been deleted.
        """
        # letta-client 1.7.1 has no name for it.
        path = f"/v1/conversations/{quote(conversation_id, safe='')}"
        try:
            await self._client.delete(path, cast_to=object)
        except NotFoundError:
            return
        except Exception as error:
            raise explain(error, self.url) from error

    async def cancel(self, agent_id: str, run_id: str, sent: Callable[[], None]) -> None:
        """Tell the server to cancel this one run, of whichever conversation.

        Raises:
            BackendRefused: the server knows no such run of this agent, or says no.

        **Cancellation:** the server may have been told.
        """
        with self._departures.awaited(sent) as headers:
            said = await self._calling(
                self._client.agents.messages.cancel(
                    agent_id, run_ids=[run_id], extra_headers=headers
                )
            )
        told = said.get(run_id) if isinstance(said, Mapping) else said
        if told != "cancelled":
            raise BackendRefused(f"Letta does not cancel {run_id}: it answered {told!r}")

    async def newest_step(self, run_id: str) -> Step | None:
        """The run's newest step; None where it has come to none.

        **Cancellation:** changes nothing.
        """
        steps = await self._listed(f"/v1/runs/{_part(run_id)}/steps", limit=1, order="desc")
        for one in steps:
            return Step(str(one.get("id")), one.get("status") != "pending", one.get("request_id"))
        return None

    async def find_run(self, run_id: str) -> Run:
        """A run, as the server keeps it.

        Raises:
            BackendRefused: the server knows none of that name.

        **Cancellation:** changes nothing.
        """
        found = await self._get(f"/v1/runs/{_part(run_id)}")
        if not isinstance(found, Mapping):
            raise BackendMisbehaved(f"Letta told nothing of {run_id}")
        return _to_run(found)

    async def runs_after(
        self, agent_id: str, conversation_id: str | None, since: str | None
    ) -> list[Run]:
        """Runs of one history, the oldest first: those after another one, or the newest.

        **Cancellation:** changes nothing.
        """
        params: dict[str, Any] = {"agent_id": agent_id, "order": "desc", "limit": _FEW}
        if since:
            params |= {"order": "asc", "after": since, "limit": _MANY}
        if conversation_id:
            params["conversation_id"] = conversation_id
        found = [_to_run(one) for one in await self._listed("/v1/runs/", **params)]
        mine = [one for one in found if one.conversation_id == conversation_id]
        return mine if since else mine[::-1]

    async def asked_in(self, run_id: str) -> tuple[str, ...]:
        """The tool calls that a run ended for, which need an approval.

        **Cancellation:** changes nothing.
        """
        told = await self._listed(f"/v1/runs/{_part(run_id)}/messages", limit=_MANY, order="desc")
        for one in told:
            if one.get("message_type") == "approval_request_message":
                calls = one.get("tool_calls") or one.get("tool_call")
                calls = calls if isinstance(calls, list) else [calls]
                found = [one.get("tool_call_id") for one in calls if isinstance(one, Mapping)]
                return tuple(one for one in found if isinstance(one, str))
        return ()

    async def is_traced(self, step_id: str) -> bool:
        """Whether the server has written down what the step's model call came to.

        **Cancellation:** changes nothing.
        """
        found = await self._calling(self._client.steps.trace.retrieve(step_id))
        return getattr(found, "id", None) is not None

    async def send(
        self,
        agent_id: str,
        conversation_id: str | None,
        messages: Sequence[Message],
        mark: str,
        hear: Callable[[str, Frame], None],
        sent: Callable[[], None],
    ) -> None:
        """Send messages, and read the stream that answers them to its end.

        Args:
            agent_id: the agent, in whose own history they are said where there is no conversation.
            conversation_id: the conversation.
            messages: what is said: one, or an approval and one.
            mark: what the steps of the run are known by.
            hear: is given each event: its kind, and what it says.
            sent: called when the messages have left.

        **Cancellation:** before `sent`, nothing is said. Then it lets go of the stream, and the
        server goes on.
        """
        more: Any = {
            "messages": messages,
            "streaming": True,
            "stream_tokens": True,
            "include_pings": True,
        }
        with self._departures.awaited(sent) as headers:
            headers[MARK] = mark
            if conversation_id is None:
                said = self._client.agents.messages.with_streaming_response
                making = said.create(agent_id, extra_headers=headers, **more)
            else:
                told = self._client.conversations.messages.with_streaming_response
                making = told.create(conversation_id, extra_headers=headers, **more)
            try:
                async with making as answer:
                    await _read(answer.http_response, hear)
            except Exception as error:
                raise explain(error, self.url) from error

    async def _get(self, path: str, **params: Any) -> object:
        return await self._calling(
            self._client.get(path, cast_to=object, options={"params": params})
        )

    async def _listed(self, path: str, **params: Any) -> list[Frame]:
        found = await self._get(path, **params)
        if not (isinstance(found, list) and all(isinstance(one, Mapping) for one in found)):
            raise BackendMisbehaved(f"Letta told no list of {path}")
        return found

    async def _calling(self, call: Awaitable[Answer]) -> Answer:
        try:
            return await call
        except Exception as error:
            raise explain(error, self.url) from error


def _part(number: str) -> str:
    return quote(number, safe="")


def _to_run(said: Frame) -> Run:
    conversation, reason = said.get("conversation_id"), said.get("stop_reason")
    return Run(
        str(said.get("id")),
        conversation if isinstance(conversation, str) else None,
        str(said.get("status")),
        reason if isinstance(reason, str) else None,
    )


async def _read(response: httpx.Response, hear: Callable[[str, Frame], None]) -> None:
    if "text/event-stream" not in response.headers.get("content-type", ""):
        text = (await response.aread()).decode(errors="replace")[:_SHOWN]
        raise BackendMisbehaved(f"Letta answered a message by what is no stream: {text}")

    def understand(event: ServerEvent) -> None:
        if event.data.startswith("[DONE]"):
            return
        try:
            said = json.loads(event.data)
        except (ValueError, RecursionError):
            said = None
        if not isinstance(said, dict):
            raise BackendMisbehaved(f"Letta sent what is no event: {event.data[:200]!r}")
        hear(event.kind, said)

    await read_events(response, understand)


def explain(error: Exception, url: str) -> BackendError:
    """The contract's error for what letta-client or HTTPX has raised."""
    if isinstance(error, BackendError):
        return error
    cause = error.__cause__ if isinstance(error, APIConnectionError) else error
    if isinstance(cause, (httpx.ConnectError, httpx.ConnectTimeout)):
        return BackendRefused(
            f"nothing answers at {url}: start the Letta server, or correct the url"
        )
    if isinstance(cause, (httpx.UnsupportedProtocol, httpx.InvalidURL)):
        return BackendRefused(f"{url!r} is no address: write it as http://localhost:8283")
    if isinstance(cause, httpx.TimeoutException):
        return BackendLost(
            f"Letta at {url} said nothing for too long: look at the server, or raise read_gap"
        )
    if isinstance(cause, httpx.RequestError):
        return BackendLost(f"the connection to Letta at {url} broke ({cause!r})")
    if isinstance(error, APIStatusError):
        return _explain_status(error, url)
    if isinstance(error, APIError):
        return BackendMisbehaved(f"Letta at {url} answered what makes no sense: {error}")
    return BackendMisbehaved(f"Letta at {url} answered what makes no sense: {error!r}")


def _explain_status(error: APIStatusError, url: str) -> BackendError:
    status, body = error.status_code, error.body
    said = body.get("detail", body) if isinstance(body, Mapping) else error.response.text
    text = f"Letta at {url} answered HTTP {status}: {str(said)[-_SHOWN:]}"
    if status >= 500:
        return BackendMisbehaved(f"{text}; look at the server's log")
    if status in (401, 403):
        return BackendRefused(f"{text}; give open_letta the api_key of this server")
    return BackendRefused(text)
