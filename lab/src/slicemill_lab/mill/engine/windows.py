"""Window aggregates on the engine: CPU time of a tuple, and state size (mill-spark-E10 to E13)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

import pyarrow as pa

from slicemill_lab.on_engine import fed_mill

_STREAM = "CREATE STREAM s (v {type}, n int) ORDER BY current_time;"
_PART = 1_000
"""Rows of a batch. A run processes one batch, so there is one measurement per batch."""


@dataclass(frozen=True, slots=True)
class EngineCost:
    """Cost of a call with a full window: median CPU time per tuple, state size, and results."""

    us: float
    state_bytes: int
    answers: tuple[float, ...]


def cost(esl: str, call: str, values: Sequence[float], measured: int) -> EngineCost:
    """Feed a call all values in batches. Batches with the last `measured` values are timed.

    The first batch compiles and is never measured.
    """
    kind = "bigint" if isinstance(values[0], int) else "double"
    script = f"{_STREAM.format(type=kind)} {esl} CREATE QUERY q AS SELECT {call} AS x FROM s;"
    times: list[float] = []
    with fed_mill(script) as mill:

        def spent_s() -> float:
            return sum(task.statistics.cpu_s for task in mill.dispatcher.tasks.values())

        for first in range(0, len(values), _PART):
            part = values[first : first + _PART]
            numbers = pa.array(range(first, first + len(part)), pa.int32())
            before = spent_s()
            mill.feed("s", pa.table({"v": pa.array(part), "n": numbers}))
            mill.dispatcher.run_all()
            if first and first + len(part) > len(values) - measured:
                times.append((spent_s() - before) / len(part))
        state = sum(task.state_bytes for task in mill.dispatcher.tasks.values())
        answers = tuple(float(str(timed.row[0])) for timed in mill.queries["q"].timed_rows())
    return EngineCost(median(times) * 1_000_000, state, answers)
