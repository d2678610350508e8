"""Values of every operator, cast and function against Spark, by row and by column.

An expression is one text, valid in ESL and in Spark SQL, over edge cases and seeded random rows. Where
slicemill has no value (overflow, a text that is no number), Spark must have none either.
"""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest

from scalar.evaluation import INPUT, TEXTS, bound, by_row, differences, inputs, names_in, same
from scalar.random_calls import NAMES, RELATIONS
from scalar.spark_cases import DEVIATIONS, SCHEMA
from slicemill.functions.lists import LISTS
from slicemill.functions.values import ExpressionError
from slicemill.types import Column, Kind

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BATCH = 100  # number of columns in one query
# Spark has no periods; `test_periods` covers these functions.
OURS = {"begin", "end", "period", "whole_units", *RELATIONS} - {"contains"}


@pytest.fixture(scope="module")
def table(spark: SparkSession) -> Iterator[SparkSession]:
    settings = {
        "spark.sql.parser.escapedStringLiterals": "true",  # ESL has no escapes in string literals
        "spark.sql.legacy.literal.pickMinimumPrecision": "false",  # INT literals stay INT beside a DECIMAL
        "spark.sql.variable.substitute": "false",  # ${name} occurs in a pattern
        "spark.sql.codegen.wholeStage": "false",  # compilation of hundreds of columns would take longest
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    }
    before = {key: spark.conf.get(key) for key in settings}
    for key, value in settings.items():
        spark.conf.set(key, value)
    # Spark turns a small Arrow table into a relation of constants, which needs no job.
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


# Python's datetime cannot hold all of Spark's timestamps, so numbers represent them.
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


@pytest.fixture(scope="module")
def answers(table: SparkSession) -> dict[str, list[object]]:
    """Return Spark's values of each case; NULL where slicemill has no value, so that Spark need not fail."""
    found: dict[str, list[object]] = {}
    for start in range(0, len(TEXTS), BATCH):
        cases = TEXTS[start : start + BATCH]
        columns = ", ".join(f"{guarded(text)} AS c{index}" for index, text in enumerate(cases))
        values = table.sql(f"SELECT {columns} FROM rows").collect()
        found |= zip(cases, map(list, zip(*values, strict=True)), strict=True)
    return found


def guarded(text: str) -> str:
    failing = ", ".join(map(str, _failing(text)))
    return f"CASE WHEN id NOT IN ({failing}) THEN {shown(text)} END" if failing else shown(text)


def shown(text: str) -> str:
    """Return an SQL expression whose value Python can hold."""
    return _TO_RAW.get(bound(text).type.kind, "{0}").format(f"({text})")


@pytest.fixture(scope="module")
def attempts(table: SparkSession) -> dict[str, list[tuple[object] | None]]:
    """Return Spark's values of deviations and of cases that fail here, by row; None where Spark fails, too.

    One query evaluates all cases. Spark's own expression for `try_` functions catches the failures.
    """
    from pyspark.sql import Column

    cases = [*DEVIATIONS, *(text for text in TEXTS if _failing(text))]
    jvm, parser = table._jvm, table._jsparkSession.sessionState().sqlParser()
    assert jvm is not None

    def attempt(text: str, name: str) -> Column:
        # A NULL value is a struct that contains NULL; a failure is no struct.
        tried = jvm.org.apache.spark.sql.catalyst.expressions.TryEval(
            parser.parseExpression(f"named_struct('value', {shown(text)})")
        )
        return Column(jvm.org.apache.spark.sql.classic.ExpressionUtils.column(tried)).alias(name)

    columns = [attempt(text, f"c{number}") for number, text in enumerate(cases)]
    values = table.table("rows").orderBy("id").select(*columns).collect()
    return dict(zip(cases, map(list, zip(*values, strict=True)), strict=True))


def _failing(text: str) -> list[int]:
    """Return the numbers of the rows for which a case has no value here."""
    return [number for number, value in enumerate(by_row(text)) if isinstance(value, ExpressionError)]


def test_every_function_occurs_in_the_cases() -> None:
    used = frozenset[str]().union(*map(names_in, TEXTS))
    assert {*NAMES, *LISTS} - used == OURS


@pytest.mark.parametrize("name", [name for name in (*NAMES, *LISTS) if name not in OURS])
def test_values_equal_those_of_spark(answers: dict[str, list[object]], name: str) -> None:
    cases = [text for text in TEXTS if name in names_in(text)]
    different = [line for text in cases for line in differences(text, answers[text])]
    assert not different, "\n".join(different)


def test_decimals_have_the_scale_of_their_type() -> None:
    for text in TEXTS:
        type_ = bound(text).type
        for value in by_row(text) if type_.kind is Kind.DECIMAL else ():
            if isinstance(value, Decimal):
                assert value.as_tuple().exponent == -(type_.scale or 0), text


@pytest.mark.parametrize("text", DEVIATIONS)
def test_each_known_deviation_from_spark_still_deviates(
    attempts: dict[str, list[tuple[object] | None]], text: str
) -> None:
    """The list shrinks when Spark or slicemill changes."""
    agreeing = [
        theirs is None if isinstance(ours, ExpressionError) else theirs is not None and same(ours, theirs[0])
        for ours, theirs in zip(by_row(text), attempts[text], strict=True)
    ]
    assert not all(agreeing)


def test_a_case_without_a_value_has_none_in_spark(attempts: dict[str, list[tuple[object] | None]]) -> None:
    evaluated = [
        f"{text}: Spark {theirs[number]}, {inputs(text, INPUT[number])}"
        for text, theirs in attempts.items()
        if text not in DEVIATIONS
        for number in _failing(text)
        if theirs[number] is not None
    ]
    assert not evaluated, "\n".join(evaluated)
