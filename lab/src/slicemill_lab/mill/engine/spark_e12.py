"""mill-spark-E12: state of a sliding sum on the engine, with panes and without (E12, M34, M35, X15).

The sum of mill-E12 as a user-defined aggregate: ALGEBRAIC, so that the engine keeps panes, and with EXPIRE,
so that it keeps the window. Measured are bytes of state after the window is full.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path

from slicemill_lab.claims import Claim, ascending, equal, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.e12 import DELTA, PANES
from slicemill_lab.mill.engine.windows import EngineCost, cost
from slicemill_lab.plotting import curve, draw_curves

WINDOW: Mapping[Scale, int] = {"small": 4_000, "full": 40_000}
SLIDES: Mapping[Scale, tuple[int, ...]] = {
    "small": (10, 100, 1_000),
    "full": (1, 10, 100, 1_000, 10_000),
}
MEASURED: Mapping[Scale, int] = {"small": 2_000, "full": 20_000}
CALLS = {PANES: "panes(v)", DELTA: "delta(v)"}

ESL = """
CREATE ALGEBRAIC AGGREGATE panes(next bigint) : bigint {
  TABLE state(total bigint);
  INITIALIZE: { INSERT INTO state VALUES (next); }
  ITERATE: { UPDATE state SET total = total + next; }
  TERMINATE: { INSERT INTO RETURN SELECT total FROM state; } };

CREATE WINDOW AGGREGATE delta(next bigint) : bigint {
  TABLE state(total bigint); TABLE inwindow(w bigint);
  INITIALIZE: { INSERT INTO state VALUES (next); INSERT INTO RETURN VALUES (next); }
  ITERATE: { UPDATE state SET total = total + next; INSERT INTO RETURN SELECT total FROM state; }
  EXPIRE: { UPDATE state SET total = total - oldest(); } };
"""


@lru_cache(maxsize=100)
def sliding_sum(way: str, slide: int, seed: int, scale: Scale) -> EngineCost:
    """Compute the sum over the window with one of the methods."""
    window = WINDOW[scale]
    values = [(number * 7919 + seed) % 1000 for number in range(window * 5 // 4 + MEASURED[scale])]
    call = f"{CALLS[way]} OVER (ROWS {window - 1} PRECEDING SLIDE {slide})"
    return cost(ESL, call, values, MEASURED[scale])


def run(seed: int, scale: Scale) -> Result:
    """Measure bytes of state by method and slide."""
    slides = SLIDES[scale]
    found = {way: [sliding_sum(way, slide, seed, scale) for slide in slides] for way in CALLS}
    kept = {way: [one.state_bytes for one in line] for way, line in found.items()}
    wrong = sum(a.answers != b.answers for a, b in zip(found[PANES], found[DELTA], strict=True))
    figures = {"slides": list(slides), "window": WINDOW[scale], "state_bytes": kept}
    against = kept[PANES][-1] / kept[DELTA][-1] - 1
    return Result(
        _claims(slides, kept, wrong),
        figures,
        {"a slide of a quarter: panes against delta": [against]},
    )


def plot(result: Result, path: Path) -> None:
    """Plot bytes of state against the slide."""
    draw_curves(
        path,
        {way: curve(result.figures["slides"], [line]) for way, line in result.figures["state_bytes"].items()},
        title=f"On the engine panes keep one value each: a window of {result.figures['window']} rows",
        x_label="SLIDE [rows]",
        y_label="bytes of state",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="mill-spark-E12",
    title="State of a sliding sum on the engine against its slide, with panes and without",
    run=run,
    plot=plot,
    substrate="engine",
)


def _claims(slides: tuple[int, ...], kept: Mapping[str, list[int]], wrong: int) -> tuple[Claim, ...]:
    return (
        equal("slides for which both do not give the same sums", wrong, 0),
        ascending(
            "with panes, what is kept falls with the slide [bytes]",
            {f"slide {slides[-1]}": float(kept[PANES][-1]), f"slide {slides[0]}": float(kept[PANES][0])},
            note="in rooms that double: a few panes more or less may take the same",
        ),
        near(
            "delta only: what is kept does not depend on the slide: most over least",
            max(kept[DELTA]) / min(kept[DELTA]),
            1,
        ),
        *(
            ascending(
                f"slide {slide}: panes keep less than the window [bytes]",
                {PANES: float(few), DELTA: float(all_)},
            )
            for slide, few, all_ in zip(slides, kept[PANES], kept[DELTA], strict=True)
            if slide > 1
        ),
    )
