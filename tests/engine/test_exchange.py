"""Parts of logs by subtask: they are a partition of the rows, in order, however the rows were stored."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.catalog.expressions import Call, ColumnRef, Literal
from slicemill.columns.arrow_schema import to_arrow, with_system_columns
from slicemill.columns.merge import merge_sorted
from slicemill.plan.partitioning import Along, Exchange
from slicemill.runtime import shuffle as exchange
from slicemill.runtime.pipeline import RunOutcome, TaskProgram
from slicemill.runtime.shuffle import PartitionedRows, add_subtask_order, sample_keys
from slicemill.testing import Clock, inline_pool
from slicemill.types import BIGINT, DOUBLE, INT, VARCHAR, Column, Schema
from support.engine import fed_mill, feed_rows, finish

SCHEMA = Schema((Column("k", INT), Column("name", VARCHAR), Column("x", DOUBLE), Column("n", BIGINT)))
K, NAME, X, N = (ColumnRef(column.name, column.type) for column in SCHEMA)
KEYS = [
    (K,),
    (NAME,),
    (X,),
    (K, NAME),
    (X, N, K),
    (Call("%", (N, Literal(3, BIGINT)), BIGINT),),
    (Call("/", (K, N), DOUBLE),),  # fails where n is 0
]

rows = st.tuples(
    st.sampled_from([None, 0, 1, 2, -5]),
    st.sampled_from([None, "", "a", "b"]),
    st.sampled_from([None, 0.0, -0.0, 1.5, math.nan]),
    st.sampled_from([None, 0, 1, 10**12]),
)


@st.composite
def batches(draw: st.DrawFn) -> list[pa.Table]:
    """Tables that are sorted each in itself, and may overlap."""
    number, made = 0, []
    for _ in range(draw(st.integers(1, 4))):
        values = draw(st.lists(rows, max_size=12))
        times = sorted(draw(st.lists(st.integers(0, 9), min_size=len(values), max_size=len(values))))
        system = [times, range(number, number + len(values)), [5] * len(values)]
        number += len(values)
        columns = [*system, *(zip(*values, strict=True) if values else [[]] * 4)]
        types = with_system_columns(to_arrow(SCHEMA))
        made.append(
            pa.table([pa.array(c, f.type) for c, f in zip(columns, types, strict=True)], schema=types)
        )
    return made


def plain(table: pa.Table) -> list[str]:
    return [repr(row) for row in table.to_pylist()]


def parts(tables: list[pa.Table], by: Exchange) -> list[list[str]]:
    spread = PartitionedRows(by, to_arrow(SCHEMA), [(table, 0) for table in tables if table.num_rows])
    found = [spread.part(subtask) for subtask in range(by.subtasks)]
    for part in found:
        positions = list(zip(part["_ts"].to_pylist(), part["_seq"].to_pylist(), strict=True))
        assert positions == sorted(positions)
        assert part.column_names == ["_ts", "_seq", "_arr", *SCHEMA.names]
    return [plain(part) for part in found]


@given(batches(), st.sampled_from(KEYS), st.integers(1, 9), st.lists(st.booleans(), min_size=4, max_size=4))
def test_parts_are_a_partition_of_the_rows_however_they_are_stored(
    tables: list[pa.Table], keys: Any, subtasks: int, ordered: list[bool]
) -> None:
    by, other = Exchange((subtasks,), (keys,)), Exchange((3,), ((NAME, K),))
    found = parts(tables, by)
    assert sorted(row for part in found for row in part) == sorted(plain(merge_sorted(tables)))
    stored = [
        add_subtask_order(table, [other, by], SCHEMA) if own else table
        for table, own in zip(tables, ordered, strict=False)
    ]
    assert parts(stored, by) == found


along = st.one_of(st.sampled_from(KEYS), st.sampled_from(Along))


@given(
    batches(),
    st.lists(st.tuples(st.integers(1, 4), along), min_size=1, max_size=3),
    st.lists(st.booleans(), min_size=4, max_size=4),
)
def test_a_row_is_in_all_subtasks_that_agree_with_it_along_every_dimension(
    tables: list[pa.Table], dimensions: list[tuple[int, Any]], ordered: list[bool]
) -> None:
    shape, by = zip(*dimensions, strict=True)
    grid = Exchange(shape, by)
    # Along one dimension at a time, where a row is said to be along the others is of no matter.
    alone = [parts(tables, Exchange((count,), (how,))) for count, how in dimensions]
    stored = [
        add_subtask_order(table, [grid], SCHEMA) if own else table
        for table, own in zip(tables, ordered, strict=False)
    ]
    found = parts(stored, grid)
    for subtask, index in enumerate(np.ndindex(*shape)):
        agreeing = [set(rows[at]) for rows, at in zip(alone, index, strict=True)]
        assert set(found[subtask]) == set.intersection(*agreeing)
        assert len(found[subtask]) == len(set(found[subtask])), "numbers tell rows apart"


def test_rows_that_go_to_all_subtasks_are_not_copied() -> None:
    types = with_system_columns(to_arrow(SCHEMA))
    table = pa.table(
        [
            pa.array([1] * 3, field.type) if field.name[0] == "_" else pa.nulls(3, field.type)
            for field in types
        ],
        schema=types,
    )
    found = PartitionedRows(Exchange((64,), (Along.EVERY,)), to_arrow(SCHEMA), [(table, 0)])
    assert all(found.part(subtask) is found.part(0) for subtask in range(64))
    assert found.part(0)["_ts"].chunk(0).buffers()[1].address == table["_ts"].chunk(0).buffers()[1].address


QUERIES = """
CREATE STREAM S (k int, v int, ts timestamp) ORDER BY ts;
CREATE QUERY sums AS SELECT k, sum(v) OVER (PARTITION BY k RANGE 3 SECONDS PRECEDING) AS s FROM S;
CREATE STREAM D AS SELECT k, v FROM S WHERE v > 2;
CREATE QUERY counts AS SELECT k, count(*) OVER (PARTITION BY k ROWS 5 PRECEDING) AS n FROM D;
CREATE QUERY pairs AS SELECT A.k, A.v, B.v AS w
  FROM S [RANGE 1 SECOND] A, D [RANGE 1 SECOND] B WHERE A.k = B.k;
"""


@pytest.fixture
def handed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Counts the rows that programs of tasks with several subtasks are given."""
    counted: list[int] = []
    run = TaskProgram.run

    def count(self: TaskProgram, inputs: dict[str, pa.Table], *told: Any, **more: Any) -> RunOutcome:
        counted.extend(inputs[log].num_rows for log in self.plan.exchanges)
        return run(self, inputs, *told, **more)

    monkeypatch.setattr(TaskProgram, "run", count)
    return counted


def run_queries(home: Path, subtasks: int) -> tuple[dict[str, list[Any]], Mill]:
    with fed_mill(home, Clock(1), inline_pool(), subtasks) as mill:
        mill.execute(QUERIES)
        mill.open()
        chance = np.random.default_rng(3)
        for batch in range(4):
            times = batch * 1_000_000 + np.sort(chance.integers(0, 1_000_000, 200))
            keys, values = chance.integers(0, 20, (2, 200))
            table = list(zip(keys.tolist(), values.tolist(), times.tolist(), strict=True))
            feed_rows(mill, "S", table)
            mill.dispatcher.run_some()
        finish(mill)
        results = {name: [(t.ts, t.row) for t in query.timed_rows()] for name, query in mill.queries.items()}
        assert all(query.error is None for query in mill.queries.values())
        return results, mill


@pytest.mark.parametrize("large", [1, 10**9], ids=["stored", "on reading"])
def test_subtasks_together_are_handed_every_row_once(
    tmp_path: Path, handed: list[int], large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(exchange, "_LARGE", large)
    monkeypatch.setattr(exchange, "_LARGE_PER_SUBTASK", 0)
    one, _ = run_queries(tmp_path / "one", 1)
    assert handed == []
    for subtasks in (8, 64):
        several, mill = run_queries(tmp_path / str(subtasks), subtasks)
        assert several == one
        log = mill.home.logs["S"]
        # `sums` and `pairs` read S, `counts` and `pairs` read D.
        assert sum(handed) == 2 * log.rows + 2 * mill.home.logs["D"].rows
        assert all((".ordered-" in segment) == (large == 1) for segment in log.segments_in_use())
        # Nobody else sees the order.
        assert log.read(log.epochs()[0]).column_names == ["_ts", "_seq", "_arr", "k", "v", "ts"]
        handed.clear()


def _keyed(keys: list[int | None]) -> pa.Table:
    count, types = len(keys), with_system_columns(to_arrow(SCHEMA))
    columns = [range(count), range(count), [5] * count, keys, ["a"] * count, [0.0] * count, [1] * count]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, types, strict=True)], schema=types)


def test_who_writes_rows_tells_the_keys_that_many_have_and_the_subtasks_these_go_to() -> None:
    by_key, by_time = Exchange((4,), ((K,),)), Exchange((4,), (Along.EVERY,))
    chance = np.random.default_rng(3)
    keys = np.where(chance.random(20_000) < 0.3, 7, chance.integers(0, 10_000, 20_000)).tolist()
    table = _keyed(keys)
    told = sample_keys(table, (by_key, by_time), SCHEMA)
    assert told.keys() == {by_key.id}
    sample = told[by_key.id]
    ((subtask, count),) = sample.keys.values()
    assert (sample.rows, sample.span_us) == (20_000, 19_999) and count == pytest.approx(6_000, rel=0.15)
    spread = PartitionedRows(by_key, to_arrow(SCHEMA), [(table, 5)])
    assert [7 in spread.part(number).column("k").to_pylist() for number in range(4)].index(True) == subtask


@pytest.mark.parametrize("period", [50, 100, 977])
def test_keys_that_come_in_turn_and_those_that_are_null_are_not_many(period: int) -> None:
    by_key = Exchange((4,), ((K,),))
    turns = [number % period for number in range(100_000)]
    found = sample_keys(_keyed(turns), (by_key,), SCHEMA)[by_key.id].keys
    assert all(count < 3 * len(turns) / period for _, count in found.values())
    assert not sample_keys(_keyed([None] * 100), (by_key,), SCHEMA)[by_key.id].keys
