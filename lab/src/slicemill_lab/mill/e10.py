"""mill-E10: cost of an average as its window grows, in four implementations (E10, M32, M38).

A keeps a sum, from which EXPIRE subtracts leaving tuples. B does the same in Python. C keeps a sum without
EXPIRE: it stores the window in its own table and searches this table for expired tuples. D computes the
average from the window at each tuple. Window sizes are not printed (X18).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from random import Random

from slicemill_lab.claims import Claim, ascending, at_least, at_most, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.mill.windows import MEASURED, Cost, cost, defined, draw_costs, over_all, over_rows

WINDOWS: Mapping[Scale, tuple[int, ...]] = {"small": (20, 60, 200), "full": (100, 300, 1000)}
# Implementations that do not scan the window can have larger windows.
LARGE: Mapping[Scale, tuple[int, ...]] = {"small": (3_000,), "full": (10_000, 100_000)}
A, B, C, D = "A ESL with EXPIRE", "B Python with EXPIRE", "C ESL, delta without EXPIRE", "D ESL, naive"

ESL = """
CREATE WINDOW AGGREGATE a(next real) : real {
  TABLE state(total real, n int); TABLE inwindow(wnext real);
  INITIALIZE: { INSERT INTO state VALUES (next, 1); INSERT INTO RETURN VALUES (next); }
  ITERATE: {
    UPDATE state SET total = total + next, n = n + 1;
    INSERT INTO RETURN SELECT total / n FROM state; }
  EXPIRE: { UPDATE state SET total = total - oldest().wnext, n = n - 1; } };

CREATE WINDOW AGGREGATE b(next real) : real LANGUAGE PYTHON AS 'slicemill_lab.mill.e10:Average';

CREATE AGGREGATE c(next real, number int, size int) : real {
  TABLE state(total real, n int); TABLE recent(at int, v real);
  INITIALIZE: {
    INSERT INTO recent VALUES (number, next);
    INSERT INTO state VALUES (next, 1);
    INSERT INTO RETURN VALUES (next); }
  ITERATE: {
    UPDATE state SET total = total - (SELECT sum(v) FROM recent WHERE at <= number - size), n = n - 1
      WHERE n = size;
    DELETE FROM recent WHERE at <= number - size;
    INSERT INTO recent VALUES (number, next);
    UPDATE state SET total = total + next, n = n + 1;
    INSERT INTO RETURN SELECT total / n FROM state; } };

CREATE WINDOW AGGREGATE d(next real) : real {
  TABLE inwindow(wnext real);
  INITIALIZE: ITERATE: { INSERT INTO RETURN SELECT avg(wnext) FROM inwindow; } };
"""


class Average:
    """Implementation B."""

    def initialize(self, value: float) -> float:
        self.total, self.n = value, 1
        return value

    def iterate(self, value: float) -> float:
        self.total += value
        self.n += 1
        return self.total / self.n

    def expire(self, value: float) -> None:
        self.total -= value
        self.n -= 1


def run(seed: int, scale: Scale) -> Result:
    """Measure the cost of a tuple by implementation and window."""
    random = Random(seed)
    windows, large = WINDOWS[scale], WINDOWS[scale] + LARGE[scale]
    values = [random.uniform(0, 1000) for _ in range(max(large) + 2 * MEASURED)]
    costs = four_costs(ESL, values, windows, large)
    return Result(_claims(windows, costs), four_figures(large, costs), slower_in_esl(costs))


def plot(result: Result, path: Path) -> None:
    """Plot calls per tuple against the window."""
    draw_costs(
        path,
        result.figures["windows"],
        result.figures["calls_per_tuple"],
        "With EXPIRE a tuple costs the same however long the window is",
        "window [rows]",
    )


EXPERIMENT = Experiment(
    id="mill-E10",
    title="An average over a window: with EXPIRE, without, and computed anew",
    run=run,
    plot=plot,
)


def _claims(windows: tuple[int, ...], costs: Mapping[str, list[Cost]]) -> tuple[Claim, ...]:
    calls = {way: [one.calls for one in line] for way, line in costs.items()}
    slower = [a / b for a, b in zip(calls[A], calls[B], strict=True)]
    timed = [a.us / b.us for a, b in zip(costs[A], costs[B], strict=True)]
    a, c = (calls[way][len(windows) - 1] for way in (A, C))
    return (
        near("A is nearly constant: calls per tuple, greatest over least", spread(calls[A]), 1),
        near("B is nearly constant: calls per tuple, greatest over least", spread(calls[B]), 1),
        at_least(
            "A is slower than B: calls per tuple over those of B, least over all windows",
            min(slower),
            1,
            note="Printed: 10 to 20 % slower, with ESL compiled to native code. Here ESL is interpreted "
            f"statement by statement and B is Python: {min(slower):.1f} times the calls, "
            f"{min(timed):.1f} to {max(timed):.1f} times the time.",
        ),
        growth("D is linear in the window: its growth over that of the window", windows, calls[D]),
        ascending("C is slower than A: calls at the largest window", {A: a, C: c}),
        growth("C grows with the window as D does", windows, calls[C]),
        at_most("all give the same averages: greatest difference", difference(costs, len(windows)), 1e-6),
    )


def four_costs(
    esl: str, values: Sequence[float], windows: Sequence[int], large: Sequence[int]
) -> dict[str, list[Cost]]:
    """Return the cost of a tuple for each implementation and window. The aggregates are named a, b, c, d."""

    def of(name: str, window: int) -> Cost:
        rows = [(value,) for value in values[: window + 2 * MEASURED]]
        return cost(over_rows(defined(esl, name), window), rows)

    def of_own_window(window: int) -> Cost:
        rows = [(value, number, window) for number, value in enumerate(values[: window + 2 * MEASURED])]
        return cost(over_all(defined(esl, "c")), rows)

    return {
        A: [of("a", size) for size in large],
        B: [of("b", size) for size in large],
        C: [of_own_window(size) for size in windows],
        D: [of("d", size) for size in windows],
    }


def four_figures(windows: tuple[int, ...], costs: Mapping[str, list[Cost]]) -> dict[str, object]:
    return {
        "windows": list(windows),
        "calls_per_tuple": {way: [one.calls for one in line] for way, line in costs.items()},
        "us_per_tuple": {way: [one.us for one in line] for way, line in costs.items()},
    }


def slower_in_esl(costs: Mapping[str, list[Cost]]) -> dict[str, list[float]]:
    """Return by how many percent A has more calls than B, as the mean over the windows."""
    each = [100 * (a.calls / b.calls - 1) for a, b in zip(costs[A], costs[B], strict=True)]
    return {"A slower than B": [sum(each) / len(each)]}


def spread(values: list[float]) -> float:
    return max(values) / min(values)


def growth(what: str, windows: tuple[int, ...], calls: list[float]) -> Claim:
    """Claim that calls grow linearly with the window: the last slope equals the first."""
    steps = [(b - a) / (w - v) for (a, b), (v, w) in zip(pairwise(calls), pairwise(windows), strict=True)]
    return near(what, steps[-1] / steps[0], 1)


def difference(costs: Mapping[str, list[Cost]], windows: int) -> float:
    """Return the greatest difference between results of two implementations for the same tuple."""
    greatest = 0.0
    for place in range(windows):
        for answers in zip(*(line[place].answers for line in costs.values()), strict=True):
            greatest = max(greatest, max(answers) - min(answers))
    return greatest
