"""Late tuples split and merge runs: reference and kernels give what brute force gives."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.over.streams import pieces
from slicemill import types as t
from slicemill.binder import bind
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import FrameUnit, LateTuples, SelectItem, Window
from slicemill.columns.arrow_schema import to_arrow, with_system_columns
from slicemill.columns.rows import timed_rows, to_table
from slicemill.operators.row_step import RowStep
from slicemill.operators.temporal.coalesce import CoalescingState
from slicemill.operators.temporal.spec import Coalesce
from slicemill.operators.temporal.step import CoalescingWithLate
from slicemill.sql.errors import EslError
from slicemill.time import END
from slicemill.types import BOOLEAN, PERIOD, Column, Row, Schema, Timed
from slicemill_oracle.translate import coalesce_rows
from support.stored import stored

SCHEMA = Schema((Column("k", t.INT), Column("v", t.INT), Column("q", BOOLEAN), Column("ts", t.TIMESTAMP)))
OUTPUT = Schema((Column("k", t.INT), Column("v", t.INT), Column("VALID", PERIOD), Column("OPEN", BOOLEAN)))


def operator(random: Random) -> Coalesce:
    window = Window(FrameUnit.RANGE, random.choice([None, 2, 5, 12]), random.choice([1, 2, 3, 5]))
    late = LateTuples("s_late", "ts", random.choice([1, 3, 8, 20]))
    where = random.choice([None, ColumnRef("q", BOOLEAN)])
    keys = (SelectItem("k", ColumnRef("k", t.INT)),)
    return Coalesce(("v",), keys, window, where, tells_open=True, late=late)


def arrivals(random: Random, rows: int) -> list[Timed]:
    """In order of arrival; a tuple that is in time arrives at its timestamp."""
    now, out = random.choice([0, -7, 1000]), []
    for _ in range(rows):
        now += random.choice([0, 0, 1, 1, 2, 4])
        own = now - random.choice([0, 0, 0, 1, 2, 5, 9])
        out.append(Timed(now, (random.choice([1, 2]), random.choice([7, 8]), random.random() < 0.8, own)))
    return out


@dataclass(frozen=True)
class BruteForce:
    """Each report from the arrivals alone: those before it, sorted by their own times."""

    made: Coalesce
    tuples: list[Timed]
    until: int  # so far time has gone

    def rows(self) -> Iterator[tuple[int, Row]]:
        window, late = self.made.window, self.made.late
        assert window.slide is not None and late is not None
        taken = [one for one in self.tuples if one.ts - one.row[3] <= late.within_us]
        if not taken:
            return
        first, last = taken[0].ts // window.slide + 1, max(self.until, taken[-1].ts) // window.slide + 1
        if window.extent is not None:
            last += window.extent // window.slide + 1
        for end in range(first * window.slide, last * window.slide + 1, window.slide):
            begin = -(10**9) if window.extent is None else end - window.extent
            inside = [one.row for one in taken if one.ts < end and begin <= one.row[3] < end]
            for key in {row[0] for row in inside}:
                mine = sorted((row for row in inside if row[0] == key), key=lambda row: row[3])
                yield from ((end, run) for run in self._runs(mine, end))

    def _runs(self, rows: list[Row], end: int) -> Iterator[Row]:
        """Instant by instant: which value holds?"""
        at: dict[int, Row] = {row[3]: row for row in rows}  # of one time, the last one
        run: tuple[Row, int] | None = None
        current: Row | None = None
        for instant in range(rows[0][3], end + 1):
            current = at.get(instant, current)
            holds = current is not None and instant < end and (self.made.where is None or current[2])
            if run is not None and (not holds or current is None or current[1] != run[0][1]):
                yield run[0][0], run[0][1], (run[1], instant), instant == end
                run = None
            if holds and run is None and current is not None:
                run = current, instant


def table(rows: list[Timed], first: int = 0) -> pa.Table:
    numbers = range(first, first + len(rows))
    return to_table(rows, SCHEMA, numbers, numbers)


def rows_of(result: pa.Table | None) -> list[tuple[int, Row]]:
    if result is None:
        return []
    cast = result.cast(with_system_columns(to_arrow(OUTPUT)))
    return [(timed.ts, timed.row) for timed in timed_rows(cast, OUTPUT)]


def kernel(made: Coalesce, state: CoalescingState) -> CoalescingWithLate:
    return CoalescingWithLate(made, SCHEMA, OUTPUT.names, state)


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.integers(0, 40), st.booleans())
@example(1, 30, True)
def test_runs_are_those_of_brute_force(seed: int, rows: int, restarts: bool) -> None:
    random = Random(seed)
    made = operator(random)
    taken = arrivals(random, rows)
    reference = RowStep(coalesce_rows(made, SCHEMA, OUTPUT), [SCHEMA], OUTPUT)
    step = kernel(made, CoalescingState())
    wanted: list[tuple[int, Row]] = []
    found: list[tuple[int, Row]] = []
    first, until = 0, -(2**63)
    for part, known in pieces(random, taken) if taken else [([], END)]:
        complete = max([known, *(timed.ts for timed in part[-1:])])
        until = until if known == END else max(until, complete)
        expected, _ = reference.run([table(part)], [complete])
        wanted += rows_of(expected)
        result, _ = step.run(table(part, first), complete)
        found += rows_of(result)
        first += len(part)
        if restarts:
            step = kernel(made, stored(step.state))
            again = coalesce_rows(made, SCHEMA, OUTPUT)
            reference = RowStep(again, [SCHEMA], OUTPUT, known=stored(reference.state))
    assert found == wanted
    assert sorted(found) == sorted(BruteForce(made, taken, until).rows())


def test_a_window_without_a_beginning_keeps_single_tuples_as_long_as_a_late_one_may_come() -> None:
    late = LateTuples("s_late", "ts", 50)
    made = Coalesce(("v",), (), Window(FrameUnit.RANGE, None, 10), None, tells_open=True, late=late)
    step = CoalescingWithLate(made, SCHEMA, OUTPUT.names[1:], CoalescingState())
    for first in range(0, 2000, 100):
        part = [Timed(ts, (1, 7, True, ts)) for ts in range(first, first + 100)]
        step.run(table(part, first), first + 99)
    assert sum(len(piece.table) for piece in step.state.pieces) < 200


STREAM = """CREATE STREAM S(v int, ts timestamp) ORDER BY ts;
CREATE STREAM I(v int, ts timestamp) ORDER BY current_time;"""


@pytest.mark.parametrize(
    ("source", "options", "said"),
    [
        ("I(v) AS R RANGE 9 SECONDS SLIDES 3 SECONDS LATE 5 SECONDS", "", "tuples of R are never late"),
        ("S(v) AS R RANGE 9 ROWS SLIDES 3 ROWS LATE 5 SECONDS", "", "windows that count rows"),
        (
            "S(v) AS R RANGE 9 SECONDS SLIDES 3 SECONDS CHANGES LATE 5 SECONDS",
            "",
            "not possible with CHANGES",
        ),
        ("S(v) AS R RANGE 9 SECONDS SLIDES 3 SECONDS LATE 0 SECONDS", "", "later than this"),
        ("S(v) AS R RANGE 9 SECONDS SLIDES 3 SECONDS LATE 5", "", "LATE needs a length"),
        (
            "S(v) AS R RANGE 9 SECONDS SLIDES 3 SECONDS LATE 5 SECONDS",
            "WITH (memory = '5 tuples')",
            "may have been dropped",
        ),
    ],
)
def test_what_cannot_be_corrected_is_refused(source: str, options: str, said: str) -> None:
    with pytest.raises(EslError, match=said):
        bind(f"{STREAM} CREATE QUERY q {options} AS SELECT R.v, VALID(R) FROM {source};")
