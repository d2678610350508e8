"""slice-E18: adaptation of a ring to a doubled or tripled rate, small join (state-slice E18, S41)."""

from __future__ import annotations

from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.slice.ring.adapting import draw, follow
from slicemill_lab.slice.ring.runs import RingSetting


def run(seed: int, scale: Scale) -> Result:
    """Raise the rate from 50 to 100 and to 150 tuples per second on each stream."""
    rates = (100, 150) if scale == "full" else (100,)
    return follow(RingSetting("small", 0.2), rates, seed, scale)


EXPERIMENT = Experiment(
    id="slice-E18", title="A ring follows a rate that doubles or triples", run=run, plot=draw
)
