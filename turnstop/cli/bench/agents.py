"""The real programs that there is a bench for, each with its adapter and its bare protocol."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import TYPE_CHECKING

from .model import Runner
from .programs import Driven

if TYPE_CHECKING:
    from ...abc import Backend
    from ...lab import Program

_WARM = 4
"""So many processes of a program are kept for each runner: some are watched while one is used."""
_FEW = 2
"""The same, where each takes half a gigabyte."""


def _codex(
    command: Sequence[str], cwd: str, env: Mapping[str, str | None]
) -> AbstractAsyncContextManager[Backend[str]]:
    from ...adapters.codex import open_codex

    return open_codex(command, cwd=cwd, env=env, approval="untrusted")


def _raw_codex(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AbstractAsyncContextManager[Runner]:
    from .raw_codex import open_raw_codex

    return open_raw_codex(command, cwd, env)


def _claude(
    command: Sequence[str], cwd: str, env: Mapping[str, str | None]
) -> AbstractAsyncContextManager[Backend[str]]:
    from ...adapters.claude import open_claude

    return open_claude(command, cwd=cwd, env=env)


def _raw_claude(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AbstractAsyncContextManager[Runner]:
    from .raw_claude import open_raw_claude

    return open_raw_claude(command, cwd, env)


def _copilot(
    command: Sequence[str], cwd: str, env: Mapping[str, str | None]
) -> AbstractAsyncContextManager[Backend[str]]:
    from ...adapters.copilot import open_copilot
    from ...lab import copilot_session

    # Without trio-asyncio, as on Python 3.14, its loop has a thread of its own.
    thread = importlib.util.find_spec("trio_asyncio") is None
    asked = copilot_session(_lab_url(env))
    return open_copilot(command, cwd=cwd, env=env, thread=thread, **asked)


def _raw_copilot(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AbstractAsyncContextManager[Runner]:
    from ...lab import copilot_session
    from .raw_copilot import open_raw_copilot

    return open_raw_copilot(command, cwd, env, **copilot_session(_lab_url(env)))


def _lab_url(env: Mapping[str, str | None]) -> str:
    """Where the lab is: what the CLI's environment says is not read where an SDK drives it."""
    return (env["COPILOT_PROVIDER_BASE_URL"] or "").removesuffix("/v1")


def _opencode(
    command: Sequence[str], cwd: str, env: Mapping[str, str | None]
) -> AbstractAsyncContextManager[Backend[str]]:
    from ...adapters.opencode import open_opencode

    return open_opencode(command=command, directory=cwd, env=env)


def _raw_opencode(
    command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AbstractAsyncContextManager[Runner]:
    from .raw_opencode import open_raw_opencode

    return open_raw_opencode(command, cwd, env)


def _acp(
    profile: str, mode: str | None, command: Sequence[str], cwd: str, env: Mapping[str, str | None]
) -> AbstractAsyncContextManager[Backend[str]]:
    from ...adapters.acp import open_acp

    return open_acp(command, profile=profile, cwd=cwd, env=env, mode=mode)


def _raw_acp(
    mode: str | None, command: Sequence[str], cwd: str, env: Mapping[str, str]
) -> AbstractAsyncContextManager[Runner]:
    from .raw_acp import open_raw_acp

    return open_raw_acp(command, cwd, env, mode)


def _app_server(program: Program) -> Sequence[str]:
    return (*program.command, "app-server")


def _server(program: Program) -> Sequence[str]:
    return (*program.command, "serve")


def _alone(program: Program) -> Sequence[str]:
    return program.command


def _as_agent(program: Program) -> Sequence[str]:
    return program.acp_command


def _agent(
    name: str, program: str, profile: str, *, rooms: int = _WARM, mode: str | None = None
) -> Driven:
    return Driven(
        name=f"acp-{name}",
        program=program,
        command=_as_agent,
        open_backend=partial(_acp, profile, mode),
        open_raw=partial(_raw_acp, mode),
        rooms=rooms,
    )


DRIVEN: tuple[Driven, ...] = (
    Driven(
        name="codex",
        program="codex",
        command=_app_server,
        open_backend=_codex,
        open_raw=_raw_codex,
        band="codex",
    ),
    Driven(
        name="claude",
        program="claude",
        command=_alone,
        open_backend=_claude,
        open_raw=_raw_claude,
        rooms=_WARM,
    ),
    Driven(
        name="copilot",
        program="copilot",
        command=_alone,
        open_backend=_copilot,
        open_raw=_raw_copilot,
        needs="copilot",
        sdk="github-copilot-sdk",
    ),
    Driven(
        name="opencode",
        program="opencode",
        command=_server,
        open_backend=_opencode,
        open_raw=_raw_opencode,
        needs="httpx2",
    ),
    _agent("copilot", "copilot", "copilot"),
    _agent("codex", "codex-acp", "codex", mode="read-only"),
    _agent("codex-zed", "zed-codex-acp", "codex"),
    _agent("claude", "claude-agent-acp", "claude"),
    _agent("gemini", "gemini", "gemini"),
    _agent("qwen", "qwen", "qwen"),
    _agent("opencode", "opencode", "opencode", rooms=_FEW),
    _agent("omp", "omp", "omp", rooms=_FEW),
)
