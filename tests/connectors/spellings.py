"""Valid and invalid spellings of values of every type in files."""

from __future__ import annotations

import math
from typing import TypeVar

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from slicemill import types as t
from slicemill.ingest.formats import records as values
from slicemill.types import Column, Kind, Schema, TimestampUnit, Type

Value = TypeVar("Value")

TYPES = (
    t.BOOLEAN,
    t.INT,
    t.BIGINT,
    t.DOUBLE,
    t.decimal(6, 2),
    t.decimal(38, 10),
    t.VARCHAR,
    Type(Kind.VARCHAR, length=4),
    t.TIMESTAMP,
    *(Type(Kind.TIMESTAMP, unit=unit) for unit in TimestampUnit),
    t.DATE,
    t.INTERVAL,
    t.BINARY,
)
SCHEMA = Schema(tuple(Column(f"c{number}", type_) for number, type_ in enumerate(TYPES)))

# The last numbers are the bounds of the years 1 to 9999, in seconds and milliseconds.
EDGES = [2**31, 2**53, 2**63, 10**4, 10**28, 0, 62_135_596_800, 253_402_300_800, 253_402_300_800_000]
numbers = st.sampled_from(EDGES).flatmap(
    lambda edge: st.builds(lambda sign, off: sign * edge + off, st.sampled_from((-1, 1)), st.integers(-2, 2))
)
spellings = st.one_of(
    numbers.map(str),
    numbers.map(lambda n: f"{n}.{'0' * (n % 3)}"),
    st.from_regex(values.NUMBER, fullmatch=True),
    st.from_regex(values.SPECIAL_NUMBER, fullmatch=True),
    st.from_regex(values.INSTANT, fullmatch=True),
    st.dates().map(str),
    st.datetimes().map(str),
    st.datetimes(timezones=st.timezones()).map(lambda moment: moment.isoformat()),
    st.sampled_from(
        [*values.TRUE_WORDS, *values.FALSE_WORDS, "TRUE", "No", "2026", "1d", "0x1p3", "1_0", "+"]
    ),
    st.sampled_from(
        ["20260131", "2026-1-31", "2026-01-31T24:00", "0000-01-01", "2026-02-30", "9999-12-31 23:59Z"]
    ),
    st.decimals(-(10**5), 10**5, places=3).map(str),
    st.text(max_size=6),
    st.text("0123456789.eE+-:TZ ", max_size=12),
    st.text("x", min_size=99, max_size=102),
)
texts = st.builds(
    lambda before, text, after: before + text + after,
    st.sampled_from(["", "", "", " ", "\t"]),
    # Line endings belong to the file format.
    spellings.map(lambda text: text.translate({10: None, 13: None})),
    st.sampled_from(["", "", "", " ", "\x7f"]),
)
json_values = st.one_of(
    texts,
    numbers,
    st.floats(allow_nan=False, allow_infinity=False),
    st.booleans(),
    st.none(),
    st.lists(st.integers(0, 9), max_size=2),
    st.dictionaries(st.text("ab", max_size=2), st.text("xyz", max_size=2), max_size=2),
)
column_numbers = st.integers(0, len(TYPES) - 1)


def drawn(strategy: st.SearchStrategy[Value], count: int) -> list[Value]:
    """Draw `count` values that are tried together, because a Spark job costs more than a thousand rows."""
    found: list[Value] = []

    @settings(max_examples=count, database=None, derandomize=True, suppress_health_check=list(HealthCheck))
    @given(strategy)
    def collect(value: Value) -> None:
        found.append(value)

    collect()
    return found


def comparable(value: object) -> object:
    """Return a value for which NaN equals itself and minus zero differs from zero."""
    if isinstance(value, float):
        return "NaN" if math.isnan(value) else (value, math.copysign(1, value))
    return value
