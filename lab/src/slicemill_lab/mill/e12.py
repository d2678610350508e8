"""mill-E12: values kept by a sliding sum, with panes and without (E12, M34, M35, X7, X15).

`SELECT sum(price) OVER (ROWS 39999 PRECEDING SLIDE N) FROM Bid`. With panes of gcd(window, slide), the state
has one sum per pane
of the window, and one pane in progress. With delta maintenance alone, the state has every tuple.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from math import gcd
from pathlib import Path

from slicemill.aggregates.registry import BUILTINS
from slicemill_lab.claims import Claim, at_most, within
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.windows import most_values
from slicemill_lab.plotting import curve, draw_curves

WINDOW = 40_000
SLIDES: Mapping[Scale, tuple[int, ...]] = {
    "small": (1_000, 10_000, 20_000),
    "full": (1, 10, 100, 500, 1_000, 2_000, 4_000, 5_000, 10_000, 20_000),
}
UNEVEN_SLIDE = 15_000
PANES, DELTA = "panes and delta", "delta only"
SUM = BUILTINS["sum"]
WAYS = {PANES: SUM, DELTA: replace(SUM, algebraic=False)}


def run(seed: int, scale: Scale) -> Result:
    """Measure the greatest number of values in the state by method and slide."""
    slides = SLIDES[scale]
    values = {
        PANES: [_values(PANES, slide, seed) for slide in slides],
        # The slide does not affect the state here, so the shortest and longest are enough.
        DELTA: [_values(DELTA, slide, seed) for slide in (slides[0], slides[-1])],
    }
    uneven = _values(PANES, UNEVEN_SLIDE, seed)
    figures = {"slides": list(slides), "window": WINDOW, "values": values, "uneven": {UNEVEN_SLIDE: uneven}}
    kept = dict(zip(slides, values[PANES], strict=True))[10_000]
    return Result(_claims(slides, values, uneven), figures, {"a slide of 10 000: values kept": [kept]})


def plot(result: Result, path: Path) -> None:
    """Plot values against the slide."""
    slides, values = result.figures["slides"], result.figures["values"]
    draw_curves(
        path,
        {PANES: curve(slides, [values[PANES]]), DELTA: curve((slides[0], slides[-1]), [values[DELTA]])},
        title=f"Panes keep one value each: a window of {WINDOW} rows",
        x_label="SLIDE [rows]",
        y_label="values kept",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="mill-E12",
    title="Memory of a sliding sum against its slide, with panes and without",
    run=run,
    plot=plot,
)


def _values(way: str, slide: int, seed: int) -> int:
    rows = [((number * 7919 + seed) % 1000,) for number in range(WINDOW * 5 // 4)]
    return most_values(WAYS[way], WINDOW, slide, rows)


def _claims(slides: tuple[int, ...], values: Mapping[str, list[int]], uneven: int) -> tuple[Claim, ...]:
    by_slide = dict(zip(slides, values[PANES], strict=True))
    product = [(kept - 1) * slide for slide, kept in by_slide.items()]
    shortest, longest = values[DELTA]
    return (
        within(
            "with panes, memory falls with the slide: (values - 1) · slide over the window, least",
            min(product) / WINDOW,
            1,
            1,
            note="Printed: it falls linearly. It is window / slide + 1, a straight line on logarithmic axes.",
        ),
        at_most("the same, greatest", max(product) / WINDOW, 1),
        within(f"{WINDOW} rows with a slide of 10000 keep 5 values", by_slide[10_000], 5, 5),
        within(
            f"where the slide of {UNEVEN_SLIDE} does not divide the window, panes are of their gcd",
            uneven,
            WINDOW // gcd(WINDOW, UNEVEN_SLIDE) + 1,
            WINDOW // gcd(WINDOW, UNEVEN_SLIDE) + 1,
        ),
        within(
            "delta only: as many values as the window is long, at the shortest slide",
            shortest,
            WINDOW,
            WINDOW,
        ),
        within("delta only: the same at the longest slide", longest, WINDOW, WINDOW),
    )
