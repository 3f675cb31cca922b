"""A real Letta server as a bench: the lab finds it, and its agents ask the lab for their models."""

from __future__ import annotations

import importlib.metadata
import importlib.util
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager

import attrs

from .lab_target import LabTarget
from .model import Missing, Moment, Runner, RunnerName, Target

_NEEDED = ("h11", "letta_client")
_SDK = "letta-client"


@attrs.frozen
class LettaTarget(LabTarget):
    """The lab, and an agent that asks it.

    Attributes:
        url: where the server listens.
        agent: the id of the agent, whose conversations the rooms are.
    """

    url: str = ""
    agent: str = ""

    def prompt(self, moment: Moment | None) -> tuple[str, str]:
        """A prompt that says what the lab does: it goes on, since Letta ends no silent call."""
        from ...lab import Behaviour, write_prompt

        if moment in ("starting", "running"):
            return write_prompt(Behaviour("drip"))
        return super().prompt(moment)


class LettaBench:
    """`turnstop.adapters.letta`."""

    name = "letta"
    moments: tuple[Moment, ...] = ("starting", "running", "finishing")
    runners: tuple[RunnerName, ...] = ("turnstop", "raw")
    rooms: int | None = None

    async def versions(self) -> Mapping[str, str]:
        """The client's, and the server's, which is started: that takes longer than an opening."""
        missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
        if missing:
            what = f"letta needs {missing[0]}"
            raise Missing(f"{what}: python -m pip install 'turnstop[lab,letta]'")
        from ...lab import MissingProgram
        from ...lab.letta import VERSION, start_letta

        try:
            await start_letta()
        except MissingProgram as error:
            raise Missing(str(error)) from None
        return {"letta": VERSION, _SDK: importlib.metadata.version(_SDK)}

    @asynccontextmanager
    async def open_target(self) -> AsyncGenerator[Target, None]:
        """A lab, and an agent of the server."""
        from ...lab import open_lab
        from ...lab.letta import make_agent, start_letta

        url = await start_letta()
        async with open_lab() as lab:
            agent = await make_agent(url, lab.url)
            yield LettaTarget(lab, (), "", url=url, agent=agent)

    def open_runner(
        self, runner: RunnerName, target: Target
    ) -> AbstractAsyncContextManager[Runner]:
        """A client of the agent."""
        assert isinstance(target, LettaTarget)
        if runner == "raw":
            from .raw_letta import open_raw_letta

            return open_raw_letta(target.url, target.agent)
        return _open_ours(target)


@asynccontextmanager
async def _open_ours(target: LettaTarget) -> AsyncGenerator[Runner, None]:
    from ...adapters.letta import open_letta
    from .ours import open_ours

    async with open_letta(target.url, agent_id=target.agent) as letta, open_ours(letta) as ours:
        yield ours
