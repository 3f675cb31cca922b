"""Which Claude Code is run, and with what."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path

import attrs

from ..._errors import BackendRefused
from ...transports.offspring import make_mark

FLOOR = "2.1.185"
"""The oldest Claude Code that the adapter was tried with."""

INSTALL = "python -m pip install claude-agent-sdk==0.2.189"
"""What installs one that will do: the package has the program inside."""

_MARK = "TURNSTOP_CLAUDE"

TOOL: Mapping[str, str | None] = {"CLAUDECODE": "1"}
"""What Claude adds to the environment of its tools."""

# A background task, a monitor and a timer wake Claude when their time has come: it then begins
# turns of its own, which belong to no room, and no stop reaches them.
_NO_BACKGROUND = {
    "CLAUDE_CODE_DISABLE_BACKGROUND_TASKS": "1",
    "CLAUDE_CODE_DISABLE_CRON": "1",
}
_WAKING_TOOLS = ("Monitor", "ScheduleWakeup")
# This process may run in a tool of Claude's itself: its Claude is another one.
_OUTER = ("CLAUDECODE", "CLAUDE_CODE_SESSION_ID", "CLAUDE_CODE_CHILD_SESSION", "CLAUDE_PID")
_STREAMS = (
    "--output-format=stream-json",
    "--input-format=stream-json",
    "--include-partial-messages",
    "--verbose",
    "--permission-prompt-tool=stdio",
)

Command = str | os.PathLike[str] | Sequence[str]


@attrs.frozen
class Settings:
    """How Claude is run; None leaves it to Claude's own settings.

    The attributes are the arguments of `open_claude`.
    """

    command: Sequence[str]
    cwd: str | None = None
    env: Mapping[str, str | None] = attrs.field(factory=dict, repr=False)
    model: str | None = None
    permission_mode: str | None = None
    allowed_tools: Sequence[str] = ()
    disallowed_tools: Sequence[str] = ()
    setting_sources: Sequence[str] | None = None
    background: bool = False
    args: Sequence[str] = ()

    def to_command(self, session: str, resume: bool) -> list[str]:
        """The whole command line of a session's process."""
        options = {"model": self.model, "permission-mode": self.permission_mode}
        options["allowedTools"] = ",".join(self.allowed_tools) or None
        waking = () if self.background else _WAKING_TOOLS
        options["disallowedTools"] = ",".join((*self.disallowed_tools, *waking)) or None
        if self.setting_sources is not None:
            options["setting-sources"] = ",".join(self.setting_sources)
        options["resume" if resume else "session-id"] = session
        given = [f"--{name}={value}" for name, value in options.items() if value is not None]
        return [*self.command, *_STREAMS, *given, *self.args]

    def to_env(self, mark: str) -> dict[str, str | None]:
        """What is laid over this process's environment."""
        switches = {} if self.background else _NO_BACKGROUND
        return {**dict.fromkeys(_OUTER), **switches, **self.env, **dict([mark_of(mark)])}


def mark_of(mark: str) -> tuple[str, str]:
    """The variable that tells what a room's process has started from what others have."""
    return make_mark(_MARK, mark)


def find_command(command: Command | None, env: Mapping[str, str | None]) -> list[str]:
    """The program: the one that is given, else the one on PATH, else the bundled one.

    Raises:
        BackendRefused: there is none.
    """
    if isinstance(command, str | os.PathLike):
        return [os.fspath(command)]
    if command is not None:
        if not command:
            raise ValueError("command is empty: name a program, or leave it out")
        return list(command)
    if found := shutil.which("claude", path=env.get("PATH")):
        return [found]
    # Finding a package is not importing it.
    package = find_spec("claude_agent_sdk")
    for folder in (package and package.submodule_search_locations) or ():
        bundled = Path(folder, "_bundled", "claude")
        if bundled.is_file():
            return [str(bundled)]
    raise BackendRefused(f"claude is not installed; install it with: {INSTALL}")
