"""Result types of functions and operators against those of Spark's analyser."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import product
from typing import TYPE_CHECKING

import pytest

from slicemill import types as t
from slicemill.catalog.expressions import ColumnRef, Expr, Literal
from slicemill.functions.lists import LISTS
from slicemill.functions.signatures import SCALARS, Signature, arithmetic_type, castable, fits, result_type
from slicemill.types import Kind, Type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Analyse = Callable[[list[str]], dict[str, str | None]]

COLUMNS: dict[str, tuple[Type, str]] = {
    "i": (t.INT, "INT"),
    "l": (t.BIGINT, "BIGINT"),
    "d": (t.DOUBLE, "DOUBLE"),
    "m": (t.decimal(10, 2), "DECIMAL(10, 2)"),
    "n": (t.decimal(38, 18), "DECIMAL(38, 18)"),
    "o": (t.decimal(7, 0), "DECIMAL(7, 0)"),
    "s": (t.VARCHAR, "STRING"),
    "b": (t.BOOLEAN, "BOOLEAN"),
    "x": (t.BINARY, "BINARY"),
    "ts": (t.TIMESTAMP, "TIMESTAMP"),
    "dt": (t.DATE, "DATE"),
    "iv": (t.INTERVAL, "INTERVAL DAY TO SECOND"),
    "mo": (t.MONTHS, "INTERVAL YEAR TO MONTH"),
}

# Functions that Spark lacks: period functions, and lists, for which no column exists here.
OURS = {"begin", "end", "period", *LISTS}

# Spark requires a constant there: the number of places determines the type.
CONSTANTS = {("round", 1): ("-3", "0", "1", "5")}

# Types that differ from Spark's, with the reason.
DEVIATIONS = dict.fromkeys(
    ("dt - dt", "dt - NULL", "NULL - dt"),
    "our INTERVAL has no fields: Spark's INTERVAL DAY is the same length of time",
)


@pytest.fixture(scope="module")
def types_in_spark(spark: SparkSession) -> Iterator[Analyse]:
    """Return a function from SQL expressions to their types in Spark; None if Spark rejects an expression."""
    columns = ", ".join(f"CAST(NULL AS {sql}) AS {name}" for name, (_, sql) in COLUMNS.items())
    spark.sql(f"SELECT {columns}").createOrReplaceTempView("typed")

    def analyse(texts: list[str]) -> dict[str, str | None]:
        from pyspark.errors import AnalysisException

        listing = ", ".join(f"{text} AS c{index}" for index, text in enumerate(texts))
        try:
            schema = spark.sql(f"SELECT {listing} FROM typed").schema
        except AnalysisException:
            if len(texts) == 1:
                return {texts[0]: None}
            middle = len(texts) // 2
            return {**analyse(texts[:middle]), **analyse(texts[middle:])}
        return {text: field.dataType.simpleString() for text, field in zip(texts, schema.fields, strict=True)}

    yield analyse
    spark.catalog.dropTempView("typed")


def spark_name(type_: Type) -> str:
    if type_.kind is Kind.DECIMAL:
        return f"decimal({type_.precision},{type_.scale})"
    names = {
        Kind.VARCHAR: "string",
        Kind.INTERVAL: "interval day to second",
        Kind.MONTHS: "interval year to month",
    }
    return names.get(type_.kind, type_.kind.value.lower())


def calls(signature: Signature) -> Iterator[tuple[str, list[Expr]]]:
    """Yield every call of a function with the columns; a repeated parameter occurs at most once more."""
    counts = range(len(signature.parameters) - signature.optional, len(signature.parameters) + 1)
    for count in counts:
        choices = []
        for index in range(count):
            constants = CONSTANTS.get((signature.name, index))
            parameter = signature.parameter(index)
            names = [name for name, (type_, _) in COLUMNS.items() if fits(parameter, type_)]
            choices.append(list(constants or names))
        for chosen in product(*choices):
            yield f"{signature.name}({', '.join(chosen)})", [_argument(name) for name in chosen]


def _argument(name: str) -> Expr:
    return ColumnRef(name, COLUMNS[name][0]) if name in COLUMNS else Literal(int(name), t.INT)


def agree(expected: dict[str, Type], actual: dict[str, str | None]) -> None:
    different = [
        f"{text}: ours {type_}, Spark {actual[text]}"
        for text, type_ in expected.items()
        if spark_name(type_) != actual[text] and text not in DEVIATIONS
    ]
    assert not different, "\n".join(["not Spark's types:", *different])


def test_every_function_has_its_spark_type(types_in_spark: Analyse) -> None:
    expected: dict[str, Type] = {}
    for name, signature in SCALARS.items():
        if name in OURS:
            continue
        for text, arguments in calls(signature):
            type_ = result_type(signature, arguments)
            if type_ is not None:
                expected[text] = type_
    agree(expected, types_in_spark(list(expected)))


def test_every_operator_has_its_spark_type(types_in_spark: Analyse) -> None:
    expected: dict[str, Type] = {}
    for left, right in product([*COLUMNS, "NULL"], repeat=2):
        for operator in ("+", "-", "*", "/", "%", "div", "&", "|", "^"):
            type_ = arithmetic_type(operator, _type(left), _type(right))
            if type_ is not None and type_.kind is not Kind.NULL:
                expected[f"{left} {operator} {right}"] = type_
    agree(expected, types_in_spark(list(expected)))


def _type(name: str) -> Type:
    return COLUMNS[name][0] if name in COLUMNS else t.NULL


def test_each_known_deviation_from_spark_still_deviates(types_in_spark: Analyse) -> None:
    """The list shrinks when Spark or slicemill changes."""
    actual = types_in_spark(list(DEVIATIONS))
    for text in DEVIATIONS:
        left, operator, right = text.split()
        type_ = arithmetic_type(operator, _type(left), _type(right))
        assert type_ is not None and spark_name(type_) != actual[text]


def test_every_permitted_cast_is_permitted_in_spark(types_in_spark: Analyse) -> None:
    expected = {
        f"CAST({source} AS {sql})": target
        for (source, (type_, _)), (target, sql) in product(COLUMNS.items(), COLUMNS.values())
        if castable(type_, target)
    }
    agree(expected, types_in_spark(list(expected)))
