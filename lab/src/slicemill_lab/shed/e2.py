"""shed-E2: shed-E1 with runs like those of real sensors (temporal-load-shedding TLS-E2, Fig. 6).

The readings of the Intel lab in Berkeley are not part of this repository. Synthetic streams with their
published coalescing probabilities are used instead: humidity 29 %, voltage 64 %, light 86 %.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import ascending, at_least
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.shed.runs import RATIOS, SENSORS, table

WAYS = ("CALS", "CALS as printed", "RAND")
_NOTE = "synthetic streams with the published coalescing probabilities, not the sensors' data"


def run(seed: int, scale: Scale) -> Result:
    """Accuracy by sensor and ratio."""
    found = {
        name: dict(zip(SENSORS, table(name, list(SENSORS.values()), scale, seed).values(), strict=True))
        for name in WAYS
    }
    gain = {
        sensor: [a / b for a, b in zip(found["CALS"][sensor], found["RAND"][sensor], strict=True)]
        for sensor in SENSORS
    }
    least = {
        name: min(
            a - b
            for sensor in SENSORS
            for a, b in zip(found[name][sensor], found["RAND"][sensor], strict=True)
        )
        for name in WAYS[:2]
    }
    claims = (
        at_least("CALS is nowhere below RAND: least difference in 15 cells", least["CALS"], 0, _NOTE),
        at_least("nor is CALS as printed: least difference", least["CALS as printed"], 0),
        ascending(
            "at half the memory the gain grows with p", {sensor: gain[sensor][0] for sensor in SENSORS}
        ),
        ascending(
            "light: the gain grows as memory shrinks",
            {f"ratio {r:g}": gain["light"][place] for place, r in reversed(list(enumerate(RATIOS)))},
        ),
    )
    return Result(
        claims, {"data": _NOTE, "p": SENSORS, "ratios": list(RATIOS), "accuracy": found, "gain": gain}
    )


def plot(result: Result, path: Path) -> None:
    """Accuracy against the ratio of memory, by sensor."""
    draw_curves(
        path,
        {
            f"{name}, {sensor}": curve(RATIOS, [line])
            for name in ("CALS", "RAND")
            for sensor, line in result.figures["accuracy"][name].items()
        },
        title="Runs as long as those of three sensors (synthetic)",
        x_label="memory / window",
        y_label="accuracy",
    )


EXPERIMENT = Experiment(
    id="shed-E2", title="Coalescence-aware against random dropping, runs of real sensors", run=run, plot=plot
)
