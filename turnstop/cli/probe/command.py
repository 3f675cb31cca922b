"""The command line of `turnstop probe`."""

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import IO, TextIO

import click
import trio

from ...testing import ABILITIES, OBLIGATIONS
from ...testing._loading import Missing
from ...testing.bare import BARE_BUDGET
from ...testing.inventory import (
    NoRemoteWork,
    Probed,
    check_needs,
    find_versions,
    read_inventory,
)
from ..interrupting import interrupted_by
from ..main import INTERRUPTED
from ..numbers import Positive
from ..output import opened, writing
from .hearing import Probing
from .job import Job
from .naming import near
from .session import probe as probe_in_process
from .show import Printer, list_obligations

RED = 1
BAD_INPUT = 2


class BadInput(click.ClickException):
    """What was named cannot be probed; the text is one line that says what to do."""

    exit_code = BAD_INPUT


@click.command()
@click.argument("adapters", nargs=-1, metavar="ADAPTER...")
@click.option("--real", is_flag=True, help="Drive the real program instead of a recording one.")
@click.option(
    "--only", multiple=True, metavar="NAME", help="Check this obligation only; may be repeated."
)
@click.option("--list", "listing", is_flag=True, help="Print the obligations, and check nothing.")
@click.option(
    "--json",
    "json_name",
    is_flag=False,
    flag_value="-",
    help="Write the report as JSON; without FILE to stdout, and the rows to stderr.",
    metavar="[FILE]",
)
@click.option(
    "--cancel-within",
    default=BARE_BUDGET.cancel_within,
    show_default=True,
    type=Positive(),
    help="Of a factory's stop: seconds for the cancel.",
)
@click.option(
    "--kill-within",
    default=BARE_BUDGET.kill_within,
    show_default=True,
    type=Positive(),
    help="Of a factory's stop: seconds for the forceful rung.",
)
@click.option("--prompt", default="", help="What a factory's turns ask for: it must take long.")
@click.option(
    "--unable",
    multiple=True,
    metavar="ABILITY=REASON",
    help="What a factory's backend cannot do; may be repeated, and has to be true.",
)
@click.option("-v", "--verbose", is_flag=True, help="Tell what was seen of every turn.")
def probe(
    adapters: tuple[str, ...],
    real: bool,
    only: tuple[str, ...],
    listing: bool,
    json_name: str | None,
    cancel_within: float,
    kill_within: float,
    prompt: str,
    unable: tuple[str, ...],
    verbose: bool,
) -> None:
    """Check, promise by promise, whether an adapter's stop is real.

    ADAPTER is the name of an adapter, or module:factory, as Python would import it from here: what
    gives a backend, or an async context manager of one, or a probe of your own.

    Exit status: 0; 1 when a promise is not kept; 2 when something could not be probed, or did what
    it must not; 130 when interrupted.
    """
    if listing:
        with writing("the list"):
            list_obligations(sys.stdout)
        return
    if not adapters:
        _check_file(json_name)
        raise BadInput(f"name an adapter ({', '.join(_names())}), or module:factory")
    _check_only(only)
    _check_file(json_name)
    excuses = _excuses(unable)
    like = partial(
        Job,
        given=_given("cancel_within", "kill_within", "prompt", "unable"),
        only=only,
        real=real,
        cancel_within=cancel_within,
        kill_within=kill_within,
        prompt=prompt,
        unable=excuses,
    )
    jobs = _jobs(like, adapters, real)
    json_file = None if json_name is None else opened(json_name)
    rows_to = _or_nowhere(sys.stderr if json_name == "-" else sys.stdout)
    probings = _run(jobs, Printer(rows_to, verbose))
    if json_file is not None:
        with writing("--json"), json_file as file:
            _write(probings, _versions(adapters, real), file)
    sys.exit(_status(probings))


def _check_only(names: Sequence[str]) -> None:
    for name in names:
        if name not in OBLIGATIONS:
            close = near(name, list(OBLIGATIONS)) or "; --list has them all"
            raise BadInput(f"--only: there is no obligation {name}{close}")


def _check_file(name: str | None) -> None:
    """`--json codex` would write the report of nothing into a file that is called codex."""
    if name is not None and (re.fullmatch(r"[\w.]+:[\w.]+", name) or name in _names()):
        raise BadInput(f"--json {name}: that is an adapter; say --json last, or --json=FILE")


def _given(*names: str) -> tuple[str, ...]:
    """Those of these options that the user gave, as they are written."""
    context = click.get_current_context()
    from_user = click.core.ParameterSource.COMMANDLINE
    found = [name for name in names if context.get_parameter_source(name) is from_user]
    return tuple(f"--{name.replace('_', '-')}" for name in found)


def _excuses(words: Sequence[str]) -> dict[str, str]:
    excuses = {}
    for word in words:
        ability, _, reason = word.partition("=")
        if ability not in ABILITIES or not reason.strip():
            known = ", ".join(ABILITIES)
            raise BadInput(f"--unable {word}: say ABILITY=REASON, with one of {known}")
        excuses[ability] = reason.strip()
    return excuses


def _names() -> list[str]:
    return sorted(read_inventory().adapters)


def _jobs(like: Callable[..., Job], adapters: Sequence[str], real: bool) -> list[Job]:
    jobs, missing = [], []
    for adapter in dict.fromkeys(adapters):
        try:
            jobs.append(_job(like, adapter, real))
        except Missing as error:
            missing.append(str(error))
    if missing:
        raise BadInput("; ".join(missing))
    return jobs


def _job(like: Callable[..., Job], adapter: str, real: bool) -> Job:
    module, colon, attribute = adapter.partition(":")
    if not colon:
        targets, probes = _registered(adapter, real)
        return like(adapter=adapter, targets=targets, probes=probes)
    if real:
        raise BadInput(f"--real is for adapters by name, and {adapter} is a factory")
    if not module or not attribute or "/" in module or module.endswith(".py"):
        text = f"{adapter}: name a factory as Python imports it: package.module:factory"
        raise BadInput(text)
    return like(adapter=adapter, targets=(adapter,))


def _registered(name: str, real: bool) -> tuple[tuple[str, ...], bool]:
    """What is to be imported, and whether that is known to be probes."""
    inventory = read_inventory()
    if name not in inventory.adapters:
        text = f"there is no adapter {name}: there are {', '.join(sorted(inventory.adapters))}"
        raise BadInput(f"{text}; a factory of your own is named module:factory")
    shown = inventory.shown.get(name)
    if isinstance(shown, NoRemoteWork):
        raise BadInput(f"{name} has no remote work that could be stopped: {shown.reason}")
    if shown is None or (real and not shown.real):
        if real:
            raise BadInput(f"--real: {name} has no probe of a real program")
        return (inventory.adapters[name],), False
    check_needs(name, shown, real=real)
    return (shown.real if real else shown.probes), True


def _or_nowhere(file: TextIO | None) -> TextIO:
    """Python gives none where the descriptor was closed."""
    return file or click.get_current_context().with_resource(open(os.devnull, "w"))


def _run(jobs: Sequence[Job], printer: Printer) -> list[Probing]:
    probings = []
    try:
        with interrupted_by(signal.SIGTERM, signal.SIGHUP):
            for job in jobs:
                probings.append(trio.run(probe_in_process, job, printer))
                printer.end(probings[-1])
    except KeyboardInterrupt:
        click.echo("interrupted", err=True)
        sys.exit(INTERRUPTED)
    return probings


def _versions(adapters: Sequence[str], real: bool) -> dict[str, str]:
    """Ours, and those of the libraries that are driven."""
    from ..bench.run import own_versions

    found = own_versions()
    shown = read_inventory().shown
    for name in adapters:
        if isinstance(probed := shown.get(name), Probed):
            found |= find_versions(probed, real=real)
    return found


def _write(probings: Sequence[Probing], versions: Mapping[str, str], file: IO[str]) -> None:
    told = {"versions": versions, "adapters": [one.to_json() for one in probings]}
    file.write(json.dumps(told, indent=1) + "\n")


def _status(probings: Sequence[Probing]) -> int:
    verdicts = {one.verdict for one in probings}
    if verdicts & {"bad input", "not run"}:
        return BAD_INPUT
    return RED if "red" in verdicts else 0
