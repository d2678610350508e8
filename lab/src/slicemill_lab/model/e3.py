"""model-E3: cost of a sliding maximum, which depends on the data (conceptual model CM-E3, C17).

A single stored maximum requires a scan of the window when it leaves. A deque of candidates never does.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np

from slicemill_lab.claims import Claim, at_most, equal, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.model.reference.memory import ConditionalMaximum, MonotoneDeque
from slicemill_lab.plotting import curve, draw_curves

WINDOW = 100
LENGTHS: dict[Scale, int] = {"small": 40_000, "full": 200_000}
PIECES = 10


def streams(length: int, seed: int) -> dict[str, list[float]]:
    random = np.random.default_rng(seed)
    return {
        "ascending": list(range(length)),
        "descending": list(range(length, 0, -1)),
        "random": random.random(length).tolist(),
        "constant": [1.0] * length,
    }


def run(seed: int, scale: Scale) -> Result:
    """Count rescans, and measure the length of the deque over time."""
    length = LENGTHS[scale]
    rescans, lengths, wrong = {}, {}, 0
    for name, values in streams(length, seed).items():
        conditional, deque = ConditionalMaximum(), MonotoneDeque()
        sizes = []
        for place, value in enumerate(values):
            leaving = place >= WINDOW
            if leaving:
                deque.expire()
            deque.push(value)
            wrong += conditional.slide(value, leaving) != deque.maximum
            sizes.append(len(deque))
        rescans[name] = conditional.rescans / (length - WINDOW)
        kept = np.array(sizes[WINDOW:])
        lengths[name] = [float(piece.mean()) for piece in np.array_split(kept, PIECES)]
    figures = {"window": WINDOW, "slides": length - WINDOW, "rescans": rescans, "deque_length": lengths}
    return Result(_claims(rescans, lengths, wrong), figures)


def plot(result: Result, path: Path) -> None:
    """The deque's length over time."""
    lines = result.figures["deque_length"]
    draw_curves(
        path,
        {
            f"{name}, {result.figures['rescans'][name]:.1%} rescans": curve(range(1, PIECES + 1), [line])
            for name, line in lines.items()
        },
        title=f"A deque for the maximum of {WINDOW} elements does not grow with time",
        x_label="tenth of the stream",
        y_label="mean elements in the deque",
        log_y=True,
    )


EXPERIMENT = Experiment(id="model-E3", title="A sliding maximum depends on the data", run=run, plot=plot)


def _claims(rescans: dict[str, float], lengths: dict[str, list[float]], wrong: int) -> tuple[Claim, ...]:
    growth = max(line[-1] / line[0] for line in lengths.values())
    return (
        at_most("slides at which rule and deque disagree", wrong, 0),
        at_most("ascending: share of slides with a rescan", rescans["ascending"], 0),
        equal("strictly descending: share of slides with a rescan", rescans["descending"], 1),
        near(
            "random: share of slides with a rescan, times n",
            rescans["random"] * WINDOW,
            1,
            note="Proposed: about 1/n. The maximum leaves when it is the oldest, and the new one is less.",
        ),
        at_most("constant: share of slides with a rescan", rescans["constant"], 0),
        near("length of the deque, last tenth of the stream over the first, greatest", growth, 1),
    )
