"""Savings in closed form over window ratios and selectivities, for slice-E1 to slice-E3 (S15)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from slicemill_lab.experiment import Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.joins import mean, open_interval

STEPS: Mapping[Scale, int] = {"small": 49, "full": 499}
DRAWN = (0.1, 0.5, 0.9)

Saving = Callable[[float, float], float]
"""Saved share, by W1 / W2 and the selectivity of the selection."""


@dataclass(frozen=True, slots=True)
class Savings:
    """Savings in percent: over the whole square, and along the window ratio for the drawn selectivities."""

    rho: list[float]
    values: Mapping[str, list[float]]
    lines: Mapping[str, list[float]]

    @property
    def means(self) -> dict[str, float]:
        return {name: mean(values) for name, values in self.values.items()}

    @property
    def least(self) -> float:
        return min(min(values) for values in self.values.values())

    def figures(self) -> dict[str, Any]:
        return {"rho": self.rho, "saved_percent": self.lines, "mean_percent": self.means}


def over_the_square(savings: Mapping[str, Saving], scale: Scale) -> Savings:
    grid = open_interval(STEPS[scale])
    return Savings(
        grid,
        {name: [100 * saving(rho, ss) for rho in grid for ss in grid] for name, saving in savings.items()},
        {
            f"{name}, Ss {ss:g}": [100 * saving(rho, ss) for rho in grid]
            for name, saving in savings.items()
            for ss in DRAWN
        },
    )


def drawing(title: str, y_label: str) -> Callable[[Result, Path], None]:
    """Return a plot of savings against the ratio of the windows."""

    def plot(result: Result, path: Path) -> None:
        rho, lines = result.figures["rho"], result.figures["saved_percent"]
        curves = {name: curve(rho, [line]) for name, line in lines.items()}
        draw_curves(path, curves, title=title, x_label="W1 / W2", y_label=y_label)

    return plot
