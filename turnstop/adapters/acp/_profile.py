"""What a profile is: what an agent's process needs, and which remedies its version needs.

- `lost_early_cancel`: a cancel that comes right behind its prompt is lost for good. It is held
  back until the agent has shown that it works on the prompt. One that is not obeyed all the same
  is given up before the stop's time is over, and the process is ended.
- `missed_cancel`: now and then a cancel is not heard, and a second one is. It is written again for
  as long as the prompt is not answered.
- `silent_connection`: the prompt is answered as cancelled, and the agent still reads its model.
  The process is ended before the turn is said to be over; one that all rooms share is not, and
  nothing shows that the turn is over.
- `reads_on`: a prompt that has come to a limit, as one that was found to turn in circles, is
  answered, and the model is read on. A cancel ends that, and a request that is answered behind it
  shows that it was heard. Only then is the turn said to be over.
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

import re
from collections.abc import Mapping
from typing import Literal, TypeAlias

import attrs

from ..._errors import BackendRefused
from ...transports.process import Grace

__all__ = ["Fault", "Profile", "RemedyName", "parse_version"]

RemedyName: TypeAlias = Literal[
    "lost_early_cancel",
    "missed_cancel",
    "silent_connection",
    "reads_on",
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
        tool_session: the variable by which it tells its tools the session's id, if it does.
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
    tool_session: str | None = None
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


def parse_version(text: str) -> Version | None:
    """The numbers that a version begins with; None where there are none."""
    found = re.match(r"v?(\d{1,9}(?:\.\d{1,9})*)", text.strip())
    return tuple(map(int, found[1].split("."))) if found else None
