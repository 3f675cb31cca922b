"""The command line of `turnstop bench`."""

from __future__ import annotations

import importlib.util
import json
import logging
import signal
import sys
from functools import partial
from pathlib import Path
from typing import TextIO

import click
import trio

from ..interrupting import interrupted_by
from ..output import opened, writing
from .a2a import A2ABench
from .agents import DRIVEN
from .letta import LettaBench
from .local import LocalBench
from .model import MOMENTS, Bench, Missing, Moment, RunnerName
from .parlant import ParlantBench
from .plot import check_plot, plot
from .programs import ProgramBench
from .run import Plan, Results, measure, own_versions

_DEFAULT = (*(one.name for one in DRIVEN), "a2a", "parlant", "local")
LOST = 1
FAILED = 2
INTERRUPTED = 130


def benches(codex: str | None = None, band_python: str | None = None) -> dict[str, Bench]:
    """Every backend that there is a bench for, by name."""
    known: list[Bench] = []
    for driven in DRIVEN:
        known.append(ProgramBench(driven, codex if driven.name == "codex" else None, band_python))
    known += [A2ABench(kind, band_python) for kind in ("streaming", "polling", "plain", "swallow")]
    known += [ParlantBench(), LettaBench(), LocalBench()]
    return {bench.name: bench for bench in known}


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(benches())), metavar="[BACKEND]...")
@click.option("-n", default=30, show_default=True, type=click.IntRange(1), help="Stops a moment.")
@click.option(
    "--moment",
    "moments",
    multiple=True,
    type=click.Choice(MOMENTS),
    help="Stop at this moment; may be repeated.  [default: all]",
)
@click.option(
    "--against",
    type=click.Choice(["raw", "band"]),
    help="Alternate with the bare protocol, or with the asyncio peer.",
)
@click.option(
    "--json",
    "json_name",
    is_flag=False,
    flag_value="-",
    help="Write the figures as JSON; without FILE to stdout, and the table to stderr.",
    metavar="[FILE]",
)
@click.option(
    "--plot",
    "plot_file",
    type=click.Path(dir_okay=False, path_type=Path),
    help="Draw every stop into this file.",
)
@click.option("--codex", metavar="PATH", help="The codex to measure.")
@click.option("--band-python", metavar="PATH", help="A Python that has the asyncio peer.")
def bench(
    names: tuple[str, ...],
    n: int,
    moments: tuple[Moment, ...],
    against: RunnerName | None,
    json_name: str | None,
    plot_file: Path | None,
    codex: str | None,
    band_python: str | None,
) -> None:
    """Stop turns of real agents, and measure when their work was gone.

    BACKEND is one of these, and all that are installed where none is named:

    \b
    codex, claude, opencode           by their own protocols
    copilot                           by its SDK: needs turnstop[copilot]
    acp-copilot, acp-codex, acp-codex-zed, acp-claude,
    acp-gemini, acp-qwen, acp-opencode, acp-omp
                                      by the Agent Client Protocol
    a2a                               an agent of the A2A SDK's
    parlant                           Parlant's engine, in this process: needs
                                      turnstop[parlant], in an environment of its own
    local                             a function of this program
    a2a-polling, a2a-plain, a2a-swallow
                                      measured only where they are named; so is
    letta                             a Letta server: needs turnstop[lab,letta], and
                                      a server by tests/real/letta_server.py

    `turnstop lab install` gets the programs. Exit status: 0; 1 when turnstop lost a stop; 2 when
    something that is installed could not be measured, nothing could, or it could not be written.
    """
    if plot_file is not None:
        check_plot(plot_file)
    if json_name in benches():
        raise click.BadParameter(f"--json {json_name}: that is a backend; say --json=FILE")
    json_file = None if json_name is None else opened(json_name)
    known = benches(codex, band_python)
    plan = Plan(
        benches=tuple(known[name] for name in dict.fromkeys(names or _DEFAULT)),
        moments=tuple(dict.fromkeys(moments or MOMENTS)),
        n=n,
        against=against,
        named=frozenset(names) | ({"codex"} if codex is not None else set()),
    )
    results = run(plan)
    if results.rows or results.failures:
        with writing("the table"):
            _show(results, sys.stderr if json_name == "-" else sys.stdout)
    if json_file is not None:
        with writing("--json"), json_file as file:
            file.write(json.dumps(results.to_json(), indent=1) + "\n")
    if plot_file is not None and results.series:
        with writing("--plot"):
            plot(results.series, plot_file)
    if results.interrupted:
        click.echo("interrupted", err=True)
    sys.exit(_status(results))


def _status(results: Results) -> int:
    if results.interrupted:
        return INTERRUPTED
    if any(row.lost for row in results.rows if row.runner == "turnstop"):
        return LOST
    return FAILED if results.failures else 0


def run(plan: Plan) -> Results:
    """Measure, with a progress bar; Ctrl-C and SIGTERM end what was started, not the figures."""
    if importlib.util.find_spec("rich") is None:
        raise Missing("bench needs rich: python -m pip install 'turnstop[bench]'")
    from .table import progress

    results = Results(versions=own_versions())
    # What it would log is counted in the table.
    logging.getLogger("turnstop").addHandler(logging.NullHandler())
    try:
        with progress() as bar, interrupted_by(signal.SIGTERM, signal.SIGHUP):
            trio.run(partial(measure, plan, results, bar), strict_exception_groups=True)
    except* KeyboardInterrupt:
        results.interrupted = True
    return results


def _show(results: Results, file: TextIO | None) -> None:
    from .table import show

    if file is not None:  # a command whose stdout is closed has none
        show(results, file)
        file.flush()
