"""model-E1: work of incremental and blocking graphs by window size (conceptual model CM-E1, C13, C15).

Four models slide by one element over windows of growing size, as blocking and as incremental graphs. Calls of
functions and operators are counted. The publication has no experiments; this one is proposed to test its
claim.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.extensions.models.model import expression
from slicemill_lab.claims import Claim, at_most, equal, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.model.graphs import WAYS, elements, slides
from slicemill_lab.plotting import curve, draw_curves

MODELS = {
    "sum of squares": "sum(x^2)",
    "L2": "norm(x, 2)",
    "variance": "variance(x)",
    "regression": "slope(x, y)",
}
SIZES: dict[Scale, tuple[int, ...]] = {"small": (10, 100, 1_000), "full": (100, 1_000, 10_000, 100_000)}
SLIDES = 3


def run(seed: int, scale: Scale) -> Result:
    """Calls per slide by model, way and size of the window."""
    sizes = SIZES[scale]
    calls: dict[str, list[float]] = {}
    us: dict[str, list[float]] = {}
    different = 0
    for name, text in MODELS.items():
        model = expression(text)
        graphs = {way: make(model) for way, make in WAYS.items()}
        for size in sizes:
            given = elements(model, size + SLIDES, seed)
            steps = [[element] for element in given[size:]]
            found = {way: slides(graph, given[:size], steps) for way, graph in graphs.items()}
            different += found["blocking"].values != found["incremental"].values
            for way, counted in found.items():
                calls.setdefault(f"{name}, {way}", []).append(counted.calls)
                us.setdefault(f"{name}, {way}", []).append(counted.us)
    figures = {"n": sizes, "calls_per_slide": calls, "us_per_slide": us}
    return Result(_claims(calls, sizes, different), figures)


def plot(result: Result, path: Path) -> None:
    """Calls per slide against the size of the window."""
    lines = result.figures["calls_per_slide"]
    draw_curves(
        path,
        {name: curve(result.figures["n"], [line]) for name, line in lines.items()},
        title="A blocking graph works in proportion to the window, an incremental one does not",
        x_label="elements in the window",
        y_label="calls of functions and operators per slide",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="model-E1", title="Work per slide against the size of the window", run=run, plot=plot
)


def _claims(calls: dict[str, list[float]], sizes: tuple[int, ...], different: int) -> tuple[Claim, ...]:
    claims = [at_most("windows whose values differ between the graphs", different, 0)]
    for name in MODELS:
        flat, steep = calls[f"{name}, incremental"], calls[f"{name}, blocking"]
        claims += [
            equal(
                f"{name}: incremental calls per slide, largest window over smallest", flat[-1] / flat[0], 1
            ),
            near(
                f"{name}: blocking calls per slide, largest window over smallest, by the sizes' ratio",
                steep[-1] / steep[0] / (sizes[-1] / sizes[0]),
                1,
            ),
        ]
    return tuple(claims)
