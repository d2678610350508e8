"""The compiled memory drops what the reference drops, and tells the same accuracy."""

from __future__ import annotations

from dataclasses import replace
from random import Random

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.coalesce.test_coalescing import SCHEMA, column, output, rows_of, table, tuples
from operators.over.streams import pieces
from slicemill import types as t
from slicemill.catalog.expressions import Call, ColumnRef, Literal
from slicemill.catalog.queries import Budget, FrameUnit, SelectItem, Window
from slicemill.operators.row_step import RowStep
from slicemill.operators.temporal import rows as budget_state
from slicemill.operators.temporal.rows import BudgetState, SheddingCoalesce
from slicemill.operators.temporal.spec import Coalesce
from slicemill.operators.temporal.step import BudgetedByTime
from slicemill.storage.state_size import state_bytes
from slicemill.types import PERIOD, Timed
from slicemill_oracle.translate import coalesce_rows
from support.stored import stored

WANTED = Call(
    ">=",
    (
        Call("whole_units", (ColumnRef("VALID", PERIOD), Literal(1, t.INTERVAL)), t.BIGINT),
        Literal(4, t.INT),
    ),
    t.BOOLEAN,
)


def operator(random: Random) -> Coalesce:
    window = Window(FrameUnit.RANGE, random.choice([None, 3, 6, 12, 30]), random.choice([1, 3, 5, 10]))
    keys = tuple(SelectItem(name, column(name)) for name in random.choice([(), ("k",), ("g",)]))
    budget = Budget(
        random.choice([1, 2, 4, 7, 30]),
        method=random.choice(["cals", "lookahead", "value", "threshold", "interval", "random"]),
        threshold=random.choice([2, 4, 9]),
    )
    if budget.method not in ("value", "interval", "random"):
        budget = replace(budget, weights=random.choice([None, None, (2.0, 1.0), (1.0, 0.5), (3.0, 0.0)]))
    where = random.choice([None, column("q")])
    wanted = random.choice([None, WANTED])
    tells_open = random.random() < 0.3
    changes = random.random() < 0.3
    return Coalesce(random.choice([("v",), ("s",)]), keys, window, where, budget, wanted, tells_open, changes)


@settings(max_examples=40)
@given(st.integers(0, 10**6), st.integers(0, 50), st.booleans())
@example(3, 50, True)
def test_what_is_left_is_what_the_reference_leaves(seed: int, rows: int, restarts: bool) -> None:
    random = Random(seed)
    made = operator(random)
    parts = pieces(random, tuples(random, rows)) if rows else [([], 2**63 - 1)]
    hosted = coalesce_rows(made, SCHEMA, output(made))
    assert isinstance(hosted, SheddingCoalesce)
    reference = RowStep(hosted, [SCHEMA], output(made))
    step = BudgetedByTime(made, SCHEMA, output(made).names, output(made), BudgetState())
    for part, complete in parts:
        expected, until = reference.run([table(part)], [complete])
        found, told = step.run(table(part), complete)
        assert sorted(rows_of(found, made)) == sorted(rows_of(expected, made))
        assert (told, step.due()) == (until, reference.due())
        if restarts:
            state = stored(step.state)
            step = BudgetedByTime(made, SCHEMA, output(made).names, output(made), state)
    mine, theirs = step.state.report, hosted.report
    assert (mine.arrived, mine.runs, mine.dropped) == (theirs.arrived, theirs.runs, theirs.dropped)
    assert (mine.in_window, mine.sampled) == (theirs.in_window, theirs.sampled)
    assert mine.accuracy == pytest.approx(theirs.accuracy)
    assert [b.accuracy for b in mine.buckets] == pytest.approx([b.accuracy for b in theirs.buckets])


def test_room_is_made_when_it_is_needed() -> None:
    made = Coalesce(("v",), (), Window(FrameUnit.RANGE, 2000, 100), None, Budget(10**12))
    step = BudgetedByTime(made, SCHEMA, output(made).names, output(made), BudgetState())
    for start in range(0, 500, 50):
        step.run(
            table([Timed(ts, (None, "a", float(ts), "x", True)) for ts in range(start, start + 50)]), start
        )
    assert step.state.report.dropped == 0
    assert state_bytes({"q": step.state}) < 100_000


def test_many_runs_are_sampled_alike_and_what_is_gone_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(budget_state, "FEW", 10)
    made = Coalesce(
        ("v",), (SelectItem("k", column("k")),), Window(FrameUnit.RANGE, 1500, 100), None, Budget(400)
    )
    hosted = coalesce_rows(made, SCHEMA, output(made))
    assert isinstance(hosted, SheddingCoalesce)
    step = BudgetedByTime(made, SCHEMA, output(made).names, output(made), BudgetState())
    random = Random(4)
    for start in range(0, 4000, 250):
        part = []
        for index in range(start, start + 250):
            row = (float(index // 50 + random.choice([0, 1])), "a", float(index // 2), "x", True)
            part.append(Timed(index, row))
        expected = [made_ for timed in part for made_ in hosted.process(0, timed)]
        found, _ = step.run(table(part), start)
        assert sorted(rows_of(found, made)) == sorted((one.ts, repr(one.row)) for one in expected)
    assert hosted.report.sampled < 1
    assert step.state.report.sampled == hosted.report.sampled
    assert step.state.report.accuracy == pytest.approx(hosted.report.accuracy)
    assert len(step.state.keys) < 100
