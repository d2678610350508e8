"""Scheduling loop in virtual time: admit, choose and run on one processor (P10).

The processor never idles while a task has input. The result is the time when each operator finished each
tuple, from which `measures` computes latency and memory. Policies that consist of numbers per task run
compiled, the others in Python. Both take the same steps. A run is determined by workload, cut and policy.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from slicemill.kernels.arrays import Floats, Int64s
from slicemill_lab.charts.tasks import Cut
from slicemill_lab.policies.policy import TupleChooser
from slicemill_lab.simulator.compiled import compiled_form, sees_ahead
from slicemill_lab.simulator.compiled_loop import LoopPlan, Watch, run_compiled
from slicemill_lab.simulator.foresight import true_drops, true_times
from slicemill_lab.simulator.plain_loop import run_plain
from slicemill_lab.simulator.workload import Workload


@dataclass(frozen=True, slots=True, eq=False)
class SimulatedRun:
    """Simulated run: when each operator finished each of its tuples, in the order of the workload."""

    work: Workload
    finished: Floats
    decisions: int


@dataclass(frozen=True, slots=True)
class Adapting:
    """Adaptive selectivities: window size in tuples, and weight of a window (P21).

    With `decays`, the estimates of a task with a window of waiting tuples move towards the initial ones, by
    the same weight. So a task that passed nothing for long gets another chance (A14).
    """

    window: int = 100
    alpha: float = 0.175
    decays: bool = False


@dataclass(frozen=True, slots=True)
class Shared:
    """Paths whose results other paths read. `readers[path]` are these paths, which have no own arrivals.

    Readers in `at_once` run together with the shared path, as one task. The other readers are scheduled
    separately.
    """

    readers: dict[int, tuple[int, ...]]
    at_once: frozenset[int]


def simulate(
    work: Workload,
    tasks: Cut,
    policy: TupleChooser,
    *,
    overhead: float = 0.0,
    adapting: Adapting | None = None,
    shared: Shared | None = None,
) -> SimulatedRun:
    """Simulate the workload to its end. `overhead` is the time of each scheduling decision.

    `adapting` requires whole queries as tasks, and priorities that are multiples of the rate. Both `adapting`
    and `shared` require a policy with a compiled form.
    """
    heads = np.array([work.operator(span.path, span.start) for span in tasks.spans], dtype=np.int64)
    stops = np.array([work.operator(span.path, span.stop) for span in tasks.spans], dtype=np.int64)
    at_root = np.zeros(len(work.first_tuple) - 1, dtype=np.bool_)
    at_root[work.first_operator[1:] - 1] = True
    times, leaves = arrivals_of(work, shared)
    compiled = compiled_form(policy, len(heads))
    if compiled is None:
        if adapting or shared:
            raise ValueError("statistics that adapt and shared operators need a policy with a compiled form")
        return SimulatedRun(
            work, *run_plain(work, tasks, policy, overhead, heads, stops, at_root, times, leaves)
        )
    times_known, drops_known = _foreseen(work, tasks) if sees_ahead(compiled) else (np.zeros(1), np.zeros(1))
    first_fed, fed, at_once = _fed(work, tasks, shared)
    plan = LoopPlan(
        work.first_tuple, heads, stops, at_root, work.cost, work.outputs, work.arrival,
        times_known, drops_known, first_fed, fed, at_once,
    )  # fmt: skip
    finished = np.empty(work.steps)
    return SimulatedRun(
        work,
        finished,
        run_compiled(times, leaves, plan, compiled, _watch(work, tasks, adapting), overhead, finished),
    )


def _foreseen(work: Workload, tasks: Cut) -> tuple[Floats, Floats]:
    times, drops = np.ones(work.steps), np.zeros(work.steps)
    for span in tasks.spans:
        tuples = work.tuples(work.operator(span.path, span.start))
        times[tuples], drops[tuples] = true_times(work, span), true_drops(work, span, tasks.objective)
    return times, drops


def _fed(
    work: Workload, tasks: Cut, shared: Shared | None
) -> tuple[Int64s, Int64s, np.typing.NDArray[np.bool_]]:
    readers = shared.readers if shared else {}
    counts = np.zeros(len(work.first_tuple), dtype=np.int64)
    for path, paths in readers.items():
        counts[work.first_operator[path + 1]] = len(paths)
    fed = [work.operator(reader, 0) for path in sorted(readers) for reader in readers[path]]
    at_once = [shared is not None and span.path in shared.at_once for span in tasks.spans]
    return np.cumsum(counts), np.array(fed, dtype=np.int64), np.array(at_once, dtype=np.bool_)


def _watch(work: Workload, tasks: Cut, adapting: Adapting | None) -> Watch:
    if adapting is None:
        return Watch(0, 0.0, np.zeros(1), np.zeros(1), np.zeros(1), False)
    if len(tasks.spans) != len(work.paths):
        raise ValueError("statistics adapt where tasks are whole queries")
    stages = [stage for path in work.paths for stage in path.stages]
    selectivity = np.array([float(stage.selectivity) for stage in stages])
    times = np.array([float(stage.time) for stage in stages])
    return Watch(adapting.window, adapting.alpha, selectivity, times, selectivity.copy(), adapting.decays)


def arrivals_of(work: Workload, shared: Shared | None = None) -> tuple[Floats, Int64s]:
    """Return all arrivals in order of time, and then of path, each with its leaf operator."""
    fed = {reader for readers in shared.readers.values() for reader in readers} if shared else set[int]()
    sources: Sequence[int] = [path for path in range(len(work.paths)) if path not in fed]
    leaves = work.first_operator[sources]
    times = np.concatenate([work.arrival[work.tuples(int(leaf))] for leaf in leaves])
    operators = np.repeat(leaves, work.first_tuple[leaves + 1] - work.first_tuple[leaves])
    order = np.argsort(times, kind="stable")
    return times[order], operators[order]
