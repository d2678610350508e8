"""Ad hoc queries read only the necessary part of a log, compared with queries over the whole log."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from server.conftest import bid
from slicemill.columns.arrow_schema import with_system_columns
from slicemill.columns.merge import in_order
from slicemill.errors import SlicemillError
from slicemill.lifecycle.compaction import ChangelogTables
from slicemill.server.adhoc.ask import InMemoryRelation, LogRelation
from slicemill.server.adhoc.pushdown import parse_query, pushdowns_of
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.storage.changes import Appended, Change
from slicemill.storage.home import Home
from slicemill.storage.log import Epoch, Log
from slicemill.storage.segments import SegmentWriters
from support.adhoc_queries import ask

_COLUMNS = pa.schema([("item", pa.int64()), ("price", pa.float64()), ("note", pa.string())])
_US = 1_000_000

Rows = list[tuple[int, int]]  # pairs of second and item


class CountingLog:
    """Log that counts the rows and columns which are read from it."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self.rows = 0
        self.columns_read: set[str] = set()

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)

    def scan(self, epochs: Iterator[Epoch], columns: list[str]) -> pa.Table:
        found = self._log.scan(epochs, columns)
        self.rows += found.num_rows
        self.columns_read |= set(found.column_names)
        return found


@contextmanager
def _log(epochs: list[Rows], extents: int = 1, compress: bool = False) -> Iterator[Log]:
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.open()
        home.commit(Change(created={"bid": _COLUMNS}))
        log = home.logs["bid"]
        writers = [SegmentWriters(f"w{number}") for number in range(extents)]
        seq = 0
        for rows in epochs:
            parts = []
            for number, writer in enumerate(writers):
                own = rows[number::extents]
                times = [second * _US for second, _ in own]
                numbers = list(range(seq, seq + len(own)))
                seq += len(own)
                items = [item for _, item in own]
                columns = [
                    times,
                    numbers,
                    times,
                    items,
                    [item / 4 for item in items],
                    [f"n{i}" for i in items],
                ]
                table = pa.table(
                    [
                        pa.array(v, f.type)
                        for v, f in zip(columns, with_system_columns(_COLUMNS), strict=True)
                    ],
                    schema=with_system_columns(_COLUMNS),
                )
                parts.append(writer.append(log.folder, in_order(table), compress=compress))
            seconds = [second * _US for second, _ in rows]
            added = Appended(parts, min(seconds, default=None), max(seconds, default=None), 0)
            home.commit(Change(logs={"bid": added}))
        yield log
        home.close()


def _over_all(sql: str, log: Log) -> list[tuple[object, ...]]:
    """Return the answer of the ad hoc query over the whole log."""
    rows = InMemoryRelation(LogRelation(log).shape().schema, lambda: _whole(log))
    return _tuples(ask(sql, lambda _: rows))


def _whole(log: Log) -> pa.Table:
    return LogRelation(log).read(pushdowns_of(parse_query("SELECT * FROM bid"))["bid"], _unasked)


def _unasked() -> None:
    raise AssertionError("nothing is bounded")


def _tuples(table: pa.Table) -> list[tuple[object, ...]]:
    return [tuple(row.values()) for row in table.to_pylist()]


_SECONDS = st.integers(0, 60)
_EPOCHS = st.lists(st.lists(st.tuples(_SECONDS, st.integers(0, 5)), max_size=8), max_size=12)
_TIMES = _SECONDS.map(lambda second: f"TIMESTAMP '1970-01-01 00:00:{second % 60:02d}'")
_ORDERS = st.sampled_from(
    [
        "ORDER BY _ts DESC, item, price",
        "ORDER BY _ts, item DESC",
        "ORDER BY b._ts DESC, item",
        "ORDER BY item, _ts",
        "",
    ]
)


@st.composite
def _questions(draw: st.DrawFn) -> str:
    conditions = draw(
        st.lists(
            st.one_of(
                _TIMES.map(lambda t: f"_ts > {t}"),
                _TIMES.map(lambda t: f"{t} >= b._ts"),
                _TIMES.map(lambda t: f"_ts = {t}"),
                _TIMES.map(lambda t: f"(_ts BETWEEN {t} AND {t} + INTERVAL 10 SECONDS)"),
                _TIMES.map(lambda t: f"NOT _ts < {t}"),
                _TIMES.map(lambda t: f"(_ts < {t} OR item = 1)"),
                st.sampled_from(["item = 1", "price > 0.5", "note <> 'n2'"]),
            ),
            max_size=3,
        )
    )
    where = f"WHERE {' AND '.join(conditions)}" if conditions else ""
    limit = draw(st.sampled_from(["", "LIMIT 1", "LIMIT 3", "LIMIT 4 OFFSET 2", "LIMIT 0"]))
    form = draw(st.sampled_from(["rows", "aggregate", "subquery", "join", "distinct", "twice"]))
    order = draw(_ORDERS)
    if form == "rows":
        columns = draw(st.sampled_from(["*", "item, note", "_ts, price"]))
        return f"SELECT {columns} FROM bid b {where} {order} {limit}"
    if form == "aggregate":
        return f"SELECT item, count(*), max(_ts) FROM bid b {where} GROUP BY item ORDER BY item {limit}"
    if form == "subquery":
        return f"SELECT count(*), sum(price) FROM (SELECT * FROM bid b {where} {order} {limit})"
    if form == "distinct":
        return f"SELECT DISTINCT item FROM bid b {where} ORDER BY item {limit}"
    if form == "twice":
        more = "AND" if where else "WHERE"
        return f"SELECT count(*) FROM bid b {where} {more} item < (SELECT max(item) FROM bid)"
    kind = draw(st.sampled_from(["JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"]))
    qualified = re.sub(r"(?<![.\w])(_ts|item|price|note)\b", r"b.\1", where)
    return f"SELECT count(*), sum(c.price) FROM bid b {kind} bid c ON b.item = c.item {qualified}"


@pytest.mark.slow_cpu
@settings(max_examples=60)
@given(_EPOCHS, _questions(), st.integers(1, 3))
@example([[(3, 1)], [(3, 1)], [(3, 0)]], "SELECT * FROM bid b ORDER BY _ts DESC, item LIMIT 1", 1)
def test_an_ad_hoc_query_with_pushdown_returns_the_rows_of_a_full_scan(
    epochs: list[Rows], sql: str, extents: int
) -> None:
    from slicemill.server.adhoc import ask as question_rows

    before = question_rows._FIRST_ROWS
    question_rows._FIRST_ROWS = 2  # a small first block, so that few rows need many reads
    try:
        with _log(epochs, extents) as log:
            relation = LogRelation(log)
            assert _tuples(ask(sql, lambda _: relation)) == _over_all(sql, log)
    finally:
        question_rows._FIRST_ROWS = before


_HUNDRED = [[(second, second % 3)] for second in range(100)]


@pytest.mark.parametrize(
    ("sql", "most"),
    [
        ("SELECT * FROM bid WHERE _ts >= TIMESTAMP '1970-01-01 00:01:30'", 10),
        ("SELECT count(*) FROM bid WHERE _ts <= TIMESTAMP '1970-01-01 00:00:04'", 5),
        ("SELECT * FROM bid WHERE _ts >= now() - INTERVAL 5 MINUTES", 0),
        ("SELECT * FROM bid WHERE _ts >= $1", 10),
        ("SELECT * FROM bid LIMIT 0", 0),
        ("SELECT * FROM (SELECT item FROM bid WHERE price > 0) LIMIT 0", 0),
    ],
)
def test_time_bounds_skip_log_epochs(sql: str, most: int) -> None:
    with _log(_HUNDRED) as log:
        counted = CountingLog(log)
        values = ["1970-01-01 00:01:30"] if "$1" in sql else []
        ask(sql, lambda _: LogRelation(counted), parameters=values)  # type: ignore[arg-type]
        assert counted.rows <= most


@pytest.mark.parametrize("compress", [False, True])
def test_newest_rows_are_read_without_older_epochs(compress: bool) -> None:
    many = [[(second, item % 7) for item in range(1000)] for second in range(50)]
    with _log(many, compress=compress) as log:
        counted = CountingLog(log)
        found = ask("SELECT item FROM bid ORDER BY _ts DESC LIMIT 10", lambda _: LogRelation(counted))  # type: ignore[arg-type]
        assert found.num_rows == 10
        assert counted.rows <= 10_000
        assert counted.columns_read == {"_ts", "item"}


def test_a_search_for_a_rare_row_continues_into_older_epochs() -> None:
    rare = [[(second, int(second == 7)) for _ in range(500)] for second in range(60)]
    sql = "SELECT _ts FROM bid WHERE item = 1 ORDER BY _ts DESC LIMIT 2"
    with _log(rare) as log:
        assert _tuples(ask(sql, lambda _: LogRelation(log))) == _over_all(sql, log)


def test_an_unknown_column_is_reported_before_rows_are_read() -> None:
    with _log(_HUNDRED) as log:
        counted = CountingLog(log)
        with pytest.raises(SlicemillError, match="price"):
            ask("SELECT prise FROM bid", lambda _: LogRelation(counted))  # type: ignore[arg-type]
        assert counted.rows == 0


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT b FROM bid b",
        "SELECT COLUMNS('i.*') FROM bid",
        "SELECT * FROM bid a NATURAL JOIN bid b",
        "FROM bid",
    ],
)
def test_references_to_whole_rows_read_every_column(sql: str) -> None:
    assert pushdowns_of(parse_query(sql))["bid"].columns is None


def test_asof_and_positional_joins_read_every_row() -> None:
    for join in ("ASOF JOIN item c ON b._ts >= c._ts", "POSITIONAL JOIN item c"):
        needs = pushdowns_of(parse_query(f"SELECT 1 FROM bid b {join} WHERE b._ts > TIMESTAMP '2026-01-01'"))
        assert needs["bid"].first == ()


def test_timestamps_are_utc_in_every_server_time_zone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "America/Los_Angeles")
    found = ask("SELECT CAST(TIMESTAMPTZ '2026-01-01 00:00:00+00' AS TIMESTAMP) AS t", _nothing)
    assert str(found.column("t")[0].as_py())[:19] == "2026-01-01 00:00:00"


def _nothing(name: str) -> LogRelation:
    raise AssertionError(name)


def test_a_changelog_table_is_updated_epoch_by_epoch() -> None:
    from slicemill.types import BIGINT, CHANGE, OP, Column, Schema

    schema = Schema((Column(OP, CHANGE), Column("k", BIGINT), Column("v", BIGINT)), key=("k",))
    stored = pa.schema([(OP, pa.int8()), ("k", pa.int64()), ("v", pa.int64())])
    with tempfile.TemporaryDirectory() as folder:
        home = Home(Path(folder) / "home")
        home.open()
        home.commit(Change(created={"sums": stored}))
        log, writer, tables = home.logs["sums"], SegmentWriters("w"), ChangelogTables()
        read: list[int] = []
        whole = log.read

        def noted(epoch: Epoch, needed: frozenset[str] = frozenset()) -> pa.Table:
            read.append(epoch.number)
            return whole(epoch, needed)

        log.read = noted  # type: ignore[method-assign]
        for number, (op, key, value) in enumerate([(0, 1, 5), (0, 2, 6), (3, 1, 5), (0, 3, 7), (0, 1, 8)]):
            columns = [[number], [number], [0], [op], [key], [value]]
            full = with_system_columns(stored)
            table = pa.table([pa.array(v, f.type) for v, f in zip(columns, full, strict=True)], schema=full)
            extent = writer.append(log.folder, table)
            home.commit(Change(logs={"sums": Appended([extent], number, number, 0)}))
            tables.now(log, schema)
        assert tables.now(log, schema).select(["k", "v"]).to_pylist() == [
            {"k": 2, "v": 6},
            {"k": 3, "v": 7},
            {"k": 1, "v": 8},
        ]
        assert len(read) == len(set(read)) == 5
        home.close()


def test_an_ad_hoc_query_cannot_reconfigure_duckdb() -> None:
    with pytest.raises(SlicemillError, match="one SELECT"):
        ask("SET memory_limit = '100GB'", _nothing)


def test_a_view_of_a_stream_without_readers_can_be_queried(user: UserSession, service: MillService) -> None:
    user.execute("CREATE VIEW last_two AS SELECT item, price FROM bid [ROWS 2]")
    bid(service, (1, 5, 1), (2, 20, 2), (3, 7, 3))
    (answer,) = user.execute("SELECT item FROM last_two ORDER BY item")
    assert answer.table is not None
    assert answer.table.to_pylist() == [{"item": 2}, {"item": 3}]
    user.execute("DROP VIEW last_two")
    assert "last_two" not in service.mill.home.logs
