"""Every adapter that there is, and who shows that its stop stops: found by name, nothing imported.

turnstop's own adapters are the modules of `turnstop.adapters`, and are not registered. Another
package registers its own, and their probes under the same names:

    [project.entry-points."turnstop.adapters"]
    mine = "my_package.adapter:open_mine"

    [project.entry-points."turnstop.probes"]
    mine = "my_package.testing:MineProbe"

A probe is what `check_backend` takes; several are a list or tuple of them. What starts no remote
work is pinned instead: `NOTHING = NoRemoteWork("it only translates events")`, registered in the
place of its probe. A reason is not enough where the adapter's source has something to stop.
"""

from __future__ import annotations

import importlib.metadata
import pkgutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress

import attrs

from ._loading import Missing, as_probes, load
from ._probe import Probe
from ._source import find_spec, has_attribute, pin_in, stoppable_in

__all__ = [
    "Inventory",
    "Missing",
    "NoRemoteWork",
    "Probed",
    "load_probes",
    "read_inventory",
    "violations",
]

ADAPTERS = "turnstop.adapters"
PROBES = "turnstop.probes"


@attrs.frozen
class NoRemoteWork:
    """An adapter without a probe: it starts nothing that could be stopped.

    Attributes:
        reason: why that is so.
    """

    reason: str


@attrs.frozen
class Probed:
    """An adapter's probes.

    Attributes:
        probes: each as `module:attribute`.
        real: those that drive the real program, for `turnstop probe --real`.
        needs: modules of other packages, without which they are skipped.
        real_needs: as `needs`, for `real`.
        install: what brings them.
        real_install: what brings what `real` needs.
    """

    probes: tuple[str, ...]
    real: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    real_needs: tuple[str, ...] = ()
    install: str = ""
    real_install: str = ""


_DISTRIBUTIONS = {
    "a2a": "a2a-sdk",
    "copilot": "github-copilot-sdk",
    "letta_client": "letta-client",
    "trio_asyncio": "trio-asyncio",
}
"""What brings a module, where that has another name."""

_HERE = "turnstop.testing.probes"
_BENCH = "python -m pip install 'turnstop[bench]'"
_LAB = "python -m pip install 'turnstop[lab]'"
OWN: Mapping[str, Probed | NoRemoteWork] = {
    "a2a": Probed(
        (f"{_HERE}.a2a:A2AProbe", f"{_HERE}.a2a:A2APollingProbe", f"{_HERE}.a2a:A2APlainProbe"),
        needs=("a2a", "httpx"),
        install="python -m pip install 'turnstop[a2a]'",
        real=(f"{_HERE}.real_a2a:RealA2AProbe",),
        real_needs=("a2a", "httpx", "uvicorn", "starlette"),
        real_install=_BENCH,
    ),
    "acp": Probed(
        tuple(
            f"{_HERE}.acp:Acp{one}Probe"
            for one in ("", "Shared", "Claude", "Codex", "Copilot", "Qwen")
        ),
        real=(f"{_HERE}.real_acp:RealCodexAgentProbe", f"{_HERE}.real_acp:RealClaudeAgentProbe"),
        real_needs=("h11",),
        real_install=_LAB,
    ),
    "claude": Probed(
        (f"{_HERE}.claude:ClaudeProbe",),
        real=(f"{_HERE}.real_claude:RealClaudeProbe",),
        real_needs=("h11",),
        real_install=_LAB,
    ),
    "codex": Probed(
        (f"{_HERE}.codex:CodexProbe",),
        real=(f"{_HERE}.real_codex:RealCodexProbe",),
        real_needs=("h11",),
        real_install=_LAB,
    ),
    "letta": Probed(
        (f"{_HERE}.letta:LettaProbe", f"{_HERE}.letta:LettaAgentProbe"),
        needs=("letta_client", "httpx"),
        install="python -m pip install 'turnstop[letta]'",
        real=(f"{_HERE}.real_letta:RealLettaProbe", f"{_HERE}.real_letta:RealLettaAgentProbe"),
        real_needs=("letta_client", "httpx", "h11"),
        real_install="python -m pip install 'turnstop[lab,letta]'",
    ),
    "copilot": Probed(
        (f"{_HERE}.copilot:CopilotProbe",),
        needs=("copilot", "trio_asyncio"),
        install="python -m pip install 'turnstop[copilot]'",
        real=(f"{_HERE}.real_copilot:RealCopilotProbe",),
        real_needs=("copilot", "trio_asyncio", "h11"),
        real_install="python -m pip install 'turnstop[copilot,lab]'",
    ),
    "local": Probed((f"{_HERE}.local:LocalProbe", f"{_HERE}.local:LocalThreadProbe")),
    "opencode": Probed(
        (f"{_HERE}.opencode:OpenCodeProbe",),
        needs=("httpx2",),
        install="python -m pip install 'turnstop[opencode]'",
        real=(f"{_HERE}.real_opencode:RealOpenCodeProbe",),
        real_needs=("httpx2", "h11"),
        real_install="python -m pip install 'turnstop[lab,opencode]'",
    ),
    "parlant": Probed(
        (f"{_HERE}.parlant:ParlantProbe",),
        needs=("trio_asyncio",),
        install="python -m pip install 'turnstop[aio]'",
        real=(f"{_HERE}.real_parlant:RealParlantProbe",),
        real_needs=("parlant", "trio_asyncio"),
        real_install="python -m pip install 'turnstop[parlant]'",
    ),
}
"""turnstop's own adapters."""


@attrs.frozen
class Inventory:
    """What there is.

    Attributes:
        adapters: where each is: a module, or `module:attribute`.
        shown: what shows that its stop stops, or that there is nothing to stop.
        clashes: names that two packages have registered.
    """

    adapters: Mapping[str, str]
    shown: Mapping[str, Probed | NoRemoteWork]
    clashes: tuple[str, ...] = ()


def read_inventory() -> Inventory:
    """Find everything by its name. Imports nothing but `turnstop` itself."""
    adapters, clashes = _found(ADAPTERS, _own_modules())
    probes, more = _found(PROBES, {})
    shown: dict[str, Probed | NoRemoteWork] = {}
    for name, target in probes.items():
        reason = pin_in(target, NoRemoteWork.__name__)
        shown[name] = Probed((target,)) if reason is None else NoRemoteWork(reason)
    clashes += [f"{name} is one of turnstop's own" for name in shown if name in OWN]
    return Inventory(adapters, {**shown, **OWN}, (*clashes, *more))


def _own_modules() -> dict[str, str]:
    spec = find_spec(ADAPTERS)
    assert spec is not None
    paths = spec.submodule_search_locations or []
    return {one.name: f"{ADAPTERS}.{one.name}" for one in pkgutil.iter_modules(paths)}


def _found(group: str, own: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    found, clashes = dict(own), []
    for entry in importlib.metadata.entry_points(group=group):
        # Somebody's path may lead to the same distribution twice.
        if found.setdefault(entry.name, entry.value) != entry.value:
            text = f"{entry.name} is {found[entry.name]} and {entry.value} under {group}"
            clashes.append(text)
    return found, clashes


def unlisted(inventory: Inventory) -> Iterator[str]:
    """Adapters that nobody shows anything of."""
    for name in inventory.adapters:
        if name not in inventory.shown:
            yield f"{name} has no probe: write one, or pin it NoRemoteWork with the reason"


def stale(inventory: Inventory) -> Iterator[str]:
    """Probes and pins of what is not there, and what is registered and not there itself."""
    for name, target in inventory.adapters.items():
        if find_spec(target.partition(":")[0]) is None:
            yield f"{name} is registered as {target}: there is no such module"
    for name, shown in inventory.shown.items():
        if name not in inventory.adapters:
            yield f"{name} is no adapter (any more): take its probe or pin away"
        elif isinstance(shown, Probed):
            for target in (*shown.probes, *shown.real):
                if not has_attribute(target):
                    yield f"{name} has the probe {target}: there is none"


def pinned_but_stoppable(inventory: Inventory) -> Iterator[str]:
    """Pins of adapters whose source has something to stop."""
    for name, shown in inventory.shown.items():
        if isinstance(shown, NoRemoteWork) and name in inventory.adapters:
            for what in stoppable_in(inventory.adapters[name]):
                yield f"{name} is pinned NoRemoteWork, and has {what}: it needs a probe"


def pinned_without_reason(inventory: Inventory) -> Iterator[str]:
    """Pins that do not say why."""
    for name, shown in inventory.shown.items():
        if isinstance(shown, NoRemoteWork) and not shown.reason.strip():
            yield f"{name} is pinned NoRemoteWork, and no reason is given"


def clashing(inventory: Inventory) -> Iterator[str]:
    """Names that are taken twice."""
    yield from inventory.clashes


CHECKS: Sequence[Callable[[Inventory], Iterator[str]]] = (
    unlisted,
    stale,
    pinned_but_stoppable,
    pinned_without_reason,
    clashing,
)


def violations(inventory: Inventory | None = None) -> list[str]:
    """What is wrong with it, each by the adapter's name; empty where all is shown."""
    found = read_inventory() if inventory is None else inventory
    return [text for check in CHECKS for text in check(found)]


def load_probes(name: str, *, real: bool = False) -> list[Callable[[], Probe]]:
    """Import the probes of an adapter, each as what makes a fresh one.

    Args:
        name: of the adapter.
        real: take those that drive the real program.

    Raises:
        LookupError: there is no such adapter, or it has no such probe.
        Missing: what it needs is not installed.
    """
    inventory = read_inventory()
    shown = inventory.shown.get(name)
    if shown is None or isinstance(shown, NoRemoteWork):
        raise LookupError(_why_none(name, shown, inventory))
    targets = shown.real if real else shown.probes
    if not targets:
        raise LookupError(f"{name} has no probe of the real program")
    check_needs(name, shown, real=real)
    return [probe for target in targets for probe in as_probes(load(target))]


def _why_none(name: str, shown: NoRemoteWork | None, inventory: Inventory) -> str:
    if shown is not None:
        return f"{name} has no remote work, and no probe: {shown.reason}"
    if name in inventory.adapters:
        return f"{name} has no probe"
    return f"there is no adapter {name}; there are {', '.join(sorted(inventory.adapters))}"


def check_needs(name: str, shown: Probed, *, real: bool = False) -> None:
    """See that what the probes need is there, without importing it.

    Raises:
        Missing: it is not.
    """
    needs, install = (shown.needs, shown.install)
    if real:
        needs, install = (shown.real_needs, shown.real_install)
    lacks = [_brings(module) for module in needs if find_spec(module) is None]
    if lacks:
        raise Missing(f"{name} needs {', '.join(lacks)}: {install}")


def find_versions(shown: Probed, *, real: bool = False) -> dict[str, str]:
    """The versions of what the probes need, and of what they drive in this process."""
    found = {}
    for module in shown.real_needs if real else shown.needs:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[_brings(module)] = importlib.metadata.version(_brings(module))
    return found


def _brings(module: str) -> str:
    return _DISTRIBUTIONS.get(module, module)
