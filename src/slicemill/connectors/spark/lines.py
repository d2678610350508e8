"""Lines of JSON or CSV to text fields, in Catalyst.

A line that is neither gets a reason. The fields stay text; `checks` converts them. So a wrong type and
a broken line have different reasons, and both keep the original line.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql import types as s

from slicemill.connectors.spark.checks import spark_type
from slicemill.errors import SlicemillError
from slicemill.esl.types.schema import Kind, Schema
from slicemill.ingest.formats.records import NO_JSON, NO_TEXT
from slicemill.scalar.calendar import BLANKS

LINE = "_line"
BROKEN = "_broken"

JSON = "json"
CSV = "csv"
# For each line: an object in braces is JSON, everything else CSV.
EITHER = "either"

_JSON_OPTIONS = {"allowSingleQuotes": "false", "allowNonNumericNumbers": "false"}
# Spark's JSON reader stops at the end of the object and ignores trailing text. Inside an array with a known
# last element, trailing text is detected. (But inside an array Spark accepts a broken value.)
_END = "slicemill:end"
_CORRUPT = "_corrupt"
CSV_OPTIONS = ("sep", "delimiter", "quote", "escape", "comment", "nullvalue")


@dataclass(frozen=True, slots=True)
class LineFormat:
    """Format of lines; `names` are the fields of CSV lines in order."""

    form: str
    names: Sequence[str]
    csv_options: Mapping[str, str]


def line_format(form: str, schema: Schema, options: Mapping[str, str]) -> LineFormat:
    """Return the format of lines whose CSV fields are the declared columns."""
    if form not in (JSON, CSV, EITHER):
        raise SlicemillError(f"lines are {JSON}, {CSV} or {EITHER}, not {form!r}")
    chosen = {key: value for key, value in options.items() if key.lower() in CSV_OPTIONS}
    return LineFormat(form, schema.names, chosen)


def parsed(lines: DataFrame, schema: Schema, format_: LineFormat) -> DataFrame:
    """Parse lines to `_line`, `_broken` (a reason) and fields `_text0`, `_text1`, ….

    `lines` has one column of text, `value`. Blank lines are dropped. A DECIMAL column of JSON has a second
    field, such as `_exact3`, because Spark rounds its text to a DOUBLE.
    """
    value = F.col("value")
    is_json = {JSON: F.lit(True), CSV: F.lit(False)}.get(
        format_.form, F.ltrim(value, F.lit(BLANKS)).startswith("{")
    )
    frame = lines.where(F.btrim(value, F.lit(BLANKS)) != "")
    others = [name for name in lines.columns if name != "value"]
    json_line, csv_line = F.when(is_json, value), F.when(~is_json, value)
    frame = frame.select(
        F.make_valid_utf8(value).alias(LINE),
        F.is_valid_utf8(value).alias("_utf8"),
        is_json.alias("_is_json"),
        _json_object(json_line, schema).alias("_json"),
        _nothing_follows(json_line).alias("_ends"),
        _exact_decimals(json_line, schema).alias("_exact"),
        F.from_csv(csv_line, _csv_schema(format_), _csv_options(format_)).alias("_csv"),
        *others,
    )
    broken = (
        F.when(~F.col("_utf8"), F.lit(NO_TEXT))
        .when(F.col("_is_json"), F.when(~_is_one_object(), F.lit(NO_JSON)))
        .when(
            F.col("_csv").getField(_CORRUPT).isNotNull(),
            F.lit(f"this row does not have {len(format_.names)} fields"),
        )
    )
    fields = []
    for number, column in enumerate(schema):
        text = F.when(F.col("_is_json"), _json_field(column.name)).otherwise(_csv_field(column.name, format_))
        fields.append(text.alias(f"_text{number}"))
        if column.type.kind is Kind.DECIMAL:
            fields.append(F.col("_exact").getField(column.name).alias(f"_exact{number}"))
    return frame.select(LINE, broken.alias(BROKEN), *fields, *others)


def _json_object(line: Column, schema: Schema) -> Column:
    fields = [s.StructField(name, s.StringType()) for name in (*schema.names, _CORRUPT)]
    return F.from_json(line, s.StructType(fields), {**_JSON_OPTIONS, "columnNameOfCorruptRecord": _CORRUPT})


def _nothing_follows(line: Column) -> Column:
    text = F.concat(F.lit("["), line, F.lit(f',{{"{_END}":"1"}}]'))
    both = F.from_json(text, s.ArrayType(s.StructType([s.StructField(_END, s.StringType())])), _JSON_OPTIONS)
    return F.transform(both, lambda entry: entry.getField(_END))


def _is_one_object() -> Column:
    whole = F.col("_json").isNotNull() & F.col("_json").getField(_CORRUPT).isNull()
    ends = (F.size("_ends") == 2) & (F.get(F.col("_ends"), F.lit(1)) == "1")
    return whole & F.coalesce(ends, F.lit(False))


def _exact_decimals(line: Column, schema: Schema) -> Column:
    decimals = [column for column in schema if column.type.kind is Kind.DECIMAL]
    if not decimals:
        return F.lit(None)
    fields = [s.StructField(column.name, spark_type(column.type)) for column in decimals]
    # A second field, so that a value that does not fit does not affect the others.
    return F.from_json(line, s.StructType([*fields, s.StructField(_END, s.StringType())]), _JSON_OPTIONS)


def _json_field(name: str) -> Column:
    """Return a value by exact name, else ignoring case."""
    exact = F.col("_json").getField(name)
    values = s.MapType(s.StringType(), s.StringType())
    entries = F.map_entries(F.from_json(F.col(LINE), values, _JSON_OPTIONS))
    lowered = name.lower()
    alike = F.filter(entries, lambda entry: F.lower(entry.getField("key")) == lowered)
    # Only lines that contain such a name are parsed again.
    named = F.contains(F.lower(F.col(LINE)), F.lit(f'"{lowered}"'))
    return F.coalesce(exact, F.when(named, F.try_element_at(alike, F.lit(-1)).getField("value")))


def _csv_schema(format_: LineFormat) -> str:
    # Numbers, because a header may have a name twice.
    names = [f"_{number}" for number in range(len(format_.names))]
    return ", ".join(f"{name} STRING" for name in [*names, _CORRUPT])


def _csv_options(format_: LineFormat) -> dict[str, str]:
    return {"escape": '"', **format_.csv_options, "mode": "PERMISSIVE", "columnNameOfCorruptRecord": _CORRUPT}


def _csv_field(name: str, format_: LineFormat) -> Column:
    lowered = [other.lower() for other in format_.names]
    if name.lower() not in lowered:
        return F.lit(None).cast(s.StringType())
    return F.nullif(F.col("_csv").getField(f"_{lowered.index(name.lower())}"), F.lit(""))
