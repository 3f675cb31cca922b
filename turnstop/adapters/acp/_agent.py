"""An agent's process that was greeted: what it says of itself, and what it can do.

`initialize` and `authenticate` of the Agent Client Protocol, version 1.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Protocol, final

import attrs
import trio

from ..._errors import BackendLost, BackendMisbehaved, BackendRefused
from ...transports.dialect import shorten
from ...transports.jsonrpc import Connection, Incoming, RpcError
from ...transports.orphans import ProcessAddress
from ...transports.peer import open_peer
from ._asks import decline
from ._profile import Profile
from ._profiles import profile_of

__all__ = ["Agent", "Launch", "greet", "open_agent"]

_PROTOCOL = 1
# The first start after an installation takes some of them five seconds on an idle machine.
_PATIENCE = 60.0
# One that says nothing for so long is no agent: it is told, and not begun again and again.
_GREETED_WITHIN = 40.0


class _Process(Protocol):
    def hasten(self) -> None: ...


class _Peer(Protocol):
    """What an agent is spoken to over: a process with its pipes."""

    @property
    def rpc(self) -> Connection: ...
    @property
    def process(self) -> _Process: ...
    @property
    def broken(self) -> trio.Event: ...
    def loss(self) -> BackendLost: ...


@attrs.frozen
class Launch:
    """How an agent's process is begun, and greeted.

    Attributes:
        command: the program and its arguments.
        profile: what is known of it.
        recognise: whether what it says of itself may show that it is one of another profile.
        cwd: where it runs.
        env: laid over this process's environment, and the profile's.
        authenticate: the method by which it is authenticated; None: not at all.
    """

    command: Sequence[str]
    profile: Profile
    recognise: bool = False
    cwd: str | None = None
    env: Mapping[str, str | None] = attrs.field(factory=dict, repr=False)
    authenticate: str | None = None


@final
@attrs.define(eq=False, repr=False)
class Agent:
    """A running agent.

    Attributes:
        profile: what is known of it.
        name: how it names itself; where it does not, the profile's name.
        kind: by what a journal knows it: the profile's name, or the agent's where that is generic.
        version: what it says of its version; may be empty.
        remedies: those that this very version needs.
        address: where its process is, for another one.
    """

    _peer: _Peer
    profile: Profile
    name: str
    kind: str
    version: str
    remedies: frozenset[str]
    address: ProcessAddress
    _capabilities: Mapping[str, Any]
    _logins: tuple[str, ...]

    def __repr__(self) -> str:
        return f"<Agent {self.name} {self.version}>"

    @property
    def rpc(self) -> Connection:
        """The connection."""
        return self._peer.rpc

    @property
    def broken(self) -> trio.Event:
        """Set when it can no longer be talked to."""
        return self._peer.broken

    def loss(self) -> BackendLost:
        """A new error: how it was lost."""
        return self._peer.loss()

    def hasten(self) -> None:
        """Send SIGTERM to its group; its end is quicker from here on."""
        self._peer.process.hasten()

    @property
    def can_close(self) -> bool:
        """Whether it knows `session/close`."""
        return self._can("close")

    def ways_to_take_up(self) -> tuple[str, ...]:
        """The methods that take up a session; the one that tells nothing of its past first."""
        if not self.profile.resumes:
            return ()
        resume = ("session/resume",) if self._can("resume") else ()
        load = ("session/load",) if self._capabilities.get("loadSession") is True else ()
        return (*resume, *load)

    def how_to_log_in(self, message: str) -> str:
        """What is wrong where it wants a login, and what to do."""
        ways = ", ".join(self._logins)
        text = f"{self.name} wants a login: {message}"
        if not ways:
            return f"{text}; log in with the agent's own program first"
        return (
            f"{text}; it takes {ways}: log in with the agent's own program first, or name one: "
            "open_acp(..., authenticate=...)"
        )

    def _can(self, name: str) -> bool:
        found = self._capabilities.get("sessionCapabilities")
        return isinstance(found, dict) and found.get(name) is not None


async def greet(rpc: Connection, launch: Launch) -> Mapping[str, Any]:
    """Say who we are, and what is not offered; return what the agent answers.

    Raises:
        BackendRefused: it says nothing, speaks another version of the protocol, or wants a login.
        RpcError: it does not answer to `initialize`.

    **Cancellation:** leaves a connection that is of no use.
    """
    hello = await _initialize(rpc, launch)
    if not isinstance(hello, dict):
        raise BackendMisbehaved(f"{launch.profile.name} answered initialize with {shorten(hello)}")
    if hello.get("protocolVersion") != _PROTOCOL:
        raise BackendRefused(
            f"{launch.command[0]} speaks version {hello.get('protocolVersion')!r} of the Agent "
            f"Client Protocol, and turnstop {_PROTOCOL}: take a version of the agent that does"
        )
    if launch.authenticate is not None:
        await _authenticate(rpc, launch.authenticate, hello)
    return hello


async def _initialize(rpc: Connection, launch: Launch) -> object:
    capabilities: dict[str, Any] = {
        "fs": {"readTextFile": False, "writeTextFile": False},
        "terminal": False,
    }
    if launch.profile.elicits:
        capabilities["elicitation"] = {"form": {}}
    params = {
        "protocolVersion": _PROTOCOL,
        "clientCapabilities": capabilities,
        "clientInfo": {"name": "turnstop", "title": "turnstop", "version": "0.1"},
    }
    try:
        return await rpc.call_within(_GREETED_WITHIN, "initialize", params)
    except BackendLost as lost:
        if rpc.broken.is_set():
            raise
        raise BackendRefused(
            f"{lost}: see that {launch.command[0]} is an agent, and is told to speak the "
            "Agent Client Protocol"
        ) from lost


async def _authenticate(rpc: Connection, method: str, hello: Mapping[str, Any]) -> None:
    try:
        await rpc.call("authenticate", {"methodId": method})
    except RpcError as error:
        ways = ", ".join(_logins(hello)) or "none"
        raise BackendRefused(
            f"the agent does not let us in by {method!r}: {error}; it takes {ways}"
        ) from error


def to_agent(
    peer: _Peer, launch: Launch, hello: Mapping[str, Any], address: ProcessAddress
) -> Agent:
    """The agent that has answered so.

    Raises:
        BackendRefused: no stop of it can be told the end of.
    """
    info = hello.get("agentInfo")
    told = info if isinstance(info, dict) else {}
    name, version = str(told.get("name") or ""), str(told.get("version") or "")
    profile, known = launch.profile, profile_of(name)
    if launch.recognise:
        profile = known or profile
    elif known not in (None, profile) and profile.agents:
        raise BackendRefused(
            f"the agent is {name}, and the profile {profile.name!r} is another agent's: "
            "leave profile= out"
        )
    profile.check(name, version)
    capabilities = hello.get("agentCapabilities")
    return Agent(
        peer,
        profile,
        name or profile.name,
        _kind_of(profile, name or os.path.basename(launch.command[0])),
        version,
        profile.remedies(version),
        address,
        capabilities if isinstance(capabilities, dict) else {},
        _logins(hello),
    )


def _kind_of(profile: Profile, name: str) -> str:
    return name if profile.name == "generic" else profile.name


def topic_of(incoming: Incoming) -> str | None:
    """The session that a frame is about."""
    session = incoming.params.get("sessionId")
    return session if isinstance(session, str) else None


@asynccontextmanager
async def open_agent(launch: Launch) -> AsyncGenerator[Agent, None]:
    """Run the agent while the block is open.

    Raises:
        BackendRefused: it is missing, or is none that can be used.
        BackendLost: it was lost before it was greeted.

    **Cancellation:** ends it, within the graces of its profile.
    """
    profile, hello = launch.profile, dict[str, Any]()

    async def shake_hands(rpc: Connection) -> None:
        hello.update(await greet(rpc, launch))

    # What tells its tools apart must not be inherited, where we are some agent's tool ourselves.
    outer = dict.fromkeys((*(profile.tool or ()), *filter(None, [profile.tool_session])))
    async with open_peer(
        launch.command,
        topic_of=topic_of,
        fallback=decline,
        handshake=shake_hands,
        patience=_PATIENCE,
        name=profile.name if profile.name != "generic" else "",
        cwd=launch.cwd,
        env={**outer, **profile.env, **launch.env},
        install=profile.install,
        grace=profile.grace,
    ) as peer:
        yield to_agent(peer, launch, hello, peer.process.address)


def _logins(hello: Mapping[str, Any]) -> tuple[str, ...]:
    listed = hello.get("authMethods")
    methods = listed if isinstance(listed, list) else []
    return tuple(repr(str(one.get("id"))) for one in methods if isinstance(one, dict))
