"""Every operator, cast and function gives the values Spark gives, over edge cases and seeded random rows.

An expression is one text, valid in ESL and in Spark SQL. Where ours has no value (overflow, a text that is no
number), Spark must have none either.
"""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from sqlglot import exp

from scalar.spark_cases import CASES, DEVIATIONS, SCHEMA, rows
from slicemill.esl.binder.scalar import bind
from slicemill.esl.syntax.dialect import parse
from slicemill.esl.types.expression import ColumnRef, Expr, walk
from slicemill.esl.types.schema import Column, Kind
from slicemill.scalar.rows import ExpressionError, compile_expression
from slicemill.scalar.signatures import SCALARS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = 100  # columns of one query
INPUT = rows(seed=20_260_131)


class Columns:
    """The environment in which the texts are bound: nothing but columns."""

    def column(self, node: exp.Column) -> Expr:
        found = SCHEMA.find(node.name)
        assert found is not None, node.name
        return ColumnRef(found.name, found.type)

    def call(self, node: exp.Anonymous) -> None:
        return None

    def call_names(self) -> list[str]:
        return []


def texts() -> list[str]:
    return [text.strip() for line in CASES.strip().split("\n") for text in line.split(";") if text.strip()]


def bound(text: str) -> Expr:
    (select,) = parse(f"SELECT {text} AS x FROM T")
    return bind(select.expressions[0].this, Columns())  # type: ignore[arg-type]


def attempts(expr: Expr) -> list[object]:
    """The value for each row, or the error."""
    compiled = compile_expression(expr, SCHEMA)

    def attempt(row: tuple[object, ...]) -> object:
        try:
            return compiled(row)
        except ExpressionError as error:
            return error

    return [attempt(row) for row in INPUT]


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.parser.escapedStringLiterals": "true",  # ESL has no escapes in texts
        "spark.sql.legacy.literal.pickMinimumPrecision": "false",  # an INT is an INT, also beside a DECIMAL
        "spark.sql.variable.substitute": "false",  # ${name} stands in a pattern
        "spark.sql.codegen.wholeStage": "false",  # hundreds of columns: compiling them takes longest
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    # A small Arrow table becomes a relation of constants, over which Spark needs no job.
    values = zip(SCHEMA, zip(*INPUT, strict=True), strict=True)
    arrays = {column.name: pa.array(list(given), _raw_type(column)) for column, given in values}
    table = pa.table({"id": pa.array(range(len(INPUT)), pa.int32()), **arrays})
    spark.createDataFrame(table).createOrReplaceTempView("raw_rows")
    typed = ", ".join(_FROM_RAW.get(c.type.kind, "{0}").format(c.name) + f" AS {c.name}" for c in SCHEMA)
    spark.sql(f"SELECT id, {typed} FROM raw_rows").createOrReplaceTempView("rows")
    yield spark
    for view in ("rows", "raw_rows"):
        spark.catalog.dropTempView(view)
    for key, value in before.items():
        spark.conf.set(key, value)


# Python's datetime cannot hold all of Spark's times: they travel as numbers.
def _raw_type(column: Column) -> pa.DataType:
    if column.type.kind is Kind.DECIMAL:
        return pa.decimal128(column.type.precision, column.type.scale)
    return _RAW[column.type.kind]


_RAW = {
    Kind.BOOLEAN: pa.bool_(),
    Kind.DOUBLE: pa.float64(),
    Kind.VARCHAR: pa.string(),
    **dict.fromkeys((Kind.INT, Kind.DATE, Kind.MONTHS), pa.int32()),
    **dict.fromkeys((Kind.BIGINT, Kind.TIMESTAMP, Kind.INTERVAL), pa.int64()),
}
_FROM_RAW = {
    Kind.TIMESTAMP: "timestamp_micros({0})",
    Kind.DATE: "date_from_unix_date({0})",
    Kind.INTERVAL: "timestamp_micros({0}) - timestamp_micros(0)",
    Kind.MONTHS: "make_ym_interval(0, {0})",
}
_TO_RAW = {
    Kind.TIMESTAMP: "unix_micros({0})",
    Kind.DATE: "unix_date({0})",
    Kind.MONTHS: "12 * extract(YEAR FROM {0}) + extract(MONTH FROM {0})",
}


def same(ours: object, theirs: object) -> bool:
    if isinstance(theirs, timedelta):
        theirs = (theirs.days * 86_400 + theirs.seconds) * 1_000_000 + theirs.microseconds
    if isinstance(ours, float) and isinstance(theirs, float):
        if math.isnan(ours) or math.isnan(theirs):
            return math.isnan(ours) and math.isnan(theirs)
        return ours == theirs or math.isclose(ours, theirs, rel_tol=1e-12)
    if isinstance(ours, Decimal) and isinstance(theirs, Decimal):
        return ours == theirs
    return type(ours) is type(theirs) and ours == theirs


def test_every_function_of_the_library_is_among_the_cases() -> None:
    used = {getattr(node, "function", "") for text in texts() for node in walk(bound(text))}
    assert set(SCALARS) - used == {"begin", "end", "period"}


def answers(session: SparkSession, cases: list[str], expected: dict[str, list[object]]) -> list[list[object]]:
    """Spark's values, a list for each case; NULL where ours has none, so that Spark need not fail."""
    columns = []
    for index, text in enumerate(cases):
        failing = [str(n) for n, value in enumerate(expected[text]) if isinstance(value, ExpressionError)]
        guarded = (
            f"CASE WHEN id NOT IN ({', '.join(failing)}) THEN {shown(text)} END" if failing else shown(text)
        )
        columns.append(f"{guarded} AS c{index}")
    found = session.sql(f"SELECT {', '.join(columns)} FROM rows").collect()
    return [list(values) for values in zip(*found, strict=True)]


def shown(text: str) -> str:
    """An expression in SQL, in a form that Python can hold."""
    return _TO_RAW.get(bound(text).type.kind, "{0}").format(f"({text})")


def collected(session: SparkSession, sql: str) -> list[tuple[object, ...]] | None:
    """Spark's rows, or None where it fails: some errors of its expressions come as bare Java exceptions."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        return session.sql(sql).collect()
    except (PySparkException, Py4JError):
        return None


def test_values_are_those_of_spark(table: SparkSession) -> None:
    cases = texts()
    expected = {text: attempts(bound(text)) for text in cases}
    different = []
    for start in range(0, len(cases), BATCH):
        batch = cases[start : start + BATCH]
        for text, values in zip(batch, answers(table, batch, expected), strict=True):
            for row, ours, theirs in zip(INPUT, expected[text], values, strict=True):
                if not isinstance(ours, ExpressionError) and not same(ours, theirs):
                    different.append(f"{text}: ours {ours!r}, Spark {theirs!r}, {_inputs(text, row)}")
    assert not different, "\n".join(different)


def test_decimals_have_the_scale_of_their_type() -> None:
    for text in texts():
        type_ = bound(text).type
        for value in attempts(bound(text)) if type_.kind is Kind.DECIMAL else ():
            if isinstance(value, Decimal):
                assert value.as_tuple().exponent == -(type_.scale or 0), text


@pytest.mark.parametrize("text", DEVIATIONS)
def test_a_known_deviation_is_one_still(table: SparkSession, text: str) -> None:
    """So that the list shrinks when Spark or we change."""
    ours = attempts(bound(text))
    theirs = collected(table, f"SELECT {shown(text)} FROM rows")
    assert theirs is None or not all(same(a, b[0]) for a, b in zip(ours, theirs, strict=True))


def _inputs(text: str, row: tuple[object, ...]) -> str:
    read = {node.name for node in walk(bound(text)) if isinstance(node, ColumnRef)}
    return ", ".join(f"{name}={row[SCHEMA.index(name)]!r}" for name in sorted(read))


def test_what_has_no_value_here_has_none_in_spark(table: SparkSession) -> None:
    rng = random.Random(7)
    evaluated = []
    for text in texts():
        failing = [n for n, value in enumerate(attempts(bound(text))) if isinstance(value, ExpressionError)]
        if not failing:
            continue
        chosen = rng.choice(failing)
        answer = collected(table, f"SELECT {shown(text)} FROM rows WHERE id = {chosen}")
        if answer is not None:
            evaluated.append(f"{text}: Spark {answer}, {_inputs(text, INPUT[chosen])}")
    assert not evaluated, "\n".join(evaluated)
