"""What the command and the probing process tell each other."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any, Self

import attrs

from ...testing import Obligation, Observed, Outcome, Row

__all__ = ["Job", "Speaker", "read_row"]


@attrs.frozen(kw_only=True)
class Job:
    """What is to be probed.

    Attributes:
        adapter: what the user called it.
        targets: probes or one factory, each as `module:attribute`.
        probes: whether they are known to be probes.
        only: names of obligations; empty: all.
        real: whether the probes drive the real program.
        cancel_within: of the budget, where there is no probe; as the next.
        kill_within: see above.
        prompt: what each turn asks for, where there is no probe; as the next.
        unable: abilities that it lacks, with the reasons.
        given: which of these options the user gave.
    """

    adapter: str
    targets: tuple[str, ...]
    probes: bool = False
    only: tuple[str, ...] = ()
    real: bool = False
    cancel_within: float
    kill_within: float
    prompt: str = ""
    unable: Mapping[str, str] = {}
    given: tuple[str, ...] = ()

    def to_argument(self) -> str:
        """As one argument of a command."""
        return json.dumps(attrs.asdict(self))

    @classmethod
    def from_argument(cls, text: str) -> Self:
        """What `to_argument` gave."""
        return cls(**json.loads(text))


@attrs.frozen
class Speaker:
    """Where the probing process says how far it is: a descriptor that nobody else has."""

    _descriptor: int

    def say(self, what: str, **more: object) -> None:
        """Send one message, whole and at once."""
        rest = json.dumps({"what": what, **more}).encode() + b"\n"
        while rest:
            rest = rest[os.write(self._descriptor, rest) :]


def read_row(told: Mapping[str, Any]) -> Row:
    """A row, from its JSON."""
    obligation = Obligation(told["obligation"], told["says"], (), _play)
    observed = tuple(_read_observed(one) for one in told["observed"])
    return Row(obligation, Outcome(told["outcome"]), told["text"], observed, told["seconds"])


async def _play(stage: object) -> None:
    raise NotImplementedError("it was only told of here")


def _read_observed(told: Mapping[str, Any]) -> Observed:
    lists = {name: tuple(value) for name, value in told.items() if isinstance(value, list)}
    return Observed(**{**told, **lists})
