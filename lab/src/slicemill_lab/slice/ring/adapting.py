"""Ring that adapts its length to the rate, at intervals, by the cost model (S36, S40, S41).

Tuples stay on their nodes and several are in flight (PSP-D). With one tuple in flight, 450 tuples per second
cannot pass 20 nodes, however cheap they are. The model's best length assumes a ring that keeps up, so a ring
that has fallen behind grows by half.
"""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil
from pathlib import Path
from statistics import fmean

from slicemill_lab.claims import Claim, at_least, at_most
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.ring.runs import RATE, WINDOW_S, RingSetting, at_rate, psp_d, ring_arrivals
from slicemill_oracle.ring.ring import responses

INTERVALS: Mapping[Scale, int] = {"small": 6, "full": 30}
"""Number of intervals, of one window each. The rate rises after a third of them."""
MOST_NODES = 20
IN_FLIGHT = 8


def response_by_interval(
    setting: RingSetting, risen: float, adapts: bool, scale: Scale, seed: int
) -> list[float]:
    """Return the mean response in ms per interval, as the rate rises from 50 to `risen` tuples per second."""
    nodes = setting.model(scale).best_length()
    ring = psp_d(setting, nodes, scale, IN_FLIGHT)
    span = WINDOW_S[scale]
    means = []
    for interval in range(INTERVALS[scale]):
        now = at_rate(setting, risen if interval >= INTERVALS[scale] // 3 else RATE)
        arrived = list(ring_arrivals(now, span, seed, interval * span))
        means.append(1000 * fmean(responses(ring.run(arrived)) or [0.0]))
        if adapts:
            measured = len(arrived) / span / setting.streams
            wanted = at_rate(setting, measured).model(scale).best_length()
            if ring.machines.now > (interval + 1.1) * span:
                wanted = max(wanted, ceil(1.5 * nodes))
            wanted = min(MOST_NODES, wanted)
            if wanted != nodes:
                ring.relocate(wanted)
                nodes = wanted
    return means


def follow(setting: RingSetting, rates: tuple[int, ...], seed: int, scale: Scale) -> Result:
    """Measure the response with and without adaptation for each target rate."""
    figures = {
        f"to {risen}/s": {
            name: response_by_interval(setting, risen, adapts, scale, seed)
            for name, adapts in (("with adaptation", True), ("without", False))
        }
        for risen in rates
    }
    claims = tuple(claim for name, lines in figures.items() for claim in _claims(name, lines))
    return Result(claims, {"response_ms": figures})


def draw(result: Result, path: Path) -> None:
    """Response over time."""
    draw_curves(
        path,
        {
            f"{rate}, {name}": curve(list(range(1, len(line) + 1)), [line])
            for rate, lines in result.figures["response_ms"].items()
            for name, line in lines.items()
        },
        title="A ring that grows with its rate keeps its response",
        x_label="interval",
        y_label="mean response [ms]",
    )


def _claims(name: str, lines: Mapping[str, list[float]]) -> tuple[Claim, ...]:
    third = len(lines["without"]) // 3
    before = {way: fmean(line[1:third]) for way, line in lines.items()}
    last = {way: fmean(line[-third:]) for way, line in lines.items()}
    return (
        at_most(
            f"{name}: response of the last third / before, with adaptation",
            last["with adaptation"] / before["with adaptation"],
            2,
            note="Printed: stable. At twice the rate a tuple has four times the pairs to compare, or more.",
        ),
        at_least(
            f"{name}: last third, without adaptation / with it", last["without"] / last["with adaptation"], 1
        ),
    )
