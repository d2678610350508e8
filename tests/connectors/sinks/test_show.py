"""Tables of results on a terminal."""

from __future__ import annotations

import io
import re

import pytest
from rich.console import Console

from slicemill.connectors.sinks.console import results_table
from slicemill.types import (
    BIGINT,
    BOOLEAN,
    DATE,
    DOUBLE,
    PERIOD,
    TIMESTAMP,
    VARCHAR,
    Column,
    Schema,
    Type,
    list_of,
)


def test_values_wider_than_a_line_are_wrapped_not_truncated() -> None:
    times = ("since", "until", "first", "last")
    schema = Schema((Column("reader", BIGINT), *(Column(name, TIMESTAMP) for name in times)))
    at_us = 1_795_000_000_123_456
    seen = io.StringIO()
    Console(file=seen, width=80).print(results_table("visits", schema, [(at_us, (1, *[at_us] * 4))], 1))
    assert "…" not in seen.getvalue()
    assert "".join(seen.getvalue().split()).count("123456") >= 1
    assert max(map(len, seen.getvalue().splitlines())) <= 80


AT_US = 1_795_000_000_123_456
DATE_SHOWN, TIME_SHOWN = "2026-11-18", "11:06:40.123456"


@pytest.mark.parametrize("width", [60, 80, 100, 120])
@pytest.mark.parametrize("times", range(1, 7))
@pytest.mark.parametrize(
    ("type_", "value"),
    [
        (VARCHAR, "a text of several words, which can be wrapped anywhere between its words"),
        (BIGINT, 1_234_567_890_123_456_789),
        (DOUBLE, -1.23456e-300),
        (BOOLEAN, False),
        (DATE, AT_US // 86_400_000_000),
        (PERIOD, (AT_US, AT_US)),
        (list_of(TIMESTAMP), (AT_US,) * 4),
    ],
    ids=str,
)
def test_dates_times_and_numbers_are_not_broken_at_any_width(
    type_: Type, value: object, times: int, width: int
) -> None:
    columns = [Column("a_value_of_this_type", type_), *(Column(f"t{n}", TIMESTAMP) for n in range(times))]
    row = (value, *[AT_US] * times)
    seen = io.StringIO()
    table = results_table("visits", Schema(tuple(columns)), [(AT_US, row)] * 2, 2)
    Console(file=seen, width=width).print(table)
    lines = seen.getvalue().splitlines()
    assert max(map(len, lines)) <= width and "…" not in seen.getvalue()
    shown = {DATE: 1, PERIOD: 2, list_of(TIMESTAMP): 4}.get(type_, 0)
    words = re.findall(r"[^\s,\[\])]+", seen.getvalue())
    assert words.count(DATE_SHOWN) == 2 * (1 + times + shown)
    assert words.count(TIME_SHOWN) == 2 * (1 + times + (0 if type_ == DATE else shown))
    if type_ in (BIGINT, DOUBLE):
        assert words.count(str(value)) == 2


def test_a_table_that_fits_has_one_line_for_each_row() -> None:
    seen = io.StringIO()
    schema = Schema((Column("item", BIGINT), Column("since", TIMESTAMP)))
    Console(file=seen, width=80).print(results_table("visits", schema, [(AT_US, (1, AT_US))] * 3, 3))
    assert len(seen.getvalue().splitlines()) == 5


def test_a_row_that_is_too_wide_has_one_line_for_each_value() -> None:
    seen = io.StringIO()
    schema = Schema(tuple(Column(f"t{n}", TIMESTAMP) for n in range(6)))
    Console(file=seen, width=80).print(results_table("visits", schema, [(AT_US, (AT_US,) * 6)] * 2, 2))
    names = [line.split()[0] for line in seen.getvalue().splitlines()[1:] if line.strip()]
    assert names == ["time", "t0", "t1", "t2", "t3", "t4", "t5"] * 2


@pytest.mark.parametrize("width", [20, 80])
def test_brackets_in_a_value_are_printed_literally(width: int) -> None:
    seen = io.StringIO()
    schema = Schema((Column("first", VARCHAR), Column("at", TIMESTAMP)))
    Console(file=seen, width=width).print(results_table("q", schema, [(None, ("[/b] [red]x", AT_US))], 1))
    assert "".join(seen.getvalue().split()).count("[/b][red]x") == 1
