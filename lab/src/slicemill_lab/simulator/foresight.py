"""True processing time and drop of each tuple of a workload in a task, for clairvoyant policies (M11)."""

from __future__ import annotations

import numpy as np

from slicemill.kernels.arrays import Floats
from slicemill_lab.charts.charts import Objective
from slicemill_lab.charts.tasks import Span
from slicemill_lab.simulator.workload import Workload


def true_times(work: Workload, span: Span) -> Floats:
    """Return, per tuple at the unit's head, the time of the tuple and its descendants in the task."""
    return _gathered(work, span, [work.cost[tuples] for tuples in _tuples(work, span)])


def true_drops(work: Workload, span: Span, objective: Objective) -> Floats:
    """Return, per tuple at the unit's head, how much its run lowers the chart of the objective."""
    path = work.paths[span.path]
    stages = path.stages[span.start : span.stop]
    delivers = span.stop == len(path.stages)
    made = [work.outputs[tuples].astype(np.float64) for tuples in _tuples(work, span)]
    match objective:
        case Objective.INPUT_COMPLETION:
            return np.full(len(made[0]), float(path.weight) if delivers else 0.0)
        case Objective.OUTPUT_RESPONSE:
            delivered = float(path.weight) * made[-1] if delivers else np.zeros(len(made[-1]))
            return _gathered(work, span, [np.zeros(len(outputs)) for outputs in made[:-1]] + [delivered])
        case Objective.MEMORY:
            kept = [float(stage.size_out) for stage in stages]
            if delivers:
                kept[-1] = 0.0
            return _gathered(
                work,
                span,
                [float(s.size_in) - out * size for s, out, size in zip(stages, made, kept, strict=True)],
            )


def _tuples(work: Workload, span: Span) -> list[slice]:
    return [work.tuples(work.operator(span.path, stage)) for stage in range(span.start, span.stop)]


def _gathered(work: Workload, span: Span, values: list[Floats]) -> Floats:
    # From the last stage back: the value of each tuple plus those of its descendants.
    slices = _tuples(work, span)
    total = values[-1]
    for before, here, own in zip(slices[-2::-1], slices[:0:-1], values[-2::-1], strict=True):
        total = own + np.bincount(work.parent[here] - before.start, weights=total, minlength=len(own))
    return total
