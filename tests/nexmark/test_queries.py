"""Queries of examples/nexmark, all in one engine, against DuckDB over the same events at their end."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from slicemill.api.mill import Mill
from slicemill.binder import bind
from slicemill_lab.bench.inputs.nexmark_answers import ANSWERS, OFFER
from slicemill_lab.bench.inputs.nexmark_queries import ARRIVING, NAMES, event_tables, script
from support.changelogs import Row, TableOfNow, same_rows
from support.engine import Clock, finish, inline_pool

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples/nexmark"
FILES = {path.stem: path for path in sorted(FOLDER.glob("*.esl"))}
EVENTS, RUNS, RATE = 3_000, 10, 47
SECOND = 1_000_000
EPOCH = datetime(1970, 1, 1)
# Events begin shortly before midnight; the second half follows in the next evening, around 19:00.
START = int(datetime(2026, 1, 31, 23, 59, 30, tzinfo=UTC).timestamp()) * SECOND
LATER = (18 * 3600 + 59 * 60) * SECOND
TIMES = ("ts", "expires")


def events(stream: str, first: int, last: int) -> pa.Table:
    rows = event_tables(first, last, RATE, START)[stream]
    for place, name in enumerate(rows.column_names):
        if name in TIMES and first >= EVENTS // 2:
            shifted = pc.add(rows[name].cast(pa.int64()), LATER).cast(rows.schema.field(name).type)
            rows = rows.set_column(place, name, shifted)
    return rows


@pytest.fixture(scope="module")
def played(
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[tuple[Mill, duckdb.DuckDBPyConnection, Path]]:
    """Yield an engine after the end of all queries, tables of its input, and the folder of its files."""
    folder = tmp_path_factory.mktemp("nexmark")
    (folder / "examples/nexmark").mkdir(parents=True)
    shutil.copy(FOLDER / "side.csv", folder / "examples/nexmark")
    clock = Clock(START)
    with Mill(
        home=folder / "home",
        folder=folder,
        subtasks=2,
        keep_s=7 * 86_400,
        clock=clock,
        pool=inline_pool(),
        read_sources=False,
    ) as mill:
        mill.execute(script(ROOT))
        mill.open()
        come: dict[str, list[pa.Table]] = {"person": [], "auction": [], "bid": []}
        size = EVENTS // RUNS
        for first in range(0, EVENTS, size):
            new = {stream: events(stream, first, first + size) for stream in come}
            clock.now = pc.max(new["bid"]["ts"].cast(pa.int64())).as_py()
            for stream, rows in new.items():
                mill.feed(stream, rows)
                come[stream].append(rows)
            mill.feed(ARRIVING, new["bid"].select(["auction", "bidder", "price"]))
            come["bid"][-1] = new["bid"].append_column("arrived", pa.array([clock.now] * len(new["bid"])))
            mill.dispatcher.admit_handed()
            mill.dispatcher.run_all()
        finish(mill)
        with duckdb.connect(config={"threads": 1}) as database:
            database.execute("SET TimeZone = 'UTC'")
            for stream, tables in come.items():
                arrow = pa.concat_tables(tables)
                database.register("arrow", arrow)
                times = ", ".join(
                    f"{name}::timestamp AS {name}" for name in TIMES if name in arrow.column_names
                )
                database.execute(f"CREATE TABLE {stream} AS SELECT * REPLACE ({times}) FROM arrow")
            database.execute("ALTER TABLE bid ALTER arrived TYPE timestamp USING make_timestamp(arrived)")
            database.execute(f"CREATE TABLE side AS FROM '{FOLDER / 'side.csv'}'")
            database.execute(OFFER)
            yield mill, database, folder


def answer(database: duckdb.DuckDBPyConnection, sql: str) -> list[Row]:
    found = database.execute(sql).fetchall()
    return [tuple(_micros(value) for value in row) for row in found]


def _micros(value: object) -> object:
    if not isinstance(value, datetime):
        return value
    passed = value.replace(tzinfo=None) - EPOCH
    return (passed.days * 86_400 + passed.seconds) * SECOND + passed.microseconds


@pytest.mark.parametrize("name", FILES)
def test_each_file_binds_alone_and_has_the_query_of_its_name(name: str) -> None:
    assert list(bind(FILES[name].read_text()).catalog.queries) == [name]


def test_there_are_24_queries_each_with_an_expected_answer() -> None:
    assert tuple(FILES) == tuple(ANSWERS) == NAMES


@pytest.mark.parametrize("name", FILES)
def test_the_net_effect_of_changes_equals_sql_over_all_events(
    name: str, played: tuple[Mill, duckdb.DuckDBPyConnection, Path]
) -> None:
    mill, database, _ = played
    query = mill.queries[name]
    assert query.error is None, query.error
    table = TableOfNow(mill.catalog.queries[name].schema)
    for timed in query.rows():
        table.apply(timed.ts, timed.row)
    table.check_key()
    expected = answer(database, ANSWERS[name])
    assert len(expected) > 1, "a check that can fail"
    assert same_rows(table.rows, expected), (table.rows.total(), len(expected))


def test_bids_are_in_the_files_of_their_sink(played: tuple[Mill, duckdb.DuckDBPyConnection, Path]) -> None:
    mill, database, folder = played
    mill.close()
    written = answer(
        database, f"SELECT auction, bidder, price, ts, day, minute FROM '{folder}/out/nexmark/q10/*.parquet'"
    )
    assert sorted(map(repr, written)) == sorted(map(repr, answer(database, ANSWERS["q10"])))
