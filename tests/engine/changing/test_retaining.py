"""RETAIN: rows stay for as long as it says, whole, whoever reads them, and in every start after it."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.columns.arrow_schema import SEQ, TS
from slicemill.lifecycle.catalog_journal import in_force
from slicemill.runtime.retained_logs import WHOLE, log_retention_us
from slicemill.sql.errors import EslError
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows

SECOND = 1_000_000
STREAM = "CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY ts"
DEAR = "CREATE QUERY dear AS SELECT k FROM s WHERE v > 100"


def opened(home: Path, clock: Clock, *statements: str) -> Mill:
    mill = fed_mill(home, clock, inline_pool())
    mill.execute(";".join(statements))
    mill.open()
    return mill


def feed(mill: Mill, clock: Clock, *times: int) -> None:
    """A row at each second, which comes at that time."""
    for second in times:
        clock.now = second * SECOND
        feed_rows(mill, "s", [(second % 3, second, second * SECOND)])
        mill.dispatcher.run_all()


def stored(mill: Mill, log: str) -> list[dict[str, object]]:
    """The rows of a log, with its own columns, as they are stored."""
    rows = [
        row for epoch in mill.home.logs[log].epochs() for row in mill.home.logs[log].read(epoch).to_pylist()
    ]
    return [{name: value for name, value in row.items() if name not in (TS, SEQ)} for row in rows]


def values(mill: Mill, log: str) -> list[object]:
    return [row["v"] for row in stored(mill, log)]


def test_a_stream_is_stored_whole_although_no_query_reads_it(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, f"{STREAM} RETAIN 1 HOUR") as mill:
        feed(mill, clock, 1, 2, 3)
        assert [(row["k"], row["v"]) for row in stored(mill, "s")] == [(1, 1), (2, 2), (0, 3)]


def test_without_it_a_stream_stores_what_queries_need(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, STREAM, DEAR) as mill:
        feed(mill, clock, 1, 2, 101)
        assert values(mill, "s") == [101]


def test_rows_go_when_their_time_is_over(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, f"{STREAM} RETAIN 10 SECONDS", DEAR) as mill:
        feed(mill, clock, 1, 2, 8)
        mill.retention.collect()
        assert values(mill, "s") == [1, 2, 8]
        clock.now = 15 * SECOND
        mill.retention.collect()
        assert values(mill, "s") == [8]


def test_results_and_derived_streams_stay_for_as_long_as_theirs_says(tmp_path: Path) -> None:
    clock = Clock()
    declared = (
        STREAM,
        "CREATE STREAM odd RETAIN 20 SECONDS AS SELECT v FROM s WHERE v % 2 = 1",
        "CREATE STREAM even AS SELECT v FROM s WHERE v % 2 = 0",
        "CREATE QUERY all_odd RETAIN 5 SECONDS AS SELECT v FROM odd",
        "CREATE QUERY all_even AS SELECT v FROM even",
    )
    with opened(tmp_path, clock, *declared) as mill:
        feed(mill, clock, 1, 2, 3, 4)
        clock.now = 10 * SECOND
        mill.retention.collect()
        assert values(mill, "odd") == [1, 3]
        assert values(mill, "even") == []
        assert values(mill, "all_odd") == []
        assert values(mill, "all_even") == [2, 4]  # as long as the mill keeps results


def test_bad_rows_stay_as_long_as_results_or_as_the_stream_says(tmp_path: Path) -> None:
    clock = Clock()
    with opened(
        tmp_path, clock, f"{STREAM} RETAIN 10 SECONDS", "CREATE STREAM r (k int) SOURCE 'r.csv'"
    ) as mill:
        kept = log_retention_us(mill.catalog, 3600 * SECOND)
        assert (kept["s_errors"], kept["s_late"], kept["r_errors"]) == (
            10 * SECOND,
            10 * SECOND,
            3600 * SECOND,
        )


def test_a_stream_is_whole_from_the_moment_that_it_is_retained(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, STREAM, DEAR) as mill:
        feed(mill, clock, 1, 101)
    with opened(tmp_path, clock, f"{STREAM} RETAIN 1 HOUR", DEAR) as mill:
        feed(mill, clock, 102, 103)
        epoch, newest = mill.home.streams["s"][WHOLE]
        assert newest == 101 * SECOND
        whole = [
            row["v"]
            for e in mill.home.logs["s"].epochs(after=epoch)
            for row in mill.home.logs["s"].read(e).to_pylist()
        ]
        assert whole == [102, 103]
    # … and is so no more without it.
    with opened(tmp_path, clock, STREAM, DEAR) as mill:
        assert WHOLE not in mill.home.streams["s"]
        feed(mill, clock, 104, 2, 105)
        assert values(mill, "s")[-1] == 105


def test_a_stream_that_was_always_retained_says_so(tmp_path: Path) -> None:
    clock = Clock()
    with opened(tmp_path, clock, f"{STREAM} RETAIN 1 HOUR") as mill:
        feed(mill, clock, 1)
        assert mill.home.streams["s"][WHOLE] == [-1, None]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (STREAM, f"{STREAM} RETAIN 7 DAYS"),
        (f"{STREAM} RETAIN 7 DAYS", f"{STREAM} RETAIN 90 MINUTES"),
        (f"{STREAM} RETAIN 7 DAYS", STREAM),
    ],
)
def test_another_retain_is_no_other_stream_and_outlives_a_start_without_a_script(
    tmp_path: Path, before: str, after: str
) -> None:
    clock = Clock()
    query = "CREATE QUERY q {} AS SELECT A.v FROM s AS A WHERE A.v > 0"
    with opened(tmp_path, clock, before, query.format("")) as mill:
        feed(mill, clock, 1)
    # In other words as well: those of the beginning count, so that its state is found.
    again = "CREATE QUERY q RETAIN 2 DAYS AS SELECT B.v FROM s AS B WHERE B.v>0"
    with opened(tmp_path, clock, after, again) as mill:
        feed(mill, clock, 2)
        expected = mill.catalog.relations["s"], mill.catalog.queries["q"]
        texts = {key: entry["text"] for key, entry in in_force(mill.home.statements).items()}
        assert texts["query", "q"] == "CREATE QUERY q RETAIN 2 DAYS AS SELECT A.v FROM s AS A WHERE A.v > 0"
        said = len(mill.home.statements)
    with fed_mill(tmp_path, clock, inline_pool()) as mill:
        mill.statements.restore()
        mill.open()
        assert (mill.catalog.relations["s"], mill.catalog.queries["q"]) == expected
        feed(mill, clock, 3)
        assert values(mill, "q") == [1, 2, 3]
    with opened(tmp_path, clock, after, again) as mill:
        assert len(mill.home.statements) == said  # which says nothing new


def test_a_retention_is_a_length_of_time_and_of_something_that_stays(tmp_path: Path) -> None:
    with fed_mill(tmp_path, Clock(), inline_pool()) as mill:
        for esl, message in (
            (f"{STREAM} RETAIN 0 DAYS", "RETAIN is longer than 0"),
            (f"{STREAM} RETAIN 1 MONTH", "a month has no fixed length"),
            (
                "CREATE TABLE t (k int); CREATE QUERY q RETAIN 1 DAY AS SELECT k FROM t",
                "an ad hoc query has no results",
            ),
        ):
            with pytest.raises(EslError, match=message):
                mill.execute(esl)
