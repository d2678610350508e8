"""shed-E9: what a decision costs (temporal-load-shedding TLS-E9, L19, L22).

Processor time per tuple when memory is full: by the definition, which looks at every tuple's run, with a heap
of runs, and with that heap compiled, as it runs on Spark. All choose the same tuples.
"""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np

from slicemill.kernels.shedding.arrivals import take
from slicemill.kernels.shedding.layout import Rule, empty, new_partitions
from slicemill.lab.claims import at_least, at_most
from slicemill.lab.experiment import Experiment, Result, Scale
from slicemill.lab.plotting import curve, draw_curves
from slicemill.lab.shed_runs import stream
from slicemill.shedding.chains import Follower, Memory, Tuple
from slicemill.shedding.fast import FastMemory
from slicemill.shedding.methods import method_of
from slicemill.shedding.scan import ScanMemory
from slicemill.shedding.shadow import LIMIT, SEED

P = 0.7
SCANNED = {"small": (250, 1_000), "full": (250, 1_000, 5_000)}
HEAPED = {"small": (250, 1_000, 10_000), "full": (250, 1_000, 5_000, 50_000)}
DECISIONS = {"small": (20, 3_000), "full": (50, 20_000)}


def run(seed: int, scale: Scale) -> Result:
    """Microseconds a tuple."""
    slow, quick = DECISIONS[scale]
    scan = [_microseconds(ScanMemory(size, method_of("lookahead")), slow, seed) for size in SCANNED[scale]]
    heap = [_microseconds(FastMemory(size, method_of("lookahead")), quick, seed) for size in HEAPED[scale]]
    compiled = [_compiled_microseconds(size, quick, seed) for size in HEAPED[scale]]
    claims = (
        at_least("1 000 tuples kept: time by the definition / with the heap", scan[1] / heap[1], 10),
        at_most(
            f"heap: time a tuple with {HEAPED[scale][-1]:,} tuples kept / with 250",
            heap[-1] / heap[0],
            5,
            note="logarithmic; the rest is memory further away from the processor",
        ),
        at_least("1 000 tuples kept: time with the heap / with it compiled", heap[1] / compiled[1], 5),
    )
    times = {"scan": scan, "heap": heap, "compiled": compiled}
    return Result(claims, {"p": P, "kept": [SCANNED[scale], HEAPED[scale]], "microseconds": times})


def plot(result: Result, path: Path) -> None:
    """Time a tuple against the tuples kept."""
    scanned, heaped = result.figures["kept"]
    times = result.figures["microseconds"]
    draw_curves(
        path,
        {
            "by the definition": curve(scanned, [times["scan"]]),
            "heap of runs": curve(heaped, [times["heap"]]),
            "heap, compiled": curve(heaped, [times["compiled"]]),
        },
        title="A decision with a heap costs the same whatever is kept, nearly",
        x_label="tuples kept",
        y_label="microseconds a tuple",
        log_x=True,
        log_y=True,
    )


EXPERIMENT = Experiment(
    id="shed-E9", title="Time per decision against the size of memory", run=run, plot=plot
)


def _microseconds(memory: Memory, decisions: int, seed: int) -> float:
    """Over so many arrivals after memory is full, in a window that never passes anything."""
    tuples = stream(P, memory.capacity + decisions + 1, seed)
    began = 0.0
    for place, tuple_ in enumerate(tuples[:-1]):
        if place == memory.capacity:
            began = time.process_time()
        follower = Follower(tuples[place + 1].values, tuples[place + 1].begin)
        memory.arrive(0, Tuple(*tuple_.plain()), follower)
    return (time.process_time() - began) / decisions * 1e6


def _compiled_microseconds(capacity: int, decisions: int, seed: int) -> float:
    tuples = stream(P, capacity + decisions + 1, seed)
    ts, codes = (np.array([getattr(one, name) for one in tuples]) for name in ("begin", "run"))
    rule = Rule(1.0, True, -1, 1, SEED, LIMIT)
    memory, parts = empty(capacity, LIMIT), new_partitions(1)

    def run(first: int, last: int) -> None:
        zeros = np.zeros(last - first, np.int64)
        take(memory, parts, rule, capacity, -1, zeros, ts[first:last], codes[first:last], zeros + 1)

    run(0, capacity + 1)
    began = time.process_time()
    run(capacity + 1, len(tuples))
    return (time.process_time() - began) / decisions * 1e6
