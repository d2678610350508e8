"""Units set at a time, without Spark: the corpus, cut into runs anywhere, gives the same rows."""

from __future__ import annotations

import pytest

from support.corpus import Case, check_rows, parameters, prepare
from support.units import run_units

# Late tuples are put aside when a stream is read, before the log; a query over tables alone is no unit.
BEYOND_UNITS = ("late", "adhoc")


@pytest.mark.parametrize("case", parameters(BEYOND_UNITS))
def test_runs_cut_anywhere_and_any_number_of_cells_give_the_rows_of_the_case_in_order(case: Case) -> None:
    runnable = prepare(case)
    found = []
    for seed, cells in ((1, 1), (2, 2), (3, 5), (4, 1)):
        results = run_units(runnable.catalog, runnable.events, runnable.tables, seed, cells)
        for query, expected in runnable.expected.items():
            check_rows(expected, results[query.lower()], f"{query}, seed {seed}, {cells} cells")
        # The order is one, also where the case does not ask for one; NaN is no reason for another.
        found.append(repr(results))
    assert len(set(found)) == 1
