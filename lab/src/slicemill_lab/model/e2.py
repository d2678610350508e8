"""model-E2: greatest slide at which the incremental graph pays off (conceptual model CM-E2, C18).

A sum of squares slides by d elements over a window of n. Calls are counted in both graphs.
"""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path

from slicemill.extensions.models.cost import estimate
from slicemill.extensions.models.model import expression
from slicemill_lab.claims import Claim, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.model.graphs import WAYS, elements, slides
from slicemill_lab.plotting import curve, draw_curves

SIZES: dict[Scale, int] = {"small": 200, "full": 10_000}
SHARES = tuple(percent / 100 for percent in (1, 10, 20, 30, 35, 40, 45, 50, 55, 60, 70, 80, 90, 100))


def run(seed: int, scale: Scale) -> Result:
    """Calls per slide by d/n."""
    size = SIZES[scale]
    model = expression("sum(x^2)")
    graphs = {way: make(model) for way, make in WAYS.items()}
    transforms: dict[str, list[float]] = {way: [] for way in WAYS}
    calls: dict[str, list[float]] = {way: [] for way in WAYS}
    for share in SHARES:
        step = int(size * share)
        given = elements(model, size + 2 * step, seed)
        steps = [given[size : size + step], given[size + step :]]
        for way, graph in graphs.items():
            found = slides(graph, given[:size], steps)
            transforms[way].append(found.transforms)
            calls[way].append(found.calls)
    estimated = [estimate(model, size, int(size * share)).incremental.calls for share in SHARES]
    figures = {"n": size, "d_over_n": SHARES, "transforms": transforms, "calls": calls}
    return Result(_claims(transforms, calls, [float(e) for e in estimated]), figures)


def plot(result: Result, path: Path) -> None:
    """Calls per slide against d/n."""
    draw_curves(
        path,
        {way: curve(result.figures["d_over_n"], [line]) for way, line in result.figures["calls"].items()},
        title="Incremental pays while less than about 0.4 of the window is replaced",
        x_label="d / n",
        y_label="calls of functions and operators per slide",
    )


EXPERIMENT = Experiment(id="model-E2", title="Break-even of incremental and blocking", run=run, plot=plot)


def crossing(first: list[float], second: list[float]) -> float:
    """Return the share at which the first line rises above the second, by linear interpolation."""
    gaps = [a - b for a, b in zip(first, second, strict=True)]
    for place, (before, after) in enumerate(pairwise(gaps)):
        if before < 0 <= after:
            low, high = SHARES[place], SHARES[place + 1]
            return low + (high - low) * -before / (after - before)
    return 1.0


def _claims(
    transforms: dict[str, list[float]], calls: dict[str, list[float]], estimated: list[float]
) -> tuple[Claim, ...]:
    off = max(abs(a / b - 1) for a, b in zip(calls["incremental"], estimated, strict=True))
    return (
        near(
            "calls of T are equal at d/n",
            crossing(transforms["incremental"], transforms["blocking"]),
            0.5,
            note="Proposed: the curves cross near d = n/2. That holds for calls of T.",
        ),
        near(
            "all calls are equal at d/n",
            crossing(calls["incremental"], calls["blocking"]),
            0.4,
            note="Incremental has 5d calls (2d of T, 2d of ⊕, d inverses), blocking 2n - 1: equal near 0.4.",
        ),
        near("counted calls over the estimate of C18, furthest from it", 1 + off, 1),
    )
