"""slice-E19: storage of aligned and coordinated routing and the ring, by formula and run (S42, S43)."""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import within
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.ring.runs import RATE, WINDOW_S, RingSetting, atr, ctr, measured_ring, psp

PRINTED = {(3, 1): 4 / 3, (3, 2): 2 / 3, (3, 5): 4 / 15, (5, 1): 1.6}
"""Waste by the number of streams and the windows in a segment."""
NODES = 6
COPIES = 2


def waste(streams: int, segment: float) -> float:
    """Return the additional storage of aligned routing relative to one copy of its segments."""
    return 2 / segment * (streams - 1) / streams


def run(seed: int, scale: Scale) -> Result:
    """Evaluate the formula at the printed points, and run the three systems with the same tuples."""
    setting = RingSetting()
    window = WINDOW_S[scale]
    live = 3 * RATE * window
    runs = {
        f"ATR, T {windows} W": measured_ring(
            atr(setting, NODES, scale, windows), setting, scale, seed, 3 * NODES * windows * window
        ).state
        / (NODES * 3 * RATE * windows * window)
        for windows in (1, 2)
    }
    runs["CTR, 2 copies"] = (
        measured_ring(ctr(setting, NODES, scale, COPIES, seed), setting, scale, seed).state / live
    )
    runs["PSP"] = measured_ring(psp(setting, NODES, scale), setting, scale, seed).state / live
    expected = {
        "ATR, T 1 W": 1 + waste(3, 1),
        "ATR, T 2 W": 1 + waste(3, 2),
        "CTR, 2 copies": COPIES,
        "PSP": 1.0,
    }
    claims = (
        *(
            within(
                f"waste, M {streams}, T {segment} W",
                waste(streams, segment),
                printed - 0.005,
                printed + 0.005,
            )
            for (streams, segment), printed in PRINTED.items()
        ),
        *(
            within(f"{name}: most stored / one copy", runs[name], 0.75 * ratio, 1.35 * ratio)
            for name, ratio in expected.items()
        ),
    )
    return Result(claims, {"stored / one copy": runs, "by formula": expected})


def plot(_result: Result, path: Path) -> None:
    """Plot the waste of aligned routing over the length of its segments."""
    lengths = [0.5 * step for step in range(1, 21)]
    draw_curves(
        path,
        {f"{m} streams": curve(lengths, [[waste(m, one) for one in lengths]]) for m in (3, 5)},
        title="Aligned routing must have segments much longer than its windows",
        x_label="segment [windows]",
        y_label="stored beyond one copy",
    )


EXPERIMENT = Experiment(id="slice-E19", title="What ring and rivals store", run=run, plot=plot)
