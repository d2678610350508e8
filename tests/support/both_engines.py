"""The results of queries over one stream `S`, by a mill and by the reference engine."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Sequence
from pathlib import Path

from slicemill.api.mill import Mill
from slicemill.binder import bind
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.testing import Clock, inline_pool
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.changelogs import SECOND, Row, TimedRow
from support.engine import fed_mill, feed_rows, finish


def by_mill(
    esl: str, rows: Sequence[Row], seed: int, *, runs: float = 0.2, restarts: float = 0.01
) -> dict[str, list[TimedRow]]:
    """Return the rows of each query of a mill with any number of subtasks.

    After a row the mill runs or restarts with these probabilities; half of the restarts are crashes.
    """
    chooser = random.Random(seed)
    clock, pool = Clock(), inline_pool()
    with tempfile.TemporaryDirectory() as folder:

        def started() -> Mill:
            mill = fed_mill(Path(folder), clock, pool, chooser.choice([1, 2, 5]))
            mill.execute(esl)
            mill.open()
            return mill

        mill = started()
        try:
            for row in rows:
                feed_rows(mill, "S", [row])
                if chooser.random() < runs:
                    mill.dispatcher.run_all()
                if chooser.random() < restarts:
                    mill.close(checkpoint=chooser.random() < 0.5)
                    mill = started()
            finish(mill)
            for query in mill.queries.values():
                assert query.error is None, query.error
            return {
                name: [(timed.ts, timed.row) for timed in query.timed_rows()]
                for name, query in mill.queries.items()
            }
        finally:
            mill.close()


def by_reference(esl: str, rows: Sequence[Row]) -> dict[str, list[TimedRow]]:
    """Return the rows of each query of the reference engine, which takes rows one by one."""
    catalog = bind(esl).catalog
    engine = Engine(translate(optimize(build_graph(catalog)), catalog, {}))
    for row in rows:
        engine.feed("S", [Arrival(int(str(row[-1])), row, int(str(row[-1])))])
        engine.run_until_idle()
    engine.run()
    return {name: [(timed.ts, timed.row) for timed in engine.results(name)] for name in catalog.queries}


def times_to_compare(rows: Sequence[Row], *, every: int | None, final: bool) -> list[int]:
    """Return when tables are compared: before the first row, then at each row or at the ends of intervals.

    Results that are emitted at the end are compared at the end only.
    """
    times = sorted({int(str(row[-1])) for row in rows})
    before = times[0] - SECOND if times else 0
    if final:
        return times[-1:] or [before]
    if every is not None:
        length = every * SECOND
        times = sorted({(ts // length + 1) * length for ts in times})
    return [before, *times]
