"""The scheduling loop in virtual time: admit, choose, run, on one processor (P10).

It never idles while a unit has input. Its only result is when each operator finished each tuple, from which
`measures` computes latency and memory. Policies that are numbers per unit run in compiled code, the others
in Python; both take the same steps, and a run is determined by its workload, cut and policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slicemill.scheduling.arrays import Floats, Ints
from slicemill_lab.charts.units import Cut
from slicemill_lab.policies.policy import TupleChooser
from slicemill_lab.simulator.compiled import compiled_form, sees_ahead
from slicemill_lab.simulator.compiled_loop import LoopPlan, Watch, run_compiled
from slicemill_lab.simulator.foresight import true_drops, true_times
from slicemill_lab.simulator.plain_loop import run_plain
from slicemill_lab.simulator.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedRun:
    """A simulated run: when each operator was done with each of its tuples, in the order of the workload."""

    work: Workload
    finished: Floats
    decisions: int


@dataclass(frozen=True, slots=True)
class Adapting:
    """How selectivities follow the data: weight of a window of that many tuples (P21).

    With `decays`, a unit for which a window of tuples waits goes back towards what was believed at first, by
    the same weight: one that passed nothing for long is looked at again (A14).
    """

    window: int = 100
    alpha: float = 0.175
    decays: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """Paths whose results others read: `readers[path]` are those, fed in place of arrivals.

    Readers `at_once` run with the shared path, as one unit; the others wait for their turn.
    """

    readers: dict[int, tuple[int, ...]]
    at_once: frozenset[int]


def simulate(
    work: Workload,
    units: Cut,
    policy: TupleChooser,
    *,
    overhead: float = 0.0,
    adapting: Adapting | None = None,
    shared: Shared | None = None,
) -> SimulatedRun:
    """Play the workload to its end; `overhead` is the time each decision of the scheduler takes.

    `adapting` is for whole queries as units, under priorities that are multiples of the rate. It and `shared`
    are for policies that have a compiled form.
    """
    heads = np.array([work.operator(span.path, span.start) for span in units.spans], dtype=np.int64)
    stops = np.array([work.operator(span.path, span.stop) for span in units.spans], dtype=np.int64)
    at_root = np.zeros(len(work.first_tuple) - 1, dtype=np.bool_)
    at_root[work.first_operator[1:] - 1] = True
    times, leaves = arrivals_of(work, shared)
    compiled = compiled_form(policy, len(heads))
    if compiled is None:
        if adapting or shared:
            raise ValueError("statistics that adapt and shared operators need a policy with a compiled form")
        return SimulatedRun(
            work, *run_plain(work, units, policy, overhead, heads, stops, at_root, times, leaves)
        )
    times_known, drops_known = _foreseen(work, units) if sees_ahead(compiled) else (np.zeros(1), np.zeros(1))
    first_fed, fed, at_once = _fed(work, units, shared)
    plan = LoopPlan(
        work.first_tuple, heads, stops, at_root, work.cost, work.outputs, work.arrival,
        times_known, drops_known, first_fed, fed, at_once,
    )  # fmt: skip
    finished = np.empty(work.steps)
    return SimulatedRun(
        work,
        finished,
        run_compiled(times, leaves, plan, compiled, _watch(work, units, adapting), overhead, finished),
    )


def _foreseen(work: Workload, units: Cut) -> tuple[Floats, Floats]:
    times, drops = np.ones(work.steps), np.zeros(work.steps)
    for span in units.spans:
        tuples = work.tuples(work.operator(span.path, span.start))
        times[tuples], drops[tuples] = true_times(work, span), true_drops(work, span, units.objective)
    return times, drops


def _fed(work: Workload, units: Cut, shared: Shared | None) -> tuple[Ints, Ints, np.typing.NDArray[np.bool_]]:
    readers = shared.readers if shared else {}
    counts = np.zeros(len(work.first_tuple), dtype=np.int64)
    for path, paths in readers.items():
        counts[work.first_operator[path + 1]] = len(paths)
    fed = [work.operator(reader, 0) for path in sorted(readers) for reader in readers[path]]
    at_once = [shared is not None and span.path in shared.at_once for span in units.spans]
    return np.cumsum(counts), np.array(fed, dtype=np.int64), np.array(at_once, dtype=np.bool_)


def _watch(work: Workload, units: Cut, adapting: Adapting | None) -> Watch:
    if adapting is None:
        return Watch(0, 0.0, np.zeros(1), np.zeros(1), np.zeros(1), False)
    if len(units.spans) != len(work.paths):
        raise ValueError("statistics adapt where units are whole queries")
    stages = [stage for path in work.paths for stage in path.stages]
    selectivity = np.array([float(stage.selectivity) for stage in stages])
    times = np.array([float(stage.time) for stage in stages])
    return Watch(adapting.window, adapting.alpha, selectivity, times, selectivity.copy(), adapting.decays)


def arrivals_of(work: Workload, shared: Shared | None = None) -> tuple[Floats, Ints]:
    """All arrivals in order of time, each with the operator it goes to; at one time, in order of path."""
    fed = {reader for readers in shared.readers.values() for reader in readers} if shared else set[int]()
    sources: Sequence[int] = [path for path in range(len(work.paths)) if path not in fed]
    leaves = work.first_operator[sources]
    times = np.concatenate([work.arrival[work.tuples(int(leaf))] for leaf in leaves])
    operators = np.repeat(leaves, work.first_tuple[leaves + 1] - work.first_tuple[leaves])
    order = np.argsort(times, kind="stable")
    return times[order], operators[order]
