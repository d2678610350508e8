"""shed-E8: memory of runs instead of tuples (temporal-load-shedding TLS-E8, L24).

If only one list of attributes is coalesced, runs can be stored as such. A window of 500 tuples, of which nine
of ten continue the previous run, has about 51 runs. So nothing is dropped until memory is a tenth of the
window.
"""

from __future__ import annotations

from pathlib import Path

from slicemill.catalog.queries import Budget, Slot
from slicemill.shedding.memory import NewestTuple, Tuple, memory_of
from slicemill_lab.claims import at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.shed.runs import ARRIVALS, EVERY, SEEDS, WINDOW, accuracy_of, intervals, mean, stream

RATIOS = (0.02, 0.05, 0.1, 0.2, 0.5)
P = 0.9
SPAN = round(WINDOW * 5.5)
"""The mean duration of 500 tuples, as runs do not store the start times of their tuples."""


def run(seed: int, scale: Scale) -> Result:
    """Measure accuracy and drops by the number of slots, for both kinds of slots."""
    found: dict[str, list[float]] = {slot: [] for slot in Slot}
    dropped: dict[str, list[int]] = {slot: [] for slot in Slot}
    for slot in Slot:
        for ratio in RATIOS:
            rows = [_measured(slot, ratio, scale, seed + number) for number in range(SEEDS[scale])]
            found[slot].append(mean([accuracy for accuracy, _ in rows]))
            dropped[slot].append(sum(drops for _, drops in rows))
    runs, tuples = found[Slot.RUNS], found[Slot.TUPLES]
    claims = (
        at_most(
            "with slots for a fifth of the tuples, tuples dropped from run slots", dropped[Slot.RUNS][3], 0
        ),
        at_least("and the accuracy", runs[3], 1),
        at_least("the same memory for tuples: tuples dropped", dropped[Slot.TUPLES][3], 1),
        at_least(
            "run slots are better at every ratio: least lead",
            min(a - b for a, b in zip(runs, tuples, strict=True)),
            0,
        ),
    )
    return Result(claims, {"p": P, "ratios": list(RATIOS), "accuracy": found, "dropped": dropped})


def plot(result: Result, path: Path) -> None:
    """Accuracy against the slots."""
    draw_curves(
        path,
        {f"slots for {slot}": curve(RATIOS, [line]) for slot, line in result.figures["accuracy"].items()},
        title="A run takes one slot, however long it is (p 0.9)",
        x_label="slots / tuples in the window",
        y_label="accuracy",
        log_x=True,
    )


EXPERIMENT = Experiment(
    id="shed-E8", title="Memory that counts runs against memory that counts tuples", run=run, plot=plot
)


def _measured(slot: Slot, ratio: float, scale: Scale, seed: int) -> tuple[float, int]:
    tuples = stream(P, ARRIVALS[scale], seed)
    memory = memory_of(Budget(round(ratio * WINDOW), slot))
    found: list[float] = []
    dropped = 0
    for place, tuple_ in enumerate(tuples[:-1]):
        begin = tuple_.end - SPAN
        memory.expire(0, begin=begin)
        follower = NewestTuple(tuples[place + 1].values, tuples[place + 1].begin)
        victim = memory.arrive(0, Tuple(*tuple_.plain()), follower)
        dropped += victim.tuple.count if victim is not None else 0
        if place + 1 >= 2 * WINDOW and (place + 1) % EVERY == 0:
            exact = intervals([one for one in tuples[: place + 1] if one.begin >= begin])
            found.append(accuracy_of(exact, intervals(memory.kept(0))))
    return mean(found), dropped
