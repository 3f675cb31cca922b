"""The real Letta server, tapped, in the scenes of the golden wire.

PYTHONPATH=.:tests python -m real.golden_letta      # records them all anew
"""

from __future__ import annotations

import sys
from pathlib import Path

import attrs
import httpx
import trio

from turnstop.adapters.letta import open_letta
from turnstop.lab import Behaviour, Lab, open_lab, write_prompt
from turnstop.lab.letta import VERSION, make_agent, start_letta
from turnstop.testing.golden import Recordings, WireFrame
from turnstop.testing.recording.letta.rules import RULES, letta_names
from turnstop.testing.recording.letta.scenes import SCENES
from turnstop.testing.recording.letta.tap import WireTap

from .recorder import GOLDEN, record_anew

RECORDINGS = Recordings(GOLDEN / "letta", "letta", RULES, letta_names)
PATIENCE = 300.0
WORDS = {
    "answer": Behaviour("answer"),
    "park": Behaviour("drip", 20),
    "ask": Behaviour("park", 0),
    "fail": Behaviour("refuse"),
}


@attrs.define
class RealWorld:
    lab: Lab
    nursery: trio.Nursery
    names: list[str] = attrs.field(factory=list)

    def message(self, word: str) -> str:
        name = f"message-{len(self.names) + 1}"
        self.names.append(name)
        if word == "ask":
            self.nursery.start_soon(self.call, name)
        return write_prompt(WORDS[word], name)[1]

    async def call(self, name: str) -> None:
        """Have the model call the tool, and answer with its result."""
        await self.lab.parked(name)
        self.lab.order(name, "call", "ring_bell", {"times": 2})
        await self.lab.until(lambda: len(self.lab.requests(name)) == 2)
        await self.lab.parked(name)
        self.lab.release(name)


async def record(name: str, home: Path) -> list[WireFrame]:
    """Play a scene on the real server; all that went by."""
    scene, tap = SCENES[name], WireTap(httpx.AsyncHTTPTransport())
    with trio.fail_after(PATIENCE):
        url = await start_letta()
        async with open_lab() as lab, trio.open_nursery() as nursery:
            agent = await make_agent(url, lab.url, asks=True)
            async with open_letta(url, agent_id=agent, transport=tap, **scene.settings) as backend:
                await scene.play(backend, RealWorld(lab, nursery))
    return tap.frames


def trim(frame: WireFrame, name: str) -> WireFrame:
    """Without what the model was asked and has answered, which stands in the trace as well."""
    if name != "GET trace" or not isinstance(frame.body.get("body"), dict):
        return frame
    long = ("request_json", "response_json")
    kept = {key: value for key, value in frame.body["body"].items() if key not in long}
    return attrs.evolve(frame, body={**frame.body, "body": kept})


async def main() -> None:
    """Record every scene anew, or those that are named."""
    for name in sys.argv[1:] or SCENES:
        await record_anew(RECORDINGS, VERSION, name, record, trim=trim)


if __name__ == "__main__":
    trio.run(main)
