"""Files of entries beside chunks: which are made, and which are not."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa

from slicemill.engine.early_choice import EarlyPanes
from slicemill.engine.early_panes import add_panes, have_panes, read_panes, want_panes
from slicemill.esl import bind
from slicemill.plan.build import build_graph
from slicemill.plan.early_panes import Recipe, recipe_of_unit
from slicemill.plan.optimize import optimize, share
from slicemill.plan.units import cut
from slicemill.storage.chunk import decode_chunk, encode_chunk, open_beside, write_chunk
from slicemill.storage.log import CHUNKS
from slicemill.storage.log_epoch import make_epoch

STREAM = "CREATE STREAM s (k int, v bigint, t timestamp) ORDER BY t;"
SCHEMA = bind(STREAM).catalog.declared_stream("s").schema
ROWS = pa.table({"_ts": [0, 1, 2_000_000], "k": pa.array([1, 1, 2], pa.int32()), "v": [0, 5, 7]})


def recipe(call: str) -> Recipe:
    query = f"CREATE QUERY q AS SELECT k, {call} AS x FROM s [RANGE 2 SECONDS SLIDE 1 SECOND] GROUP BY k;"
    catalog = bind(STREAM + query).catalog
    graph = share(optimize(build_graph(catalog)), catalog)
    (unit,) = cut(graph)
    found = recipe_of_unit(unit, graph)
    assert found is not None
    return found[1]


def test_entries_are_made_by_recipes_that_can_be_followed(tmp_path: Path) -> None:
    """Not where a value cannot be computed, and not of columns that are not stored."""
    (tmp_path / CHUNKS).mkdir()
    sums, quotients, times = recipe("sum(v)"), recipe("sum(10 / v)"), recipe("max(t)")
    want_panes(tmp_path, [sums, quotients, times])
    chunk = add_panes(tmp_path, write_chunk(tmp_path, CHUNKS, ROWS), ROWS, SCHEMA)
    assert chunk.panes == (sums.digest,)
    assert decode_chunk(encode_chunk(chunk)) == chunk
    assert sorted(path.name for path in (tmp_path / CHUNKS).iterdir()) == sorted(
        Path(path).name for path in chunk.files
    )
    entries = open_beside(tmp_path, chunk, sums.digest)
    assert entries.column("rows").to_pylist() == [2, 1]
    assert entries.column("key0").to_pylist() == [1, 2]
    epoch = make_epoch(0, "ingest:0", [chunk], 9, None, None, None)
    assert have_panes([epoch], sums.digest) and not have_panes([epoch], times.digest)
    assert read_panes(tmp_path, [epoch], sums.digest) == [(entries, 9)]


def test_what_nobody_wants_any_more_is_not_made(tmp_path: Path) -> None:
    (tmp_path / CHUNKS).mkdir()
    want_panes(tmp_path, [recipe("sum(v)")])
    EarlyPanes(cores=2).update([], [tmp_path])
    assert not add_panes(tmp_path, write_chunk(tmp_path, CHUNKS, ROWS), ROWS, SCHEMA).panes
