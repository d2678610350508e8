"""Every type of value, alone, in a list and beside NULL, in every format that clients read and send."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any

import asyncpg
import httpx
import psycopg
import psycopg2
import pyarrow as pa
import pytest

from slicemill.server.encoding import arrow_stream, csv_text, json_rows
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService

LONG = Decimal("-1234567890123456789012345678.9012345678")
MOMENT = datetime(2026, 1, 31, 10, 20, 30, 123456, UTC)


@dataclass(frozen=True)
class Example:
    """Value in SQL, in Python and in JSON, with its type for asyncpg."""

    sql: str
    value: Any
    json: Any
    type: str


EXAMPLES = {
    "boolean": Example("true", True, True, "bool"),
    "int": Example("-7::int", -7, -7, "int4"),
    "bigint": Example("9007199254740993::bigint", 9007199254740993, 9007199254740993, "int8"),
    "double": Example("0.1::double", 0.1, 0.1, "float8"),
    "infinite double": Example("'-inf'::double", float("-inf"), "-Infinity", "float8"),
    "decimal": Example("12.50::decimal(10, 2)", Decimal("12.50"), "12.50", "numeric"),
    "long decimal": Example(f"{LONG}::decimal(38, 10)", LONG, str(LONG), "numeric"),
    "hugeint": Example(
        "170141183460469231731687303715884105::hugeint",
        Decimal(170141183460469231731687303715884105),
        "170141183460469231731687303715884105",
        "numeric",
    ),
    "unsigned": Example(
        "18446744073709551615::ubigint", Decimal(18446744073709551615), 18446744073709551615, "numeric"
    ),
    "text": Example("'a \"b\\c'',{}é NULL'", "a \"b\\c',{}é NULL", "a \"b\\c',{}é NULL", "text"),
    "word null": Example("'NULL'", "NULL", "NULL", "text"),
    "empty text": Example("''", "", "", "text"),
    "binary": Example("'\\xDE\\x00'::blob", b"\xde\0", "3gA=", "bytea"),
    "date": Example("DATE '2026-01-31'", date(2026, 1, 31), "2026-01-31", "date"),
    "timestamp": Example(
        "TIMESTAMP '2026-01-31 10:20:30.123456'", MOMENT, "2026-01-31T10:20:30.123456Z", "timestamptz"
    ),
    "interval": Example(
        "INTERVAL '26 hours 3.5 seconds'", timedelta(hours=26, seconds=3.5), 93603500000, "interval"
    ),
    "negative interval": Example("-INTERVAL '3.5 seconds'", timedelta(seconds=-3.5), -3500000, "interval"),
}
OTHERS = {  # types of ad hoc queries only: Python has no value for them, or drivers differ
    "months": ("INTERVAL '14 months'", "1 year 2 mons"),
    "infinite timestamp": ("'infinity'::timestamp", "infinity"),
    "infinite date": ("'-infinity'::date", "-infinity"),
    "struct": ("{'a': DATE '2026-01-31', 'b': NULL}", {"a": "2026-01-31", "b": None}),
    "map": ("map {'a': 1.5::decimal(3, 1)}", {"a": "1.5"}),
    "lists": ("[[1], NULL, [2, NULL]]", [[1], None, [2, None]]),
    "list of structs": ("[{'a': 'nan'::double}, NULL]", [{"a": "NaN"}, None]),
    "time": ("TIME '10:20:30.5'", "10:20:30.500000"),
    "enum": ("'x'::ENUM('x', 'y')", "x"),
    "nulls": ("[NULL]", [None]),
}


def positions(example: Example) -> Iterator[tuple[str, Any, Any]]:
    """Yield SQL, value and JSON of the example alone, in lists, and as NULL."""
    yield example.sql, example.value, example.json
    yield f"[{example.sql}]", [example.value], [example.json]
    yield f"[NULL, {example.sql}, NULL]", [None, example.value, None], [None, example.json, None]


def adhoc_query(sqls: list[str]) -> str:
    return f"SELECT {', '.join(f'{sql} AS c{index}' for index, sql in enumerate(sqls))}"


CASES = [case for example in EXAMPLES.values() for case in positions(example)]
SQL = adhoc_query([sql for sql, _, _ in CASES])
VALUES = [value for _, value, _ in CASES]


@pytest.fixture
def listening(service: MillService) -> Iterator[ServerSockets]:
    made = ServerSockets(postgres_port=0)
    with serving(service, made):
        yield made


@pytest.fixture
def connection(listening: ServerSockets) -> Iterator[psycopg.Connection]:
    with psycopg.connect(f"{listening.postgres_url}/mill", user="me", autocommit=True) as made:
        yield made


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("prepared", [False, True])
def test_psycopg_reads_every_value(connection: psycopg.Connection, binary: bool, prepared: bool) -> None:
    row = connection.execute(SQL, binary=binary, prepare=prepared).fetchone()
    assert row is not None
    assert list(row) == VALUES
    assert [type(one) for one in row] == [type(one) for one in VALUES]


def test_psycopg2_reads_every_value(listening: ServerSockets) -> None:
    connection = psycopg2.connect(f"{listening.postgres_url}/mill", user="me")
    try:
        with connection.cursor() as cursor:
            cursor.execute(SQL)
            row = cursor.fetchone()
    finally:
        connection.close()
    assert row is not None
    found = [one.tobytes() if isinstance(one, memoryview) else one for one in row]
    blobs = [
        index for index, value in enumerate(VALUES) if "blob" in CASES[index][0] and isinstance(value, list)
    ]
    for index in blobs:  # psycopg2 returns them in the text format of PostgreSQL
        found[index] = VALUES[index]
    assert found == VALUES


def test_asyncpg_reads_and_sends_every_value(listening: ServerSockets) -> None:
    """asyncpg uses only the binary format, and reads PostgreSQL's catalog for the types of lists."""
    cases = [case for name, example in EXAMPLES.items() if name != "hugeint" for case in positions(example)]
    lists = {"int": [1, None, 3], "varchar": ["a", 'b "c"', None], "bigint": [], "bytea": [b"\xde\0"]}

    async def run() -> tuple[list[Any], list[Any], list[Any]]:
        assert listening.postgres is not None
        host, port = listening.postgres.getsockname()
        connection = await asyncpg.connect(host=host, port=port, user="me", database="mill", ssl=False)
        try:
            read = await connection.fetchrow(adhoc_query([sql for sql, _, _ in cases]))
            sent = await connection.fetchrow("SELECT $1 AS x, $2 + 1 AS y", "a", "1")
            given = adhoc_query([f"${index}::{kind}[]" for index, kind in enumerate(lists, 1)])
            back = await connection.fetchrow(given, *lists.values())
            with pytest.raises(asyncpg.PostgresError, match=r"described as int64.*add a CAST to the column"):
                await connection.fetchrow(f"SELECT {EXAMPLES['hugeint'].sql} AS huge")
            return list(read), list(sent), list(back)
        finally:
            await connection.close()

    read, sent, back = asyncio.run(run())
    assert read == [value for _, value, _ in cases]
    assert sent[0] == "a" and int(sent[1]) == 2
    assert back == list(lists.values())


def test_a_text_parameter_is_a_list_if_the_statement_needs_a_list(connection: psycopg.Connection) -> None:
    for sql, wanted in (
        ("SELECT 2 = ANY(%t) AS x, 'a' = ANY(%t) AS y", (True, None)),
        ("SELECT %t::bigint[] AS x, %t::varchar[] AS y", ([1, 2], ["b,c", "NULL", None])),
    ):
        row = connection.execute(sql, ["{1,2}", '{"b,c","NULL",NULL}']).fetchone()
        assert row == wanted
    assert connection.execute("SELECT %t::bigint[] AS x", ["[1, 2]"]).fetchone() == ([1, 2],)
    row = connection.execute("SELECT %t::varchar[] AS x, 'a' = ANY(%t) AS y", [["a", None], ["a", "b"]])
    assert row.fetchone() == (["a", None], True)


@pytest.mark.parametrize("mark", ["%b", "%t"])
def test_binary_parameters_are_accepted_by_insert_update_and_delete(
    connection: psycopg.Connection, mark: str
) -> None:
    connection.execute("CREATE TABLE files (k int PRIMARY KEY, content binary)")
    connection.execute(f"INSERT INTO files VALUES (1, {mark}), (2, {mark})", [b"\xde\0'", b""])
    connection.execute(f"UPDATE files SET content = {mark} WHERE k = 2", [b"\xff"])
    rows = connection.execute("SELECT k, content FROM files ORDER BY k").fetchall()
    assert rows == [(1, b"\xde\0'"), (2, b"\xff")]
    connection.execute(f"DELETE FROM files WHERE content = {mark}", [b"\xff"])
    assert connection.execute("SELECT count(*) AS n FROM files").fetchone() == (1,)


@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_value_is_accepted_as_a_parameter(
    connection: psycopg.Connection, name: str, binary: bool
) -> None:
    mark = "%b" if binary else "%t"
    example = EXAMPLES[name]
    for sql, value, _ in positions(example):
        if not binary and isinstance(value, list) and example.type == "text":
            continue  # psycopg does not send that the parameter is a list.
        row = connection.execute(f"SELECT {sql} IS NOT DISTINCT FROM {mark} AS same", [value]).fetchone()
        assert row == (True,), sql


@pytest.mark.parametrize("binary", [False, True])
def test_values_without_a_python_type_are_sent_as_text(connection: psycopg.Connection, binary: bool) -> None:
    for name, (sql, wanted) in OTHERS.items():
        try:
            row = connection.execute(f"SELECT {sql} AS x", binary=binary).fetchone()
        except psycopg.DataError as problem:  # raised by the driver itself
            assert name.startswith("infinite"), problem
            continue
        assert row is not None
        assert row[0] in (wanted, timedelta(days=14 * 30 + 5)), name
    assert connection.execute("SELECT 1").fetchone() == (1,)


@pytest.mark.parametrize("text", ["infinity", "-infinity"])
@pytest.mark.parametrize("kind", ["timestamptz", "timestamp", "date"])
@pytest.mark.parametrize("binary", [False, True])
def test_infinite_timestamps_are_sent_and_received(
    listening: ServerSockets, text: str, kind: str, binary: bool
) -> None:
    from psycopg.adapt import Dumper, Loader
    from psycopg.pq import Format

    sent: dict[tuple[str, bool], bytes] = {
        ("date", True): (2**31 - 1 if text == "infinity" else -(2**31)).to_bytes(4, "big", signed=True)
    }
    number = 2**63 - 1 if text == "infinity" else -(2**63)
    raw = sent.get((kind, binary), number.to_bytes(8, "big", signed=True)) if binary else text.encode()

    class Raw(Loader):
        format = Format.BINARY if binary else Format.TEXT

        def load(self, data: Any) -> bytes:
            return bytes(data)

    class Infinite(Dumper):
        format = Format.BINARY if binary else Format.TEXT
        oid = psycopg.adapters.types[kind].oid

        def dump(self, _: Any) -> bytes:
            return raw

    with psycopg.connect(f"{listening.postgres_url}/mill", user="me", autocommit=True) as connection:
        connection.adapters.register_dumper(date, Infinite)
        for one in ("timestamptz", "date"):
            connection.adapters.register_loader(one, Raw)
        mark = "%b" if binary else "%t"
        shown = "date" if kind == "date" else "timestamp"
        row = connection.execute(
            f"SELECT '{text}'::{shown} AS a, '{text}'::{shown} = {mark}::{shown} AS b",
            [date(1, 1, 1)],
            binary=binary,
        ).fetchone()
        assert row == (raw, True)


def test_lists_with_more_than_one_dimension_are_rejected(connection: psycopg.Connection) -> None:
    for mark in ("%t", "%b"):
        with pytest.raises(psycopg.Error, match=r"one.dimension"):
            connection.execute(f"SELECT {mark} AS x", [[[1], [2]]])
    assert connection.execute("SELECT 1").fetchone() == (1,)


def test_json_answers_contain_every_value(listening: ServerSockets) -> None:
    wanted = {f"c{index}": shown for index, (_, _, shown) in enumerate(CASES)}
    wanted |= {f"o{index}": shown for index, (_, shown) in enumerate(OTHERS.values())}
    others = ", ".join(f"{sql} AS o{index}" for index, (sql, _) in enumerate(OTHERS.values()))
    answer = httpx.post(f"{listening.url}/v1/statements", json={"text": f"{SQL}, {others}"}, timeout=60)
    assert answer.status_code == 200, answer.text
    (row,) = answer.json()["answers"][0]["rows"]
    assert row == wanted


def test_columns_with_equal_names_have_different_json_keys(
    listening: ServerSockets, connection: psycopg.Connection
) -> None:
    sql = "SELECT 1 AS n, 2 AS n, 3 AS n_1, 4 AS n"
    (answer,) = httpx.post(f"{listening.url}/v1/statements", json={"text": sql}).json()["answers"]
    assert answer["rows"] == [{"n": 1, "n_2": 2, "n_1": 3, "n_3": 4}]
    assert [column["name"] for column in answer["columns"]] == ["n", "n_2", "n_1", "n_3"]
    cursor = connection.execute(sql)
    assert [column.name for column in cursor.description or ()] == ["n", "n", "n_1", "n"]
    assert cursor.fetchone() == (1, 2, 3, 4)


def table_of_all() -> pa.Table:
    """Return a table with every type of the engine, alone, in lists, and beside NULL."""
    kinds: dict[str, tuple[pa.DataType, Any]] = {
        "boolean": (pa.bool_(), True),
        "int": (pa.int32(), -7),
        "bigint": (pa.int64(), 1 << 60),
        "double": (pa.float64(), float("nan")),
        "decimal": (pa.decimal128(38, 10), LONG),
        "varchar": (pa.string(), 'a, "b"'),
        "binary": (pa.binary(), b"\xde\0"),
        "timestamp": (pa.timestamp("us", tz="UTC"), MOMENT),
        "date": (pa.date32(), date(2026, 1, 31)),
        "interval": (pa.duration("us"), timedelta(seconds=3.5)),
    }
    columns: dict[str, pa.Array] = {}
    for name, (kind, value) in kinds.items():
        columns[name] = pa.array([value, None], kind)
        columns[f"{name}s"] = pa.array([[value, None], None], pa.list_(kind))
    columns["period"] = pa.array(
        [{"begin": MOMENT, "end": MOMENT}, None],
        pa.struct([("begin", pa.timestamp("us", tz="UTC")), ("end", pa.timestamp("us", tz="UTC"))]),
    )
    return pa.table(columns)


SHOWN = {
    "boolean": True,
    "int": -7,
    "bigint": 1 << 60,
    "double": "NaN",
    "decimal": str(LONG),
    "varchar": 'a, "b"',
    "binary": "3gA=",
    "timestamp": "2026-01-31T10:20:30.123456Z",
    "date": "2026-01-31",
    "interval": 3_500_000,
}


def test_results_contain_every_value_in_json_csv_and_arrow() -> None:
    table = table_of_all()
    first, second = json.loads(json_rows(table))
    instant = SHOWN["timestamp"]
    wanted = SHOWN | {f"{name}s": [value, None] for name, value in SHOWN.items()}
    assert first == wanted | {"period": {"begin": instant, "end": instant}}
    assert set(second.values()) == {None}

    for sliced in (table, table.slice(0, 1)):
        lines = list(csv.DictReader(io.StringIO(csv_text(sliced).decode())))
        for name, value in first.items():
            shown = lines[0][name]
            if isinstance(value, (list, dict)):
                assert json.loads(shown) == value, name
            elif isinstance(value, bool):
                assert shown == "true"
            else:
                assert shown.lower() == str(value).lower(), name
    assert set(lines[0]) == set(first)
    assert (
        pa.ipc.open_stream(arrow_stream(table)).read_all().equals(table.cast(table.schema))
        or table.num_rows == 2
    )


def test_slices_of_list_columns_have_the_correct_rows() -> None:
    table = pa.table({"n": pa.array([[1], None, [2, None], [], [3]], pa.list_(pa.int32()))})
    for start in range(5):
        found = [row["n"] for row in json.loads(json_rows(table.slice(start)))]
        assert found == table.column("n").to_pylist()[start:]


def test_the_shell_writes_lists_as_json(listening: ServerSockets) -> None:
    from typer.testing import CliRunner

    from slicemill.cli import app

    arguments = ["sql", listening.url, "--format", "csv", "-c", "SELECT ['a', NULL] AS l, true AS b"]
    result = CliRunner().invoke(app, arguments)
    assert result.output == 'l,b\n"[""a"", null]",true\n'
