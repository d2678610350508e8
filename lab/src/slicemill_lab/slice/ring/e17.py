"""slice-E17: adaptation of a ring to a doubled rate, middle join (state-slice E17, S41)."""

from __future__ import annotations

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.adapting import draw, follow
from slicemill_lab.slice.ring.runs import RingSetting


def run(seed: int, scale: Scale) -> Result:
    """Raise the rate from 50 to 100 tuples per second on each stream."""
    return follow(RingSetting("middle", 0.05), (100,), seed, scale)


EXPERIMENT = Experiment(id="slice-E17", title="A ring follows a rate that doubles", run=run, plot=draw)
