"""The figures as a picture. Needs matplotlib."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .model import Missing, RunnerName
from .verdicts import Sample

_ACROSS = 3
"""So many panels are beside each other at most."""
Series = Mapping[tuple[str, str, RunnerName], Sequence[Sample]]


def check_plot(file: Path) -> None:
    """See that the plot can be made, before anything is measured.

    Raises:
        Missing: matplotlib is not installed.
        click.BadParameter: matplotlib does not know such files, or none can be written there.
    """
    if importlib.util.find_spec("matplotlib") is None:
        raise Missing("--plot needs matplotlib: python -m pip install matplotlib")
    from matplotlib.backend_bases import FigureCanvasBase

    kinds = FigureCanvasBase.get_supported_filetypes()
    if file.suffix.removeprefix(".") not in kinds:
        raise click.BadParameter(f"--plot writes one of {', '.join(sorted(kinds))}: {file}")
    existed = file.exists()
    try:
        file.open("ab").close()
    except OSError as error:
        raise click.BadParameter(f"--plot cannot write {file}: {error.strerror}") from None
    if not existed:
        file.unlink()


def plot(series: Series, file: Path) -> None:
    """Draw asked→ended of every stop: a panel a backend, a strip for each moment and runner."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    backends = list(dict.fromkeys(backend for backend, _, _ in series))
    across = min(_ACROSS, len(backends))
    down = -(-len(backends) // across)
    most = max(sum(backend == name for name, _, _ in series) for backend in backends)
    figure, axes = pyplot.subplots(
        down,
        across,
        figsize=(max(9, 4.5 * across), 0.5 + down * (0.8 + 0.28 * most)),
        layout="constrained",
        sharex=True,
        squeeze=False,
    )
    for panel, name in zip(axes.flat, backends, strict=False):
        _panel(panel, name, {key[1:]: taken for key, taken in series.items() if key[0] == name})
    for panel in axes.flat[len(backends) :]:
        panel.set_visible(False)
    figure.supxlabel("asked → ended, ms (a cross: lost)")
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


def _panel(axes: Any, name: str, series: Mapping[tuple[str, RunnerName], Sequence[Sample]]) -> None:
    from matplotlib.ticker import LogLocator, NullFormatter

    strips = list(series.items())[::-1]
    for height, (_, samples) in enumerate(strips):
        _strip(axes, height, samples)
    axes.set_title(name)
    axes.set_yticks(range(len(strips)), [_label(*names) for names, _ in strips])
    axes.set_ylim(-0.8, len(strips) - 0.2)
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator())
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    # Where the panels below are fewer, this one is the last of its column.
    axes.xaxis.set_tick_params(labelbottom=True)
    axes.grid(axis="x", alpha=0.3)


def _label(moment: str, runner: RunnerName) -> str:
    return moment if runner == "turnstop" else runner


def _strip(axes: Any, height: int, samples: Sequence[Sample]) -> None:
    for lost, marker, colour in ((False, "|", "tab:blue"), (True, "x", "tab:red")):
        times = [
            (sample.outcome.ended_at - sample.outcome.asked_at) * 1000
            for sample in samples
            if bool(sample.lost) is lost
            and sample.outcome.asked_at is not None
            and sample.outcome.ended_at is not None
        ]
        axes.plot(times, [height] * len(times), marker, color=colour, markersize=11)
