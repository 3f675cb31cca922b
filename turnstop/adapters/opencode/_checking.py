"""Seeing that what listens is an opencode that will do, and that it is ready for turns."""

from __future__ import annotations

from contextlib import suppress
from typing import Final

from ..._errors import BackendMisbehaved, BackendRefused
from ...transports.dialect import shorten
from ._wire import NoOpenCode, Wire

INSTALL: Final = "npm install --global opencode-ai@1.18.33"
_FLOOR: Final = (1, 18)
_DIGITS: Final = 9
# What the first turn would have opencode set up. Setting up that is aborted with the turn fails
# for good, in every later turn of this server: so it is done before, where no abort reaches it.
_SET_UP: Final = (
    "/config/providers",
    "/agent",
    "/command",
    "/skill",
    "/mcp",
    "/lsp",
    "/formatter",
    "/experimental/tool/ids",
)


async def check(wire: Wire) -> None:
    """See that it is an opencode that will do, and have it set itself up."""
    try:
        health = await wire.get("/global/health")
    except NoOpenCode as error:
        raise BackendRefused(f"no opencode listens at {wire.url}: correct the url") from error
    version = str(health.get("version")) if isinstance(health, dict) else ""
    parts = version.split("-")[0].split(".")
    numbers = tuple(int(part[:_DIGITS]) for part in parts if part.isdecimal())
    if not numbers:
        raise BackendMisbehaved(f"what listens at {wire.url} told no version: {shorten(health)}")
    if numbers < _FLOOR:
        floor = ".".join(map(str, _FLOOR))
        raise BackendRefused(
            f"opencode at {wire.url} is {version}, and {floor} is the oldest that will do; "
            f"install a newer one with: {INSTALL}"
        )
    for path in _SET_UP:
        # A version without one of them has nothing to set up there.
        with suppress(BackendMisbehaved):
            await wire.get(path)
