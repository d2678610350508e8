"""Rows put together from answers: where every tuple has its answer at once, nothing need be searched."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.calls import CallAnswers
from slicemill.functions.vectors import Vector
from slicemill.operators.assembly import Assembly, AssemblyState
from slicemill.types import BIGINT


def answers(first: int, ts: list[int], late: int) -> list[CallAnswers]:
    """Two calls: one answers at once, the other holds the answers to the last `late` tuples back."""
    numbers, stamps = np.arange(first, first + len(ts)), np.array(ts, np.int64)
    known = max(len(ts) - late, 0)
    return [
        CallAnswers(
            n, t, [Vector(BIGINT, n * factor)], np.zeros(len(n), np.bool_), first + len(n), first + len(n)
        )
        for n, t, factor in ((numbers, stamps, 2), (numbers[:known], stamps[:known], 3))
    ]


@settings(max_examples=40)
@given(st.lists(st.tuples(st.integers(0, 5), st.booleans()), max_size=4))
def test_answers_to_all_at_once_give_the_same_rows(chunks: list[tuple[int, bool]]) -> None:
    """The last chunk may be one in which answers are still to come."""
    found = []
    for searching in (False, True):
        with pytest.MonkeyPatch.context() as patch:
            if searching:
                patch.setattr(Assembly, "_has_one_result_each", lambda *_: False)
            state = AssemblyState()
            made, first = [], 0
            for number, (count, late) in enumerate(chunks):
                ts = list(range(first, first + count))
                rows = pa.table({"_ts": ts, "_seq": ts, "_arr": ts, "x": [t * 10 for t in ts]}, SCHEMA)
                given_ = answers(first, ts, int(late and number == len(chunks) - 1))
                made.append(
                    Assembly(state, [["a"], ["b"]]).run(rows, given_).select([*SCHEMA.names, "a", "b"])
                )
                first += count
            found.append(([table.to_pylist() for table in made], state.first, state.held_from))
    assert found[0] == found[1]


SCHEMA = pa.schema([(name, pa.int64()) for name in ("_ts", "_seq", "_arr", "x")])
