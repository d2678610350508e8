"""What a simulated run cost, by the objectives of M2; all from when operators finished tuples."""

from __future__ import annotations

import numpy as np

from slicemill.scheduling.loop import Run
from slicemill.scheduling.metrics import Summary
from slicemill.scheduling.policy import Floats


def output_latencies(run: Run, path: int) -> Floats:
    """Per output of the path, in order: the time from its source tuple's arrival to its delivery."""
    work = run.work
    root = work.tuples(int(work.first_operator[path + 1]) - 1)
    return np.repeat(run.finished[root] - work.arrival[root], work.outputs[root])


def mean_output_latency(run: Run) -> float:
    """Over the outputs of all paths; not a number when there is none."""
    latencies = np.concatenate([output_latencies(run, path) for path in range(len(run.work.paths))])
    return float(latencies.mean()) if len(latencies) else float("nan")


def input_completion_times(run: Run, path: int) -> Floats:
    """Per input tuple of the path: the time from its arrival until nothing of it is left to do."""
    work = run.work
    first, last = (int(operator) for operator in work.first_operator[path : path + 2])
    done = run.finished.copy()
    for operator in range(last - 1, first, -1):
        here = work.tuples(operator)
        np.maximum.at(done, work.parent[here], done[here])
    leaf = work.tuples(first)
    return done[leaf] - work.arrival[leaf]


def buffered_size_time(run: Run) -> float:
    """Size held in buffers, integrated over time: a tuple counts until its operator has finished it."""
    work = run.work
    total = 0.0
    for number, path in enumerate(work.paths):
        for place, stage in enumerate(path.stages):
            tuples = work.tuples(work.operator(number, place))
            entered = run.finished[work.parent[tuples]] if place else work.arrival[tuples]
            total += float(stage.size_in) * float((run.finished[tuples] - entered).sum())
    return total


def execution_order(run: Run) -> list[str]:
    """The names of the stages in the order in which they ran, one per tuple."""
    work = run.work
    names = np.array([stage.name for path in work.paths for stage in path.stages])
    operator = np.repeat(np.arange(len(names)), np.diff(work.first_tuple))
    return [str(name) for name in names[operator[np.argsort(run.finished, kind="stable")]]]


def objectives(run: Run) -> dict[str, float]:
    """The figures that policies are made to keep low, over all results of a run (P6-P9, P31)."""
    response, slowdown = Summary(), Summary()
    stale = []
    duration = float(run.finished.max()) - float(run.work.arrival.min())
    for number, path in enumerate(run.work.paths):
        latencies = output_latencies(run, number)
        response.add(latencies)
        slowdown.add(latencies / sum(float(stage.time) for stage in path.stages))
        stale.append(_stale_time(run, number) / duration)
    return {
        "mean response": response.mean,
        "mean slowdown": slowdown.mean,
        "longest response": response.largest,
        "greatest slowdown": slowdown.largest,
        "l2 response": response.l2,
        "l2 slowdown": slowdown.l2,
        "staleness": float(np.mean(stale)),
    }


def _stale_time(run: Run, path: int) -> float:
    """For how long the path's output lacked a result that had arrived; results leave in order (P30)."""
    work = run.work
    root = work.tuples(int(work.first_operator[path + 1]) - 1)
    arrived, left = (times[work.outputs[root] > 0] for times in (work.arrival[root], run.finished[root]))
    if not len(left):
        return 0.0
    covered = np.concatenate(([-np.inf], np.maximum.accumulate(left)[:-1]))
    return float(np.maximum(0.0, left - np.maximum(arrived, covered)).sum())
