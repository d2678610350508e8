"""mill-E11: cost of approximate frequent items, with more work per tuple than mill-E10 (E11, M41).

There is an array of counters for each of two hash functions. An arriving item increments its cell in both
arrays, an expiring item decrements both. The lower of an item's two counters estimates its frequency in the
window. The four implementations are those of mill-E10.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from random import Random

from slicemill_lab.claims import Claim, ascending, at_least, at_most, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.e10 import (
    A,
    B,
    C,
    D,
    difference,
    four_costs,
    four_figures,
    growth,
    slower_in_esl,
    spread,
)
from slicemill_lab.mill.windows import MEASURED, Cost, draw_costs

WINDOWS: Mapping[Scale, tuple[int, ...]] = {"small": (20, 40, 80), "full": (20, 60, 200)}
LARGE: Mapping[Scale, tuple[int, ...]] = {"small": (1_000,), "full": (3_000, 30_000)}
ITEMS = 200
# The hash functions are the remainders of two divisions.
CELLS = (13, 16)

_CELLS = ", ".join(f"({size}, {cell}, 0)" for size in CELLS for cell in range(size))
_START = f"INSERT INTO cells VALUES {_CELLS};"
_COUNT = "UPDATE cells SET n = n + 1 WHERE cell = item % f;"
_ESTIMATE = "INSERT INTO RETURN SELECT min(n) FROM cells WHERE cell = item % f;"

ESL = f"""
CREATE WINDOW AGGREGATE a(item int) : int {{
  TABLE cells(f int, cell int, n int); TABLE inwindow(witem int);
  INITIALIZE: {{ {_START} {_COUNT} {_ESTIMATE} }}
  ITERATE: {{ {_COUNT} {_ESTIMATE} }}
  EXPIRE: {{ UPDATE cells SET n = n - 1 WHERE cell = item % f; }} }};

CREATE WINDOW AGGREGATE b(item int) : int LANGUAGE PYTHON AS 'slicemill_lab.mill.e11:Frequency';

CREATE AGGREGATE c(item int, number int, size int) : int {{
  TABLE cells(f int, cell int, n int); TABLE recent(at int, v int); TABLE gone(v int);
  INITIALIZE: {{ INSERT INTO recent VALUES (number, item); {_START} {_COUNT} {_ESTIMATE} }}
  ITERATE: {{
    DELETE FROM gone;
    INSERT INTO gone SELECT v FROM recent WHERE at <= number - size;
    DELETE FROM recent WHERE at <= number - size;
    INSERT INTO recent VALUES (number, item);
    UPDATE cells SET n = n - 1 WHERE cell = (SELECT v FROM gone) % f;
    {_COUNT} {_ESTIMATE} }} }};

CREATE AGGREGATE d(item int) : int {{
  TABLE cells(f int, cell int, n int);
  INITIALIZE: {{ {_START} {_COUNT} }}
  ITERATE: {{ {_COUNT} }}
  TERMINATE: {{ {_ESTIMATE} }} }};
"""


class Frequency:
    """Implementation B."""

    def __init__(self) -> None:
        self.cells = {size: [0] * size for size in CELLS}

    def initialize(self, item: int) -> int:
        for size, cells in self.cells.items():
            cells[item % size] += 1
        return min(cells[item % size] for size, cells in self.cells.items())

    iterate = initialize

    def expire(self, item: int) -> None:
        for size, cells in self.cells.items():
            cells[item % size] -= 1


def run(seed: int, scale: Scale) -> Result:
    """Measure the cost of a tuple by implementation and window."""
    random = Random(seed)
    windows, large = WINDOWS[scale], WINDOWS[scale] + LARGE[scale]
    items = [random.randrange(ITEMS) for _ in range(max(large) + 2 * MEASURED)]
    costs = four_costs(ESL, items, windows, large)
    return Result(_claims(windows, costs), four_figures(large, costs), slower_in_esl(costs))


def plot(result: Result, path: Path) -> None:
    """Plot calls per tuple against the window."""
    draw_costs(
        path,
        result.figures["windows"],
        result.figures["calls_per_tuple"],
        "Where counting costs more, keeping the window by hand matters less",
        "window [rows]",
    )


EXPERIMENT = Experiment(
    id="mill-E11",
    title="Frequent items in a window: with EXPIRE, without, and computed anew",
    run=run,
    plot=plot,
)


def _claims(windows: tuple[int, ...], costs: Mapping[str, list[Cost]]) -> tuple[Claim, ...]:
    calls = {way: [one.calls for one in line] for way, line in costs.items()}
    slower = min(a / b for a, b in zip(calls[A], calls[B], strict=True))
    a, c, d = (calls[way][len(windows) - 1] for way in (A, C, D))
    return (
        near("A is nearly constant: calls per tuple, greatest over least", spread(calls[A]), 1),
        near("B is nearly constant: calls per tuple, greatest over least", spread(calls[B]), 1),
        at_least(
            "A is slower than B: calls per tuple over those of B, least over all windows",
            slower,
            1,
            note="Printed: 10 to 20 % slower, with ESL compiled to native code. Here ESL is interpreted, and "
            "looks for a cell among all of them, where Python knows its place.",
        ),
        growth("D is linear in the window: its growth over that of the window", windows, calls[D]),
        ascending("C is slower than A: calls at the largest window", {A: a, C: c}),
        at_most(
            "C is not as bad as computing anew: calls over those of D at the largest window",
            c / d,
            1,
            note=f"C is at {c / a:.1f} times A, D at {d / a:.1f} times A; in mill-E10 C is as bad as D.",
        ),
        at_most(
            "C's keeping of the window no longer dominates: its share of the calls at the smallest window",
            1 - calls[A][0] / calls[C][0],
            0.5,
            note="Tables of an aggregate are looked through row by row here, so it does again in long "
            f"windows: {1 - a / c:.0%} at {windows[-1]} rows. For an average it is nine tenths at once.",
        ),
        at_most("all give the same estimates: greatest difference", difference(costs, len(windows)), 0),
    )
