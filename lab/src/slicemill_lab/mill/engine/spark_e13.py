"""mill-spark-E13: speed of a sliding sum on the engine, with panes and without (E13, M34, M35, X15).

The sums of mill-spark-E12, in CPU time of the worker. Claims about it are `timed`.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import ascending, equal, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.e12 import DELTA, PANES
from slicemill_lab.mill.engine.spark_e12 import CALLS, SLIDES, sliding_sum
from slicemill_lab.plotting import curve, draw_curves


def run(seed: int, scale: Scale) -> Result:
    """Measure CPU time of a tuple by method and slide."""
    slides = SLIDES[scale]
    found = {way: [sliding_sum(way, slide, seed, scale) for slide in slides] for way in CALLS}
    us = {way: [one.us for one in line] for way, line in found.items()}
    shortest, longest = (us[DELTA][place] / us[PANES][place] for place in (0, -1))
    lengths = [len(one.answers) for line in found.values() for one in line]
    claims = (
        equal("both ways give as many results: most less least of a slide", _apart(lengths, len(slides)), 0),
        timed(
            ascending(
                "the gain grows with the slide: time without panes over time with them",
                {f"slide {slides[0]}": shortest, f"slide {slides[-1]}": longest},
            )
        ),
        timed(
            ascending(
                f"panes are faster at a slide of {slides[-1]} [µs]",
                {PANES: us[PANES][-1], DELTA: us[DELTA][-1]},
            )
        ),
    )
    return Result(claims, {"slides": list(slides), "us_per_tuple": us})


def plot(result: Result, path: Path) -> None:
    """Plot CPU time against the slide."""
    draw_curves(
        path,
        {
            way: curve(result.figures["slides"], [line])
            for way, line in result.figures["us_per_tuple"].items()
        },
        title="A sliding sum on the engine",
        x_label="SLIDE [rows]",
        y_label="processor time of a tuple [µs]",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="mill-spark-E13",
    title="Speed of a sliding sum on the engine against its slide, with panes and without",
    run=run,
    plot=plot,
    substrate="engine",
)


def _apart(lengths: list[int], slides: int) -> int:
    return max(abs(a - b) for a, b in zip(lengths[:slides], lengths[slides:], strict=True))
