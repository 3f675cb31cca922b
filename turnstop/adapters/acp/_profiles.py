"""What differs between the agents that speak ACP: one small table each.

A profile says what an agent's process needs, and what the agent gets wrong: a remedy, by its name.

- `lost_early_cancel`: a cancel that comes right behind its prompt is lost for good. It is held
  back until the agent has shown that it works on the prompt. One that is not obeyed all the same
  is given up before the stop's time is over, and the process is ended.
- `missed_cancel`: now and then a cancel is not heard, and a second one is. It is written again for
  as long as the prompt is not answered.
- `silent_connection`: the prompt is answered as cancelled, and the agent still reads its model.
  The process is ended before the turn is said to be over; one that all rooms share is not, and
  nothing shows that the turn is over.
- `answers_ahead`: a cancel is answered before the work is over, and what the turn has cost is told
  when it is. The turn is over only then; in a session that has counted nothing yet, and tells no
  cost, it is when two requests that wait for the cancel have been answered.
- `empty_completion`: a cancel is answered as if the turn had completed, though nothing was done.
  Such an answer shows that the turn is over, and not that it was completed.
- `broken_history`: a tool call that was open at a stop stays in the history without its result.
  The session is left, and the room's next turn begins another.
- `answers_early`: prompts are answered before they ran, so that no answer is an end. Refused.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from typing import Literal, TypeAlias

import attrs

from ..._errors import BackendRefused
from ...transports.process import Grace

__all__ = ["PROFILES", "Fault", "Profile", "RemedyName", "find_profile"]

RemedyName: TypeAlias = Literal[
    "lost_early_cancel",
    "missed_cancel",
    "silent_connection",
    "answers_ahead",
    "empty_completion",
    "broken_history",
    "answers_early",
]
Version: TypeAlias = tuple[int, ...]


@attrs.frozen
class Fault:
    """What an agent gets wrong, in which versions, and the remedy's name.

    Attributes:
        remedy: its name.
        below: the version from which on it is right; None: no version is known to be.
        instead: what to take instead.
    """

    remedy: RemedyName
    below: Version | None = None
    instead: str = ""

    def hits(self, version: Version | None) -> bool:
        """Whether this version has it. One that is not told is not known to be right."""
        return self.below is None or version is None or version < self.below


@attrs.frozen
class Profile:
    """One agent.

    Attributes:
        name: what `open_acp` knows it by.
        programs: the names of its programs, as a command line has them.
        agents: how it names itself when it is greeted.
        install: what brings it.
        floor: the lowest version that was seen to keep the promises; None: none is checked.
        env: laid over the environment of its process.
        grace: how long each rung of its end may take.
        tool: what it puts into the environment of its tools' processes, None in place of a value
            for whatever it is; None where they are not known by anything.
        elicits: whether it is told that a person answers forms.
        resumes: whether it can be relied on to take up a session that its process has lost.
        hold: for `lost_early_cancel`: how long a cancel is held back behind its prompt, in
            seconds, where the agent shows nothing.
        obeys: for `lost_early_cancel`: within how many seconds a cancel is obeyed, if ever.
        again: for `missed_cancel`: after how many seconds it is written again.
        faults: what it gets wrong.
    """

    name: str
    programs: tuple[str, ...] = ()
    agents: tuple[str, ...] = ()
    install: str = ""
    floor: Version | None = None
    env: Mapping[str, str | None] = attrs.field(factory=dict)
    grace: Grace = attrs.field(factory=Grace)
    tool: Mapping[str, str | None] | None = None
    elicits: bool = False
    resumes: bool = True
    hold: float = 0.0
    obeys: float = 1.0
    again: float = 2.0
    faults: tuple[Fault, ...] = ()

    def remedies(self, version: str) -> frozenset[str]:
        """The remedies that this version needs."""
        numbers = parse_version(version)
        return frozenset(one.remedy for one in self.faults if one.hits(numbers))

    def check(self, agent: str, version: str) -> None:
        """See that it is one whose stop can be told the end of.

        Raises:
            BackendRefused: it is not; the text has what to take.
        """
        numbers = parse_version(version)
        for fault in self.faults:
            if fault.remedy == "answers_early" and fault.hits(numbers):
                told = f" {version}" if version else ", which does not tell its version,"
                raise BackendRefused(
                    f"{agent or self.name}{told} answers a prompt before it has run, once a "
                    f"prompt was cancelled, so that nothing tells when a turn is over; "
                    f"{fault.instead}"
                )
        if self.floor is not None and numbers is not None and numbers < self.floor:
            floor = ".".join(map(str, self.floor))
            raise BackendRefused(
                f"{agent or self.name} is {version}, and turnstop needs {floor} or later; "
                f"install it with: {self.install}"
            )


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
            faults=(Fault("broken_history"),),
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


def parse_version(text: str) -> Version | None:
    """The numbers that a version begins with; None where there are none."""
    found = re.match(r"v?(\d+(?:\.\d+)*)", text.strip())
    return tuple(map(int, found[1].split("."))) if found else None


def _program(word: str) -> str:
    """What a word of a command line runs: a binary, or a package's script."""
    name = os.path.basename(word)
    for suffix in (".js", ".mjs", ".cjs", "-linux-x64", "-linux-arm64"):
        name = name.removesuffix(suffix)
    return name
