"""Run slots: where nothing has to go, what is shown is exact, also of runs that a window partly passed."""

from __future__ import annotations

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from operators.coalesce.test_coalescing import SCHEMA, column, output, rows_of, table, tuples
from slicemill.catalog.queries import Budget, FrameUnit, SelectItem, Slot, Window
from slicemill.operators.row_step import RowStep
from slicemill.operators.temporal.rows import SheddingCoalesce
from slicemill.operators.temporal.spec import Coalesce
from slicemill.types import Timed
from slicemill_oracle.translate import coalesce_rows
from support.stored import stored

ALL = Budget(10**6, Slot.RUNS)


@settings(max_examples=80)
@given(st.integers(0, 10**6), st.integers(1, 60), st.booleans())
def test_with_slots_for_all_runs_the_result_is_exact(seed: int, rows: int, restarts: bool) -> None:
    random = Random(seed)
    window = Window(FrameUnit.RANGE, random.choice([3, 7, 12, 30]), random.choice([1, 2, 3, 5, 10]))
    keys = tuple(SelectItem(name, column(name)) for name in random.choice([(), ("k",), ("g",)]))
    where = random.choice([None, column("q")])
    made = Coalesce(("s",), keys, window, where, ALL)
    exact = Coalesce(("s",), keys, window, where)
    few = RowStep(coalesce_rows(made, SCHEMA, output(made)), [SCHEMA], output(made))
    all_ = RowStep(coalesce_rows(exact, SCHEMA, output(exact)), [SCHEMA], output(exact))
    for timed in [*tuples(random, rows), None]:
        part, complete = ([timed], timed.ts) if timed is not None else ([], 2**63 - 1)
        found, _ = few.run([table(part)], [complete])
        wanted, _ = all_.run([table(part)], [complete])
        assert sorted(rows_of(found, made)) == sorted(rows_of(wanted, exact))
        if restarts:
            again = coalesce_rows(made, SCHEMA, output(made))
            few = RowStep(again, [SCHEMA], output(made), known=stored(few.state))


def test_of_each_slide_one_tuple_is_known_beside_the_runs() -> None:
    made = Coalesce(("s",), (), Window(FrameUnit.RANGE, 1000, 100), None, ALL)
    operator = coalesce_rows(made, SCHEMA, output(made))
    assert isinstance(operator, SheddingCoalesce)
    for ts in range(5000):
        operator.process(0, Timed(ts, (None, "a", 1.0, "x", True)))
    assert operator._memory.held == 1
    assert operator._memory.extra_timestamps <= 11
