"""Plots of the lab: curves averaged over seeds, and bars."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle
from pathlib import Path
from textwrap import fill
from typing import TypedDict

import numpy as np
import numpy.typing as npt


class Curve(TypedDict):
    """A line of a plot with its spread, as plain lists that can be stored in the figures of a result."""

    x: list[float]
    mean: list[float]
    low: list[float]
    high: list[float]


def curve(x: Sequence[float], samples: npt.ArrayLike) -> Curve:
    """Return mean, minimum and maximum over seeds. `samples` has a row per seed and a column per x."""
    table = np.asarray(samples, dtype=np.float64)
    return Curve(
        x=[float(value) for value in x],
        mean=table.mean(axis=0).tolist(),
        low=table.min(axis=0).tolist(),
        high=table.max(axis=0).tolist(),
    )


def draw_curves(
    path: Path,
    curves: Mapping[str, Curve],
    *,
    title: str,
    x_label: str,
    y_label: str,
    log_x: bool = False,
    log_y: bool = False,
) -> None:
    """Write an image of the named curves, each with a band from its minimum to its maximum."""
    # Imported lazily, because the import takes half a second.
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    # Different dashes distinguish curves that coincide.
    for (name, line), dashes in zip(curves.items(), cycle(("-", "--", "-.", ":"))):
        (drawn,) = axes.plot(
            line["x"], line["mean"], dashes, marker="o", markersize=3, linewidth=2, label=name
        )
        axes.fill_between(
            line["x"], line["low"], line["high"], color=drawn.get_color(), alpha=0.15, linewidth=0
        )
    if log_x:
        axes.set_xscale("log")
    if log_y:
        axes.set_yscale("log")
    axes.set(title=fill(title, 80), xlabel=x_label, ylabel=y_label)
    axes.grid(alpha=0.3)
    # Beside the plot, where the legend hides no curve.
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    figure.savefig(path, dpi=120, bbox_inches="tight")


def draw_bars(path: Path, bars: Mapping[str, float], *, title: str, y_label: str) -> None:
    """Write an image with a labelled bar for each name."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8, 5), layout="constrained")
    FigureCanvasAgg(figure)
    axes = figure.add_subplot()
    axes.bar_label(axes.bar(list(bars), list(bars.values()), width=0.6), fmt="{:,.0f}")
    axes.set(title=fill(title, 80), ylabel=y_label)
    axes.grid(alpha=0.3, axis="y")
    figure.savefig(path, dpi=120, bbox_inches="tight")
