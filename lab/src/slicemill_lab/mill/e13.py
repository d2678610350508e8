"""mill-E13: speed of a sliding sum, with panes and without (E13, M34, M35, X15).

The query of mill-E12. With panes, a tuple is only added to its pane, and the window is updated once per pane.
With delta maintenance alone, each tuple enters the window, and another tuple leaves it.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from slicemill_lab.claims import Claim, ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.e12 import DELTA, PANES, WAYS
from slicemill_lab.mill.windows import Cost, cost, draw_costs, over_rows

# Costs depend on the slide only, which must divide the window.
WINDOW: Mapping[Scale, int] = {"small": 4_000, "full": 40_000}
SLIDES: Mapping[Scale, tuple[int, ...]] = {
    "small": (1, 10, 100, 1_000, 2_000),
    "full": (1, 10, 100, 1_000, 10_000, 20_000),
}


def run(seed: int, scale: Scale) -> Result:
    """Measure the cost of a tuple by method and slide."""
    slides = SLIDES[scale]
    costs = {way: [_cost(way, slide, scale, seed) for slide in slides] for way in WAYS}
    calls = {way: [one.calls for one in line] for way, line in costs.items()}
    figures = {
        "slides": list(slides),
        "calls_per_tuple": calls,
        "us_per_tuple": {way: [one.us for one in line] for way, line in costs.items()},
    }
    return Result(_claims(slides, calls), figures)


def plot(result: Result, path: Path) -> None:
    """Plot calls per tuple against the slide."""
    draw_costs(
        path,
        result.figures["slides"],
        result.figures["calls_per_tuple"],
        "The longer the slide, the fewer panes there are to keep",
        "SLIDE [rows]",
    )


EXPERIMENT = Experiment(
    id="mill-E13",
    title="Speed of a sliding sum against its slide, with panes and without",
    run=run,
    plot=plot,
)


def _cost(way: str, slide: int, scale: Scale, seed: int) -> Cost:
    # Measure whole slides, so that each mean includes its share of pane ends.
    measured = SLIDES[scale][-1]
    rows = [((number * 7919 + seed) % 1000,) for number in range(WINDOW[scale] + 2 * measured)]
    return cost(over_rows(WAYS[way], WINDOW[scale], slide), rows, measured)


def _claims(slides: tuple[int, ...], calls: Mapping[str, list[float]]) -> tuple[Claim, ...]:
    gain = {
        f"slide {slide}": without / with_panes
        for slide, with_panes, without in zip(slides, calls[PANES], calls[DELTA], strict=True)
    }
    of_one, *others = gain.values()
    return (
        at_least(
            "panes are faster from a slide of 10 on: calls without panes over calls with them, least",
            min(others),
            1,
            note="Printed: faster. A pane of one tuple saves nothing and is one more step: "
            f"{of_one:.2f} at slide 1.",
        ),
        ascending("the gain grows with the slide", gain),
    )
