"""The figures as a picture. Needs matplotlib."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click

from .model import Missing, RunnerName
from .verdicts import Sample

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
    """Draw asked→ended of every stop, a strip for each backend, moment and runner."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot
    from matplotlib.ticker import LogLocator, NullFormatter

    figure, axes = pyplot.subplots(figsize=(9, 1 + 0.45 * len(series)), layout="constrained")
    strips = list(series.items())[::-1]
    for height, (_, samples) in enumerate(strips):
        _strip(axes, height, samples)
    axes.set_yticks(range(len(strips)), [" ".join(names) for names, _ in strips])
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.set_xlabel("asked → ended, ms (a cross: lost)")
    figure.savefig(file, dpi=150)
    pyplot.close(figure)


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
