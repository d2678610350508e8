"""Models give the rows that the reference engine finds by reading each window anew.

Queries keep equal cores once, which nobody sees, also not after a restart.
"""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from slicemill.api.mill import Mill
from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.extensions.models.binder import with_model
from slicemill.extensions.models.model import expression
from slicemill.plan.build import build_graph
from slicemill.plan.optimizer import optimize
from slicemill.testing import inline_pool
from slicemill.types import Timed
from slicemill_oracle.engine import Engine
from slicemill_oracle.sources import Arrival
from slicemill_oracle.translate import translate
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
MODELS = {
    "line": "slope(x, y)",
    "fading": "sum(x*0.5^age)",
    "centre": "mean(x)",
    "far": "let m = mean(x) in sum(abs(x - m))",
}
STREAM = "CREATE STREAM S(at timestamp, k int, a real, b real) ORDER BY at;"
ESL = """
CREATE QUERY q1 AS SELECT at, k, line(a, b) OVER (PARTITION BY k ROWS 3 PRECEDING) AS s,
  far(a) OVER (PARTITION BY k ROWS 3 PRECEDING) AS f FROM S;
CREATE QUERY q2 AS SELECT at, k, fading(a, at) OVER (PARTITION BY k RANGE 5 SECONDS PRECEDING) AS f FROM S;"""
ALSO = """
CREATE QUERY q3 AS SELECT at, k, centre(a) OVER (PARTITION BY k ROWS 3 PRECEDING) AS m FROM S;"""
ROWS = [
    (second * SECOND, second % 2, None if second % 5 == 0 else float(second * 7 % 11), float(second % 4))
    for second in range(1, 25)
]


def catalog() -> Catalog:
    found = Catalog()
    for name, text in MODELS.items():
        found = with_model(name, expression(text), found)
    return found


def on_reference() -> dict[str, list[Timed]]:
    bound = bind(STREAM + ESL + ALSO, catalog()).catalog
    engine = Engine(translate(optimize(build_graph(bound)), bound, {}))
    for row in ROWS:
        engine.feed("S", [Arrival(row[0], row, row[0])])
        engine.run_until_idle()
    engine.run()
    return {name: list(engine.results(name)) for name in bound.queries}


def on_engine(home: Path, esl: str, restart_at: int = 0) -> dict[str, list[Timed]]:
    """The rows come in batches of ten; before one of them the mill is started anew."""
    mill = opened(home, esl)
    for batch, first in enumerate(range(0, len(ROWS), 10)):
        if batch == restart_at:
            mill.close()
            mill = opened(home, esl)
        feed_rows(mill, "S", ROWS[first : first + 10])
        mill.dispatcher.run_some()
    finish(mill)
    found = {name: list(mill.queries[name].timed_rows()) for name in mill.catalog.queries}
    assert list(mill.dispatcher.tasks) == ["aggregates of S by k"]
    mill.close()
    return found


def opened(home: Path, esl: str) -> Mill:
    mill = fed_mill(home, lambda: 0, inline_pool(), subtasks=2)
    mill.running.catalog = catalog()
    mill.execute(esl)
    mill.open()
    return mill


def plain(rows: list[Timed]) -> list[tuple[object, ...]]:
    return sorted((row.ts, *row.row) for row in rows)


@pytest.mark.slow_cpu
def test_models_give_the_rows_of_their_definitions(tmp_path: Path) -> None:
    expected, found = on_reference(), on_engine(tmp_path / "all", STREAM + ESL + ALSO, restart_at=1)
    for name in ("q1", "q2", "q3"):
        assert len(expected[name]) == len(found[name]) > 0
        for wanted, row in zip(plain(expected[name]), plain(found[name]), strict=True):
            for a, b in zip(wanted, row, strict=True):
                assert a == b or math.isclose(a, b, rel_tol=1e-9, abs_tol=1e-9), (name, wanted, row)
    alone = on_engine(tmp_path / "alone", STREAM + ALSO)
    assert plain(alone["q3"]) == plain(found["q3"])
