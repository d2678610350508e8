"""Objectives of M2 for a simulated run, computed from the finish times of tuples."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from slicemill.kernels.arrays import Floats
from slicemill.metrics.quality_of_service import MetricsRecord, Summary, freshness, time_by_bucket
from slicemill_lab.simulator.loop import SimulatedRun


def output_latencies(run: SimulatedRun, path: int) -> Floats:
    """Return, per output of the path in order, the time from its source tuple's arrival to delivery."""
    arrived, left = _outputs(run, path)
    return left - arrived


def results(
    run: SimulatedRun, ideal_times: Mapping[int, float] | None = None
) -> tuple[Floats, Floats, Floats]:
    """Return, per result, the arrival of its source tuple, its delivery, and its ideal time.

    `ideal_times` has the ideal times of the paths that end in results, if not all paths do.
    """
    work = run.work
    queries = _ideal_times(run) if ideal_times is None else ideal_times
    root = work.first_operator[np.array(list(queries), dtype=np.int64) + 1] - 1
    first, count = work.first_tuple[root], np.diff(work.first_tuple)[root]
    within = np.arange(count.sum()) - np.repeat(np.cumsum(count) - count, count)
    at_root = np.repeat(first, count) + within
    often = work.outputs[at_root]
    ideal = np.repeat(np.repeat(np.array(list(queries.values())), count), often)
    tuples = np.repeat(at_root, often)
    return work.arrival[tuples], run.finished[tuples], ideal


def _outputs(run: SimulatedRun, path: int) -> tuple[Floats, Floats]:
    """Return the arrivals of the source tuples of the path's outputs, and their deliveries."""
    work = run.work
    root = work.tuples(int(work.first_operator[path + 1]) - 1)
    often = work.outputs[root]
    return np.repeat(work.arrival[root], often), np.repeat(run.finished[root], often)


def mean_output_latency(run: SimulatedRun) -> float:
    """Return the mean over the outputs of all paths, or NaN without outputs."""
    arrived, left, _ = results(run)
    latencies = left - arrived
    return float(latencies.mean()) if len(latencies) else float("nan")


def input_completion_times(run: SimulatedRun, path: int) -> Floats:
    """Return, per input tuple of the path, the time from its arrival until it is completely processed."""
    work = run.work
    first, last = (int(operator) for operator in work.first_operator[path : path + 2])
    done = run.finished.copy()
    for operator in range(last - 1, first, -1):
        here = work.tuples(operator)
        np.maximum.at(done, work.parent[here], done[here])
    leaf = work.tuples(first)
    return done[leaf] - work.arrival[leaf]


def buffered_size_time(run: SimulatedRun) -> float:
    """Integrate the buffered size over time. A tuple counts until its operator has finished it."""
    work = run.work
    sizes = np.array([float(stage.size_in) for path in work.paths for stage in path.stages])
    entered = np.where(work.parent < 0, work.arrival, run.finished[work.parent])
    return float(np.repeat(sizes, np.diff(work.first_tuple)) @ (run.finished - entered))


def _waits(run: SimulatedRun, path: int, place: int) -> tuple[Floats, Floats]:
    """Return when tuples entered the buffer of an operator, and when they were finished."""
    work = run.work
    tuples = work.tuples(work.operator(path, place))
    entered = run.finished[work.parent[tuples]] if place else work.arrival[tuples]
    return entered, run.finished[tuples]


def execution_order(run: SimulatedRun) -> list[str]:
    """Return the names of the stages in execution order, one per tuple."""
    work = run.work
    names = np.array([stage.name for path in work.paths for stage in path.stages])
    operator = np.repeat(np.arange(len(names)), np.diff(work.first_tuple))
    return [str(name) for name in names[operator[np.argsort(run.finished, kind="stable")]]]


def mean_memory(run: SimulatedRun) -> float:
    """Return the mean number of tuples in queues over the run (P29)."""
    return buffered_size_time(run) / _duration(run)


def objectives(run: SimulatedRun, ideal_times: Mapping[int, float] | None = None) -> dict[str, float]:
    """Return the objectives of policies, over all `results` of a run (P6-P9, P29, P31)."""
    response, slowdown = Summary(), Summary()
    queries = _ideal_times(run) if ideal_times is None else ideal_times
    arrived, left, ideal = results(run, queries)
    response.add(left - arrived)
    slowdown.add((left - arrived) / ideal)
    duration = _duration(run)
    stale = [_stale_time(run, path) / duration for path in queries]
    weights = [float(run.work.paths[path].weight) for path in queries]
    return {
        "mean response": response.mean,
        "mean slowdown": slowdown.mean,
        "longest response": response.largest,
        "greatest slowdown": slowdown.largest,
        "l2 response": response.l2,
        "l2 slowdown": slowdown.l2,
        "staleness": 1.0 - freshness(stale),
        "weighted staleness": 1.0 - freshness(stale, weights),
        "mean memory": mean_memory(run),
    }


def record(
    run: SimulatedRun, bucket: float, classes: Mapping[int, str] = MappingProxyType({})
) -> MetricsRecord:
    """Return figures by query, class and time interval.

    Results count at their delivery, staleness and memory when they occurred. Memory is the mean of waiting
    tuples, not the maximum.
    """
    work = run.work
    kept = MetricsRecord(bucket, {work.paths[path].name: name for path, name in classes.items()})
    for path, ideal in _ideal_times(run).items():
        arrived, left = _outputs(run, path)
        borders = np.flatnonzero(np.diff(left // bucket)) + 1
        for some, departures in zip(np.split(arrived, borders), np.split(left, borders), strict=True):
            if len(some):
                kept.at(work.paths[path].name, float(departures[0])).add_emitted(some, departures, ideal)
        for number, length in time_by_bucket(*_stale_stretches(run, path), bucket).items():
            kept.numbered(work.paths[path].name, number).stale += length
        for place in range(len(work.paths[path].stages)):
            for number, length in time_by_bucket(*_waits(run, path, place), bucket).items():
                kept.numbered(work.paths[path].name, number).waited += length
    return kept


def _ideal_times(run: SimulatedRun) -> dict[int, float]:
    return {
        number: sum(float(stage.time) for stage in path.stages) for number, path in enumerate(run.work.paths)
    }


def _duration(run: SimulatedRun) -> float:
    return float(run.finished.max()) - float(run.work.arrival.min())


def _stale_time(run: SimulatedRun, path: int) -> float:
    """Return the total time in which the path's output lacked an arrived result."""
    begins, ends = _stale_stretches(run, path)
    return float((ends - begins).sum())


def _stale_stretches(run: SimulatedRun, path: int) -> tuple[Floats, Floats]:
    """Return the intervals in which the path's output lacked an arrived result (P30).

    Results leave in order.
    """
    work = run.work
    root = work.tuples(int(work.first_operator[path + 1]) - 1)
    arrived, left = (times[work.outputs[root] > 0] for times in (work.arrival[root], run.finished[root]))
    covered = np.concatenate(([-np.inf], np.maximum.accumulate(left)))[:-1]
    begins = np.maximum(arrived, covered)
    return begins, np.maximum(left, begins)
