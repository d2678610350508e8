"""Models over two streams (C23): a join pairs the elements, then the model runs over one stream of pairs."""

from __future__ import annotations

import pytest

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.extensions.models.binder import with_model
from slicemill.extensions.models.model import expression
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate

SECOND = 1_000_000
STREAMS = """CREATE STREAM A(at timestamp, a real) ORDER BY at;
CREATE STREAM B(at timestamp, b real) ORDER BY at;"""
EQUAL_CLOCKS = f"""{STREAMS}
CREATE STREAM Pairs AS SELECT A.at AS at, a, b
  FROM A [RANGE 1 SECONDS], B [RANGE 1 SECONDS] WHERE A.at = B.at;
CREATE QUERY q AS SELECT at, slope_of(a, b) OVER (ROWS 3 PRECEDING) AS s FROM Pairs;"""
# Each element is paired with the latest element of the other stream.
AS_OF = f"""{STREAMS}
CREATE STREAM Pairs AS SELECT a, b FROM A [ROWS 1], B [ROWS 1];
CREATE QUERY q AS SELECT a, b, slope_of(a, b) OVER (ROWS 3 PRECEDING) AS s FROM Pairs;"""


def results(text: str, arrivals: list[tuple[str, int, float]]) -> list[tuple[object, ...]]:
    catalog = bind(text, with_model("slope_of", expression("slope(x, y)"), Catalog())).catalog
    engine = Engine(translate(optimize(build_graph(catalog)), catalog, {}))
    for stream, second, value in arrivals:
        ts = second * SECOND
        engine.feed(stream, [Arrival(ts, (ts, value), ts)])
        engine.run_until_idle()
    engine.run()
    return [timed.row for timed in engine.results("q")]


def slope_of(pairs: list[tuple[float, float]]) -> float | None:
    value = expression("slope(x, y)").value([{"x": x, "y": y} for x, y in pairs])
    return None if value is None else float(value)


def test_streams_with_one_clock_are_paired_by_time() -> None:
    a, b = [1.0, 2.0, 4.0, 3.0, 8.0], [2.0, 3.0, 5.0, 4.0, 1.0]
    arrivals = [
        (stream, second, values[second - 1])
        for second in range(1, 6)
        for stream, values in (("A", a), ("B", b))
    ]
    pairs = list(zip(a, b, strict=True))
    windows = [pairs[max(0, k - 3) : k + 1] for k in range(5)]
    assert [row[1] for row in results(EQUAL_CLOCKS, arrivals)] == [slope_of(window) for window in windows]


def test_streams_with_different_clocks_are_paired_as_of() -> None:
    arrivals = [("A", 1, 1.0), ("B", 2, 5.0), ("A", 3, 2.0), ("A", 4, 4.0), ("B", 7, 6.0), ("A", 9, 5.0)]
    found = results(AS_OF, arrivals)
    pairs = [(1.0, 5.0), (2.0, 5.0), (4.0, 5.0), (4.0, 6.0), (5.0, 6.0)]
    assert [row[:2] for row in found] == pairs
    for k, row in enumerate(found):
        assert row[2] == (None if k == 0 else pytest.approx(slope_of(pairs[max(0, k - 3) : k + 1])))
