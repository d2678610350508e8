"""The reader of the corpus: parsed files, rejected files, and the comparison of rows."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path

import pytest

from support.corpus import (
    CORPUS,
    CorpusError,
    Event,
    ExpectedError,
    ExpectedRows,
    Runnable,
    check_case,
    check_rows,
    parameters,
    prepare,
    read_case,
    read_cases,
)

WHOLE = """\
# Two lines
# say what it shows.
spec: M32 G15
needs: windows table

== esl
CREATE STREAM Bid(item int, price real, ts timestamp) ORDER BY ts;
CREATE TABLE Item(id int, name varchar);
CREATE QUERY q AS SELECT price FROM Bid;
SELECT name FROM Item;

== table Item
1, 'it''s'
2, NULL

== input
# a comment
1.5  Bid: 1, 10, 1       # another
2    Bid punctuation
3    Bid: NULL, -2.5e1, '1970-01-01 00:00:02'
end

== rows q ordered
1    10.0
2    -25

== rows query_1
-    'it''s'
-    NULL
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "sample.test"
    path.write_text(text, encoding="utf-8")
    return path


def prepared(folder: Path, text: str) -> Runnable:
    return prepare(read_case(written(folder, text)))


def with_columns(columns: str, values: str, head: str = "") -> str:
    return (
        f"# values\nneeds: base\n\n== esl\nCREATE STREAM S({columns}) {head};\n"
        f"CREATE QUERY q AS SELECT * FROM S;\n\n== input\n2.5  S: {values}\n\n== rows q\n"
    )


def test_the_head_of_a_file_has_its_description_and_requirements(tmp_path: Path) -> None:
    case = read_case(written(tmp_path, WHOLE))
    assert (case.about, case.spec) == ("Two lines say what it shows.", ("M32", "G15"))
    assert case.needs == {"windows", "table"}
    assert case.name == "sample"


def test_values_get_the_types_of_their_columns(tmp_path: Path) -> None:
    runnable = prepared(tmp_path, WHOLE)
    assert runnable.events == (
        Event(1_500_000, "Bid", 1_000_000, (1, 10.0, 1_000_000)),
        Event(2_000_000, "Bid", 2_000_000, None),
        Event(3_000_000, "Bid", 2_000_000, (None, -25.0, 2_000_000)),
    )
    assert runnable.tables == {"Item": ((1, "it's"), (2, None))}
    assert runnable.expected["q"] == ExpectedRows(((1_000_000, (10.0,)), (2_000_000, (-25.0,))), ordered=True)
    assert runnable.expected["query_1"] == ExpectedRows(((None, ("it's",)), (None, (None,))))


@pytest.mark.parametrize(
    ("type_", "text", "value"),
    [
        ("boolean", "TRUE", True),
        ("bigint", "-7", -7),
        ("real", "7", 7.0),
        ("decimal(10, 2)", "0.10", Decimal("0.10")),
        ("varchar", "'a, b # c'", "a, b # c"),
        ("timestamp", "0.25", 250_000),
        ("date", "'1970-02-01'", 31),
        ("interval", "-1.5", -1_500_000),
    ],
)
def test_each_type_has_its_literals(tmp_path: Path, type_: str, text: str, value: object) -> None:
    (event,) = prepared(tmp_path, with_columns(f"a {type_}", text)).events
    assert event.row == (value,)
    assert event.row is not None and type(event.row[0]) is type(value)


def test_a_period_is_read_with_both_its_ends(tmp_path: Path) -> None:
    text = (
        "# periods\nneeds: temporal\n\n== esl\nCREATE STREAM S(v int, ts timestamp) ORDER BY ts;\n"
        "SELECT VALID(R) FROM S(v) AS R RANGE 9 SECONDS SLIDES 9 SECONDS;\n\n"
        "== rows query_1\n9  [4, 7.5)\n'1970-01-01 00:00:18'  ['1970-01-01', '1970-01-02')\n"
    )
    assert prepared(tmp_path, text).expected["query_1"].rows == (
        (9_000_000, ((4_000_000, 7_500_000),)),
        (18_000_000, ((0, 86_400_000_000),)),
    )


def test_the_clock_fills_the_time_column_of_an_internal_stream(tmp_path: Path) -> None:
    text = with_columns("a int, current_time timestamp, b int", "1, 2", "ORDER BY current_time")
    (event,) = prepared(tmp_path, text).events
    assert (event.ts_us, event.row) == (2_500_000, (1, 2_500_000, 2))


def test_an_external_stream_can_have_a_null_timestamp(tmp_path: Path) -> None:
    (event,) = prepared(tmp_path, with_columns("a int, ts timestamp", "1, NULL", "ORDER BY ts")).events
    assert (event.ts_us, event.row) == (None, (1, None))


def test_errors_have_a_position_and_a_part_of_the_message(tmp_path: Path) -> None:
    text = "# wrong\nneeds: errors\n\n== esl\nSELECT a FROM S;\n\n== errors\n1:15 no stream or table S\n"
    case = read_case(written(tmp_path, text))
    assert case.errors == (ExpectedError(1, 15, "no stream or table S"),)
    assert case.esl == "SELECT a FROM S;\n"


@pytest.mark.parametrize(
    ("old", "new", "line", "problem"),
    [
        ("# Two lines\n# say what it shows.\n", "", 1, "the first line says"),
        ("needs: windows table", "", 1, "needs: names the features"),
        ("needs: windows table", "needs: windwos", 1, "there is no tag windwos"),
        ("spec: M32 G15", "because: M32", 3, "a file begins with"),
        ("== esl", "== sql", 6, "a section is"),
        ("== table Item", "== table", 12, "write == table NAME"),
        ("== rows query_1", "== rows q", 27, "== rows q is given twice"),
        ("needs: windows table", "needs: errors", 1, "== errors and the tag errors go together"),
        ("1, 'it''s'", "1 'it''s'", 13, "a comma belongs before 'it''s'"),
        ("2, NULL", "2, nothing", 14, "there is no value in: nothing"),
        ("2, NULL", "2", 14, "1 values for the 2 columns"),
        ("2, NULL", "'2', NULL", 14, "2 is no INT for id"),
        ("== table Item", "== table Bid", 12, "Bid is not declared with CREATE TABLE"),
        ("1.5  Bid: 1", "soon Bid: 1", 18, "there is no value in: soon"),
        ("1.5  Bid: 1", "TRUE Bid: 1", 18, "the first field is a time"),
        ("1.5  Bid: 1", "1.5  Bid 1", 18, "an arrival is"),
        ("1.5  Bid: 1", "7    Bid: 1", 19, "arrivals are written in order of time"),
        ("1.5  Bid: 1", "1.5  Ask: 1", 18, "Ask is no stream that takes tuples"),
        ("\nend\n", "\nend\n4 Bid punctuation\n", 22, "nothing comes after end"),
        ("== rows q ordered", "== rows r ordered", 23, "there is no query r"),
        ("1    10.0", "-    10.0", 24, "a row of q begins with its time"),
        ("-    NULL", "4    NULL", 29, "a row of query_1 begins with -"),
        ("1    10.0", "9    10.0", 23, "results come in order of time"),
    ],
)
def test_a_malformed_file_is_rejected_with_its_line(
    tmp_path: Path, old: str, new: str, line: int, problem: str
) -> None:
    assert WHOLE.count(old) >= 1
    path = written(tmp_path, WHOLE.replace(old, new, 1))
    with pytest.raises(CorpusError) as caught:
        prepare(read_case(path))
    assert str(caught.value).startswith(f"{path}:{line}: {problem}")


def test_rows_of_one_timestamp_compare_in_any_order() -> None:
    expected = ExpectedRows(((1, (1, "a")), (2, (2, "b")), (2, (3, "c"))))
    check_rows(expected, [(2, (3, "c")), (2, (2, "b")), (1, (1, "a"))])
    with pytest.raises(AssertionError):
        check_rows(expected, [(2, (3, "c")), (1, (2, "b")), (1, (1, "a"))])


def test_ordered_rows_compare_in_their_order() -> None:
    expected = ExpectedRows(((1, ("a",)), (1, ("b",))), ordered=True)
    check_rows(expected, [(1, ("a",)), (1, ("b",))])
    with pytest.raises(AssertionError):
        check_rows(expected, [(1, ("b",)), (1, ("a",))])


def test_every_copy_of_a_row_counts() -> None:
    with pytest.raises(AssertionError):
        check_rows(ExpectedRows(((1, (7,)), (1, (7,)))), [(1, (7,))])
    with pytest.raises(AssertionError):
        check_rows(ExpectedRows(((1, (7,)),)), [(1, (7,)), (1, (7,))])


def test_floats_are_compared_within_a_billionth_and_other_types_exactly() -> None:
    check_rows(ExpectedRows(((1, (0.3,)),)), [(1, (0.1 + 0.2,))])
    for value in (0.3000001, None, "0.3", Decimal("0.3")):
        with pytest.raises(AssertionError):
            check_rows(ExpectedRows(((1, (0.3,)),)), [(1, (value,))])


def test_a_value_of_another_type_is_a_difference() -> None:
    for expected, got in ((1, True), (1, 1.0), (1.0, 1), (None, 0)):
        with pytest.raises(AssertionError):
            check_rows(ExpectedRows(((1, (expected,)),)), [(1, (got,))])


def test_a_difference_shows_both_sides_by_time() -> None:
    expected = ExpectedRows(((1_000_000, (1,)), (2_500_000, (2,)), (3_000_000, (3,))))
    with pytest.raises(AssertionError) as caught:
        check_rows(expected, [(1_000_000, (1,)), (2_500_000, (9,)), (3_000_000, (3,))], "query q")
    assert str(caught.value).split("\n")[:5] == [
        "query q (- expected, + got)",
        "  1        1",
        "- 2.5      2",
        "+ 2.5      9",
        "  3        3",
    ]


def test_missing_rows_and_unexpected_queries_are_differences(tmp_path: Path) -> None:
    runnable = prepared(tmp_path, WHOLE)
    good = {name: expected.rows for name, expected in runnable.expected.items()}
    check_case(runnable, good)
    with pytest.raises(AssertionError):
        check_case(runnable, {"q": good["q"]})
    with pytest.raises(AssertionError):
        check_case(runnable, {**good, "query_2": []})


def test_only_cases_with_unsupported_features_are_left_out() -> None:
    everything, chosen = ({p.id for p in parameters(beyond)} for beyond in ((), ("temporal",)))
    assert "temporal/andy" in everything - chosen
    temporal = {case.name for case in read_cases() if "temporal" in case.needs and not case.errors}
    assert everything - chosen == temporal


def test_the_example_of_the_readme_is_a_case(tmp_path: Path) -> None:
    example = (CORPUS / "README.md").read_text(encoding="utf-8").split("```\n")[1]
    runnable = prepared(tmp_path, example)
    assert runnable.case.needs == {"windows", "late", "adhoc"}
    assert [event.row is None for event in runnable.events] == [False, False, True, False]
