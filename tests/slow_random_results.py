"""100,000 random results of set operations, ranks, grouping sets and changelogs (`make test-slow`).

A result is the table of a query's changes at one moment, compared with DuckDB's answer over the rows so far.
`python tests/slow_random_results.py FIRST_SEED SCENES` compares other seeds and reports the counts.
"""

from __future__ import annotations

import sys

from support.random_results import Compared, compare

_RESULTS = 100_000


def test_no_random_result_differs_from_duckdb() -> None:
    found, seed = Compared(), 0
    while sum(found.tables.values()) < _RESULTS:
        compare(seed, 10, 60, found, reference=seed % 4 == 0)
        assert not found.wrong, found.wrong[0]
        seed += 1
    assert not found.refused, found.refused
    print(report(found))


def report(found: Compared) -> str:
    counts = sorted(found.tables.items())
    lines = [f"{kind:24} {count:8} tables {found.rows[kind]:8} rows" for kind, count in counts]
    totals = f"{'all':24} {sum(found.tables.values()):8} tables {sum(found.rows.values()):8} rows"
    return "\n".join([*lines, totals, f"{len(found.wrong)} wrong", f"refused: {dict(found.refused)}"])


if __name__ == "__main__":
    compared = Compared()
    for number in range(int(sys.argv[1]), int(sys.argv[1]) + int(sys.argv[2])):
        compare(number, 10, 60, compared, reference=number % 4 == 0)
        for mistake in compared.wrong:
            print(mistake)
        compared.wrong.clear()
    print(report(compared))
