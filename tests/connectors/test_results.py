"""Results of a query as tables, data frames and rows, complete or only the last rows."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa

from slicemill.api.mill import Mill
from slicemill.connectors.follow import Follower
from slicemill.connectors.sinks.registry import open_sink
from slicemill.types import Timed
from support.engine import Clock, fed_mill, feed_rows, inline_pool

SCRIPT = "CREATE STREAM s (n int, ts timestamp) ORDER BY ts; CREATE QUERY q AS SELECT n FROM s;"
SECOND = 1_000_000


def mill_with_rows(home: Path, epochs: int) -> Mill:
    mill = fed_mill(home, Clock(), inline_pool())
    mill.execute(SCRIPT)
    mill.open()
    for number in range(epochs):
        feed_rows(mill, "s", [(number, number * SECOND)])
        mill.dispatcher.run_all()
    return mill


def test_result_timestamps_have_a_timestamp_type_in_every_interface(tmp_path: Path) -> None:
    tables: list[pa.Table] = []
    with mill_with_rows(tmp_path, 0) as mill:
        query = mill.queries["q"]
        query.subscribe(tables.append)
        memory = open_sink("memory:", "q", query.schema)
        mill.sinks.add("q", memory, "memory")
        mill.sinks.add("q", open_sink(lambda _, table: tables.append(table), "q", query.schema), "function")
        feed_rows(mill, "s", [(7, 5 * SECOND)])
        mill.dispatcher.run_all()
        mill.sinks.deliver_new()
        tables += [query.to_arrow(), memory.to_arrow()]  # type: ignore[attr-defined]
        tables += [seen.rows for seen in Follower(tmp_path, ["q"]).poll()]
        moment = datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)
        assert [table.schema.field("_ts").type for table in tables] == [pa.timestamp("us", tz="UTC")] * 5
        assert [table.to_pylist() for table in tables] == [[{"_ts": moment, "n": 7}]] * 5
        frame = query.to_pandas()
        assert str(frame["_ts"].dt.tz) == "UTC"
        assert frame["_ts"].tolist() == [moment]
        assert query.rows() == [Timed(5 * SECOND, (7,))]
    assert open_sink("memory:", "q", query.schema).to_arrow().schema == tables[0].schema  # type: ignore[attr-defined]


def test_a_read_of_the_newest_rows_reads_only_the_last_epochs(tmp_path: Path) -> None:
    with mill_with_rows(tmp_path, 40) as mill:
        query, epochs = mill.queries["q"], []
        assert len(query.log) == 40
        read = query.log.read
        query.log.read = lambda epoch: epochs.append(epoch) or read(epoch)  # type: ignore
        assert (query.newest(0), epochs) == ([], [])
        newest = query.newest(5)
        assert len(epochs) == 8
        assert newest == query.rows()[-5:]
        assert len(query.newest(1_000)) == 40
        mill.execute("DROP QUERY q")
        assert query.newest(5) == newest
