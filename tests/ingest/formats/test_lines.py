"""Lines that are parsed together give the rows and errors of each line parsed alone."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.connectors.spellings import SCHEMA, comparable, json_values, texts

from slicemill import types as t
from slicemill.ingest.formats import csv as formats_csv
from slicemill.ingest.formats import json as formats_json
from slicemill.ingest.formats.checked import WantedColumns
from slicemill.ingest.formats.csv import csv_format
from slicemill.ingest.formats.line_parser import LineParser
from slicemill.ingest.formats.lines import split
from slicemill.types import Column, Kind, Schema, Type

Outcome = tuple[list[object], list[tuple[str, str]]]


@pytest.fixture(autouse=True, scope="module")
def many() -> Iterator[None]:
    """Let batches of nine lines take the path for many lines."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(formats_csv, "_FEW_LINES", 8)
        patch.setattr(formats_json, "_FEW_LINES", 8)
        yield


def parser(form: str, schema: Schema = SCHEMA, time: str | None = None, **options: str) -> LineParser:
    wanted = WantedColumns.of_schema(schema, schema.names, time)
    return LineParser(wanted, form, csv_format(schema.names, options))


def outcome(parse: LineParser, data: bytes) -> Outcome:
    parsed = parse.parse(split(data))
    columns = [_plain(column) for column in parsed.table.columns]
    errors = [] if parsed.errors is None else parsed.errors.to_pylist()
    rows = [tuple(map(comparable, row)) for row in zip(*columns, strict=True)]
    return list(rows), [(error["raw"], error["reason"]) for error in errors]


def _plain(column: pa.ChunkedArray) -> list[object]:
    """Return timestamps as integers, because Python may not have their years."""
    if pa.types.is_timestamp(column.type) or pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    values: list[object] = column.to_pylist()
    return values


def assert_as_alone(parse: LineParser, lines: list[bytes]) -> None:
    rows: list[object] = []
    errors: list[tuple[str, str]] = []
    for line in lines:
        alone = outcome(parse, line + b"\n")
        rows += alone[0]
        errors += alone[1]
    assert outcome(parse, b"\n".join(lines)) == (rows, errors)


def csv_line(fields: list[str]) -> str:
    out = io.StringIO(newline="")
    csv.writer(out, lineterminator="").writerow(fields)
    return out.getvalue()


usual = st.tuples(
    st.sampled_from(["true", "f", ""]),
    st.integers(-9, 9).map(str),
    st.integers(-(10**12), 10**12).map(str),
    st.floats(-1e6, 1e6).map(str),
    st.integers(-999, 999).map(str),
    st.integers(-999, 999).map(lambda n: f"{n}.25"),
    st.sampled_from(["plain", "with, comma", 'with "quotes"', "ü", ""]),
    st.sampled_from(["abc", "äöüß", ""]),
    st.datetimes().map(str),
    st.dates().map(str),
    st.integers(0, 10**9).map(str),
    st.just("bytes"),
).map(list)
odd_fields = st.tuples(usual, st.integers(0, len(SCHEMA) - 1), texts).map(
    lambda drawn: [drawn[2] if n == drawn[1] else field for n, field in enumerate(drawn[0])]
)
csv_lines = st.one_of(
    usual.map(csv_line),
    usual.map(csv_line),
    odd_fields.map(csv_line),
    st.text('",a 1\t', max_size=12),
    st.just("\ufeff"),
)


def encoded(lines: list[str]) -> list[bytes]:
    return [line.translate({10: None, 13: None}).encode(errors="replace") for line in lines]


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(csv_lines, min_size=9, max_size=40))
def test_csv_lines_parse_together_as_alone(lines: list[str]) -> None:
    assert_as_alone(parser("csv"), encoded(lines))


@settings(max_examples=25, deadline=None)
@given(lines=st.lists(st.text("ab;'\" \t", max_size=9), min_size=9, max_size=30))
def test_csv_lines_with_other_separators_and_quotes_parse_together_as_alone(lines: list[str]) -> None:
    schema = Schema((Column("a", t.VARCHAR), Column("b", Type(Kind.VARCHAR, length=3))))
    assert_as_alone(parser("csv", schema, sep=";", quote="'", escape="'", nullValue="a"), encoded(lines))


usual_objects = st.fixed_dictionaries(
    {
        "c0": st.booleans(),
        "c1": st.integers(-9, 9),
        "c2": st.integers(-(2**62), 2**62),
        "c3": st.floats(-1e6, 1e6),
        "c6": st.sampled_from(["plain", 'with "quotes"', "ü", "back\\slash"]),
        "c8": st.datetimes().map(str),
        "c9": st.dates().map(str),
    },
    optional={"more": st.lists(st.integers(0, 3), max_size=3), "C7": st.just("abc"), "c4": st.integers(0, 9)},
)
odd_objects = st.tuples(usual_objects, st.integers(0, len(SCHEMA) - 1), json_values, st.booleans()).map(
    lambda drawn: {**drawn[0], ("C" if drawn[3] else "c") + str(drawn[1]): drawn[2]}
)
json_lines = st.one_of(
    usual_objects.map(json.dumps),
    usual_objects.map(lambda value: json.dumps(value, ensure_ascii=False)),
    odd_objects.map(json.dumps),
    st.text('{}[]",:a1.e-\\u0 \t', max_size=12),
    st.text('{}[]",:1.e-\\u0 ', max_size=12).map(lambda text: '{"c6":' + text + "}"),
    st.sampled_from(
        [
            "null",
            '{"c1":1}{"c1":2}',
            '{"c1":1} null {"c1":2}',
            '{"c1":',
            '1,"c2":2}',
            '{"c3":NaN}',
            '{"x":NaN}',
            '{"c3":1e400}',
            '{"c6":"\\ud800"}',
            '{"c6":"\\udc00"}',
            '{"\\u0043\\u0031":5}',
            '{"c1":1,"c1":2}',
            '{"c1":null,"C1":2}',
            '{"c3":-0}',
            '{"c1":1.0}',
        ]
    ),
)


@settings(max_examples=60, deadline=None)
@given(lines=st.lists(json_lines, min_size=9, max_size=40))
def test_json_lines_parse_together_as_alone(lines: list[str]) -> None:
    assert_as_alone(parser("json"), encoded(lines))


@settings(max_examples=25, deadline=None)
@given(lines=st.lists(json_lines | csv_lines, min_size=9, max_size=40))
def test_mixed_csv_and_json_lines_parse_together_as_alone(lines: list[str]) -> None:
    assert_as_alone(parser("either", time="c8"), encoded(lines))


LISTS = Schema(
    tuple(Column(name, t.list_of(type_)) for name, type_ in (("i", t.INT), ("s", t.VARCHAR), ("d", t.DOUBLE)))
)
usual_lists = st.fixed_dictionaries(
    {
        "i": st.none() | st.lists(st.none() | st.integers(-9, 9), max_size=3),
        "s": st.none() | st.lists(st.none() | st.sampled_from(["a", "b,c", ""]), max_size=3),
        "d": st.lists(st.floats(-9, 9) | st.integers(-9, 9), max_size=3),
    }
)
odd_lists = st.sampled_from([[1e999], ["7"], "[1, 2]", "x", 5, {}, [[1]], [True], "[1, NaN]"])
list_lines = usual_lists.map(json.dumps) | st.tuples(usual_lists, st.sampled_from("isd"), odd_lists).map(
    lambda drawn: json.dumps({**drawn[0], drawn[1]: drawn[2]})
)


@settings(max_examples=30, deadline=None)
@given(lines=st.lists(list_lines, min_size=9, max_size=30))
def test_lists_in_json_lines_parse_together_as_alone(lines: list[str]) -> None:
    assert_as_alone(parser("json", LISTS), encoded(lines))


def test_a_csv_field_with_a_json_list_is_a_list() -> None:
    lines = ['"[1, 2]","[""a"", null]",[]', "[1.5],[],[]", "1,a,b"]
    rows, errors = outcome(parser("csv", LISTS), "\n".join(lines).encode())
    assert rows == [([1, 2], ["a", None], [])]
    assert [reason for _, reason in errors] == ["column i: '[1.5]' is no INT[]", "column i: '1' is no INT[]"]


def test_a_too_deeply_nested_json_value_is_a_bad_row() -> None:
    deep = b'{"c6":' + b"[" * 200_000 + b"]" * 200_000 + b"}"
    lines = [deep, *[b'{"c1":1}'] * 10]
    rows, errors = outcome(parser("json"), b"\n".join(lines))
    assert len(rows) == 10 and [reason for _, reason in errors] == ["this is no JSON object"]


def test_parsed_rows_have_their_line_numbers() -> None:
    schema = Schema((Column("n", t.INT),))
    data = b"\n".join([b"0", b"", b"x", *(str(n).encode() for n in range(3, 20))])
    parsed = parser("csv", schema).parse(split(data))
    assert parsed.numbers.tolist() == [0, *range(3, 20)]
    assert parsed.table["n"].to_pylist() == [0, *range(3, 20)]


def test_only_requested_columns_are_returned_but_all_are_checked() -> None:
    schema = Schema((Column("a", t.INT), Column("b", t.VARCHAR), Column("c", t.DOUBLE)))
    wanted = WantedColumns.of_schema(schema, ["b"])
    lines = split(b"\n".join([b"1,x,2", b"y,x,2", b"1,x,z", *[b"1,w,2"] * 10]))
    for form in (LineParser(wanted, "csv", csv_format(schema.names, {})),):
        parsed = form.parse(lines)
        assert parsed.table.schema.names == ["b"] and parsed.table.num_rows == 11
        assert parsed.errors is not None and parsed.errors["raw"].to_pylist() == ["y,x,2", "1,x,z"]


@pytest.mark.parametrize("end", [b"\n", b"\r\n", b"\r"])
def test_all_line_endings_are_recognised(end: bytes) -> None:
    schema = Schema((Column("a", t.INT), Column("b", t.INT)))
    data = end.join([f"{n},{n}".encode() for n in range(20)])
    assert outcome(parser("csv", schema), data)[0] == [(n, n) for n in range(20)]
    lines = split(b"a\rb\r\nc\n", universal=False)
    assert [lines.line(n) for n in range(len(lines))] == [b"a\rb", b"c"]


def test_lines_that_begin_with_the_comment_mark_are_skipped() -> None:
    schema = Schema((Column("a", t.VARCHAR), Column("b", t.VARCHAR)))
    lines = [b"# 1", b"a,#b", *[b"x,y"] * 9, b"#a,b"]
    rows, errors = outcome(parser("csv", schema, comment="#"), b"\n".join(lines))
    assert rows == [("a", "#b"), *[("x", "y")] * 9] and not errors


def test_selected_lines_have_the_requested_numbers() -> None:
    lines = split(b"a\nbb\n\nccc\n")
    taken = lines.select(np.array([1, 3]))
    assert [taken.line(n) for n in range(len(taken))] == [b"bb", b"ccc"]
