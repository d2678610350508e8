"""Number of values that panes keep for one key, in the middle of a pane (published: 5 of 40,000)."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from slicemill.binder import bind
from slicemill.operators.window.pane_state import PaneState
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import share
from slicemill.plan.tasks import split_into_tasks
from slicemill.runtime.pipeline import TaskPlan, TaskProgram

_SECOND = 1_000_000
_SCRIPT = """CREATE STREAM Bid (price bigint) ORDER BY current_time;
CREATE QUERY q AS SELECT sum(price) AS s FROM Bid [RANGE {range_s} SECONDS SLIDE {slide_s} SECONDS];"""


def entries_kept(range_s: int, slide_s: int, rate: int) -> int:
    """Return the entries in the state with full windows, for `rate` tuples per second in runs of 0.5 s."""
    catalog = bind(_SCRIPT.format(range_s=range_s, slide_s=slide_s)).catalog
    graph = share(build_graph(catalog), catalog)
    (task,) = split_into_tasks(graph)
    program = TaskProgram(TaskPlan(task=task, graph=graph, catalog=catalog, tables={}))
    for half in range(2 * (2 * range_s + slide_s) + 1):
        ts = half * _SECOND // 2 + np.arange(rate // 2) * (_SECOND // rate)
        table = pa.table({"_ts": ts, "_arr": ts, "price": ts % 97})
        program.run({"Bid": table}, {"Bid": int(ts[-1])})
    (state,) = program.states.values()
    assert isinstance(state, PaneState)
    return state.entries.rows
