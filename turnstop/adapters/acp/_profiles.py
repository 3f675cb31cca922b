"""What differs between the agents that speak ACP: one small table each."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence

from ...transports.process import Grace
from ._profile import Fault, Profile

__all__ = ["PROFILES", "find_profile", "profile_of"]

_CLAUDE = "@agentclientprotocol/claude-agent-acp"
PROFILES: Mapping[str, Profile] = {
    one.name: one
    for one in (
        Profile(
            "copilot",
            programs=("copilot",),
            agents=("Copilot",),
            install="npm install -g @github/copilot@1.0.102",
            floor=(1, 0, 102),
            # A SIGTERM only makes it wait for two seconds before it goes.
            grace=Grace(close=0.0, terminate=0.0, kill=1.0),
            tool={"COPILOT_CLI": "1"},
            tool_session="COPILOT_AGENT_SESSION_ID",
            hold=1.0,
            obeys=1.0,
            faults=(Fault("lost_early_cancel"),),
        ),
        Profile(
            "omp",
            programs=("omp",),
            agents=("oh-my-pi",),
            install="npm install -g bun @oh-my-pi/pi-coding-agent@18.2.3",
            floor=(18, 2, 3),
            grace=Grace(close=0.2),
            # Its tools carry Claude's CLAUDECODE as well, which says nothing of whose they are.
            tool={"OMPCODE": "1"},
            elicits=True,
            faults=(Fault("missed_cancel"),),
        ),
        Profile("cursor", programs=("cursor-agent",)),
        Profile(
            "codex",
            programs=("codex-acp",),
            agents=("@agentclientprotocol/codex-acp", "codex-acp"),
            install="npm install -g @agentclientprotocol/codex-acp@2.6.0",
            floor=(0, 16),
            grace=Grace(close=0.2),
            tool={"CODEX_THREAD_ID": None},
            tool_session="CODEX_THREAD_ID",
            faults=(Fault("missed_cancel"), Fault("silent_connection", below=(2,))),
        ),
        Profile(
            "claude",
            programs=("claude-agent-acp", "claude-code-acp"),
            agents=(_CLAUDE, "@zed-industries/claude-agent-acp"),
            install=f"npm install -g {_CLAUDE}@0.49.0",
            # Within another Claude, it refuses to start.
            env={"CLAUDECODE": None, "CLAUDE_CODE_ENTRYPOINT": None},
            grace=Grace(close=0.5),
            tool={"CLAUDECODE": "1"},
            tool_session="CLAUDE_CODE_SESSION_ID",
            faults=(
                Fault("answers_ahead"),
                Fault(
                    "answers_early",
                    below=(0, 49),
                    instead=f"take 0.49 or later: npm install -g {_CLAUDE}@0.49.0",
                ),
            ),
        ),
        Profile(
            "opencode",
            programs=("opencode",),
            agents=("OpenCode",),
            install="npm install -g opencode-ai@1.18.33",
            floor=(1, 18, 33),
            tool={"OPENCODE": "1"},
            faults=(Fault("empty_completion"),),
        ),
        Profile(
            "gemini",
            programs=("gemini",),
            agents=("gemini-cli",),
            install="npm install -g @google/gemini-cli@0.61.0",
            floor=(0, 61),
            grace=Grace(close=0.2),
            tool={"GEMINI_CLI": "1"},
            resumes=False,
            faults=(Fault("broken_history"), Fault("reads_on")),
        ),
        Profile(
            "qwen",
            programs=("qwen",),
            agents=("qwen-code",),
            install="npm install -g @qwen-code/qwen-code@0.15.10",
            floor=(0, 15, 10),
            grace=Grace(close=0.5),
            tool={"QWEN_CODE": "1"},
        ),
        Profile("generic"),
    )
}
"""Every profile by its name. The figures were measured; `docs/how-to/acp.md` has them."""


def find_profile(name: str | None, command: Sequence[str]) -> Profile:
    """The profile of this name; where there is none, the one that the command line is sure to mean.

    Raises:
        ValueError: there is no profile of this name; the text lists those that there are.
    """
    if name is None:
        words = {_program(word) for word in command if not word.startswith("-")}
        named = [one for one in PROFILES.values() if words.intersection(one.programs)]
        return named[0] if len(named) == 1 else PROFILES["generic"]
    if name not in PROFILES:
        raise ValueError(f"there is no profile {name!r}; there are {', '.join(sorted(PROFILES))}")
    return PROFILES[name]


def profile_of(agent: str) -> Profile | None:
    """The profile of an agent that names itself so."""
    return next((one for one in PROFILES.values() if agent in one.agents), None)


def _program(word: str) -> str:
    """What a word of a command line runs: a binary, or a package's script."""
    name = os.path.basename(word)
    for suffix in (".js", ".mjs", ".cjs", "-linux-x64", "-linux-arm64"):
        name = name.removesuffix(suffix)
    return name
