"""shed-E9: cost of a shedding decision (temporal-load-shedding TLS-E9, L19, L22).

Function calls and CPU time per tuple when memory is full: by the definition, which scans every tuple's run,
with a heap of runs, and with that heap compiled, as on Spark. All choose the same tuples.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from itertools import islice, pairwise
from pathlib import Path

import numpy as np

from slicemill.operators.temporal.shedding import SheddingRule, empty, new_partitions, take
from slicemill.shedding.accuracy import LIMIT, SEED
from slicemill.shedding.memory import ChainMemory, FastMemory, NewestTuple, ScanMemory, Tuple
from slicemill.shedding.methods import method_of
from slicemill_lab.calls import calls_made
from slicemill_lab.claims import ascending, at_least, at_most, near, timed
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.shed.runs import stream

P = 0.7
SCANNED = {"small": (250, 1_000), "full": (250, 1_000, 5_000)}
HEAPED = {"small": (250, 1_000, 10_000), "full": (250, 1_000, 5_000, 50_000)}
DECISIONS = {"small": (20, 3_000), "full": (50, 20_000)}
ROUNDS = 3


def run(seed: int, scale: Scale) -> Result:
    """Measure calls and microseconds per tuple."""
    slow, quick = DECISIONS[scale]
    method = method_of("lookahead")
    scans = [_cost(ScanMemory(size, method), slow, seed) for size in SCANNED[scale]]
    heaps = [_cost(FastMemory(size, method), quick, seed) for size in HEAPED[scale]]
    (scan_calls, scan), (heap_calls, heap) = (zip(*costs, strict=True) for costs in (scans, heaps))
    compiled = [_compiled_microseconds(size, quick, seed) for size in HEAPED[scale]]
    most = f"{HEAPED[scale][-1]:,}"
    claims = (
        ascending(
            "1 000 tuples kept: calls a tuple",
            {"with the heap": heap_calls[1], "by the definition": scan_calls[1]},
        ),
        near(
            f"heap: calls a tuple with {most} tuples kept / with 250",
            heap_calls[-1] / heap_calls[0],
            1,
            note="what grows, with the logarithm, is done within a call to the heap",
        ),
        timed(at_least("1 000 tuples kept: time by the definition / with the heap", scan[1] / heap[1], 1)),
        timed(
            at_most(
                "with the tuples kept, time grows less with the heap than by the definition: over its growth",
                heap[1] / heap[0] / (scan[1] / scan[0]),
                1,
            )
        ),
        timed(at_least("1 000 tuples kept: time with the heap / with it compiled", heap[1] / compiled[1], 1)),
    )
    figures = {
        "p": P,
        "kept": [SCANNED[scale], HEAPED[scale]],
        "calls": {"scan": scan_calls, "heap": heap_calls},
        "microseconds": {"scan": scan, "heap": heap, "compiled": compiled},
    }
    return Result(claims, figures)


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


def _cost(memory: ChainMemory, decisions: int, seed: int) -> tuple[float, float]:
    """Return calls and microseconds per arrival, in a window from which nothing expires."""
    tuples = stream(P, memory.capacity + (ROUNDS + 1) * decisions + 1, seed)
    places = iter(range(len(tuples) - 1))

    def arrive(count: int) -> None:
        for place in islice(places, count):
            follower = NewestTuple(tuples[place + 1].values, tuples[place + 1].begin)
            memory.arrive(0, Tuple(*tuples[place].plain()), follower)

    arrive(memory.capacity)
    best = min(_seconds(lambda: arrive(decisions)) for _ in range(ROUNDS))
    return calls_made(lambda: arrive(decisions)) / decisions, best / decisions * 1e6


def _compiled_microseconds(capacity: int, decisions: int, seed: int) -> float:
    tuples = stream(P, capacity + ROUNDS * decisions + 1, seed)
    ts, codes = (np.array([getattr(one, name) for one in tuples]) for name in ("begin", "run"))
    rule = SheddingRule(
        drawn=False,
        inner=False,
        lost=1.0,
        lookahead=True,
        threshold=-1,
        seed=1,
        shadow_seed=SEED,
        shadow_limit=LIMIT,
    )
    memory, parts = empty(capacity, LIMIT), new_partitions(1)

    def run(first: int, last: int) -> None:
        zeros = np.zeros(last - first, np.int64)
        take(memory, parts, rule, capacity, -1, zeros, ts[first:last], codes[first:last], zeros + 1)

    run(0, capacity + 1)
    ends = range(capacity + 1, len(tuples) + 1, decisions)
    best = min(_seconds(partial(run, first, last)) for first, last in pairwise(ends))
    return best / decisions * 1e6


def _seconds(work: Callable[[], None]) -> float:
    began = time.process_time()
    work()
    return time.process_time() - began
