"""Measured costs choose the method of each core statistic (C18) and do not change results."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.aggregates.calls import Tuples
from slicemill.aggregates.frames import WindowFrame
from slicemill.aggregates.udf.compiler.layout import PYTHON
from slicemill.binder import bind
from slicemill.catalog.expressions import ColumnRef
from slicemill.extensions.models.calls import ModelCall
from slicemill.extensions.models.compiler.calibration import measure_costs
from slicemill.extensions.models.compiler.together import ModelCalls
from slicemill.extensions.models.cores import CoreMethod
from slicemill.extensions.models.cost import ASSUMED, CoreCosts, core_costs, costs_file, store_core_costs
from slicemill.extensions.models.explain import explain_model, explain_model_json, models_named
from slicemill.extensions.models.model import expression
from slicemill.functions.vectors import from_values, to_values
from slicemill.testing import Clock, inline_pool
from slicemill.time import END
from slicemill.types import DOUBLE
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
FREE = CoreCosts(0, 0, 0, 0, 0, 1, 1, 1)  # only a reread of the window costs nothing
TEXTS = [
    "sum(abs(x))",
    "max(x) - min(x)",
    "median(x)",
    "gcd(x)",
    "sum(x*0.5^j)",
    "prod(x)",
    "lag(x, 1)",
    "any(x > 3)",
    "variance(x)",
    "mean(x)",
    "sum(x^2)",
]


def way(text: str, n: int, d: int, costs: CoreCosts) -> CoreMethod:
    model = expression(text)
    return costs.cheapest_method(model.cores[0], model.classes[0], n, d)


def test_the_cheapest_method_of_a_core_statistic_is_chosen() -> None:
    """Slide of d elements over n: delta takes 36 d, a reread 13 d + 10 n nanoseconds."""
    costs = CoreCosts(delta=36, deque=17, queue=5, ranked=31, stacks=25, keep=13, read=10, sort=5)
    assert way("sum(abs(x))", 100, 43, costs) is CoreMethod.DELTA
    assert way("sum(abs(x))", 100, 44, costs) is CoreMethod.RECOMPUTE
    assert way("max(x)", 100, 100, costs) is CoreMethod.DEQUE  # 1700 against 2300
    assert way("gcd(x)", 100, 80, costs) is CoreMethod.TWO_STACK  # 2000 against 2040
    assert way("gcd(x)", 100, 84, costs) is CoreMethod.RECOMPUTE  # 2100 against 2092
    assert way("median(x)", 1024, 128, costs) is CoreMethod.RANKED
    assert way("median(x)", 1024, 256, costs) is CoreMethod.RECOMPUTE
    assert way("sum(x*sin(i^2))", 100, 1, FREE) is CoreMethod.RECOMPUTE  # the only possible method


def test_costs_are_measured_once_for_each_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SLICEMILL_CACHE", str(tmp_path / "cache"))
    assert core_costs() == ASSUMED
    took = {"n": 2e-9, "sum(abs(x))": 40e-9, "median(x)": 92e-9}

    def seconds(text: str, slide: int, costs: CoreCosts) -> float:
        if costs.read == 0:  # reread: 5 ns to store, 3 ns to read, 27 ns to sort
            return 2e-9 + 5e-9 + (27e-9 if text == "median(x)" else 3e-9) * 512 / slide
        return took.get(text, 12e-9)

    found = measure_costs(seconds)
    expected = CoreCosts(
        delta=38, deque=10, queue=10, ranked=10, stacks=10, keep=5, read=3, sort=3, measured=True
    )
    for name in CoreCosts.__slots__:
        assert getattr(found, name) == pytest.approx(getattr(expected, name)), name
    assert store_core_costs(found) == costs_file() == tmp_path / "cache" / "model_costs.json"
    assert core_costs() == found
    record = json.loads(costs_file().read_text())
    others = [json.dumps({**record, "machine": "another"}), json.dumps({**record, "delta": math.inf})]
    for damaged in ("{", '{"delta": 1}', *others):
        costs_file().write_text(damaged)
        assert core_costs() == ASSUMED


@settings(max_examples=25, deadline=None)
@given(
    text=st.sampled_from(TEXTS),
    other=st.sampled_from(TEXTS),
    values=st.lists(st.integers(-9, 9).map(float), min_size=1, max_size=14),
    back=st.integers(0, 5),
    slide=st.integers(1, 4),
)
def test_results_do_not_depend_on_the_method(
    text: str, other: str, values: list[float], back: int, slide: int
) -> None:
    frame = WindowFrame("ROWS", back, slide)
    asked = [ModelCall(expression(t, ["x"]), (ColumnRef("x", DOUBLE),)) for t in dict.fromkeys((text, other))]
    found = []
    for costs in (None, replace(FREE, keep=0, read=0, sort=0, delta=1, deque=1, queue=1, ranked=1, stacks=1)):
        calls = ModelCalls(asked, frame, form=PYTHON, costs=costs)
        given_rows = Tuples(
            [from_values(values, DOUBLE)], np.zeros(len(values), np.int32), np.arange(len(values))
        )
        answers = calls.uda.run(calls.uda.start(), given_rows, END)
        found.append([to_values(column, len(answers.numbers)) for column in answers.columns])
    kept, again = found
    for one, two in zip(kept, again, strict=True):
        assert one == [None if v is None else pytest.approx(v, rel=1e-12, abs=1e-12) for v in two]


ESL = """CREATE STREAM s (v real, ts timestamp) ORDER BY ts;
CREATE MODEL middle(x REAL) AS median(x) + sum(abs(x));
CREATE QUERY q AS SELECT middle(v) OVER (ROWS 7 PRECEDING SLIDE 6) AS m FROM s;
"""


def test_explain_prints_the_cost_table_with_the_choice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICEMILL_CACHE", str(tmp_path))
    catalog = bind(ESL).catalog
    (definition,) = models_named("middle", catalog)
    assert "nanoseconds in a slide, as assumed: slicemill calibrate measures them" in explain_model(
        definition, catalog
    )
    store_core_costs(CoreCosts(delta=1, deque=1, queue=1, ranked=50, stacks=1, keep=2, read=2, sort=3))
    text = explain_model(definition, catalog)
    table = text.partition("nanoseconds in a slide, as measured on this machine\n")[2].splitlines()[:3]
    assert [line.split() for line in table] == [
        ["core", "method", "ns", "blocking", "ns", "chosen"],
        ["median(x)", "two", "heaps", "900", "84", "recomputation"],
        ["sum(abs(x))", "delta", "6", "28", "delta"],
    ]
    (costs,) = json.loads(explain_model_json(definition, catalog))["costs"]
    assert costs["measured"] and [way["chosen"] for way in costs["ways"]] == ["recomputation", "delta"]


def test_a_running_query_keeps_the_costs_of_its_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICEMILL_COMPILE", "never")
    monkeypatch.setenv("SLICEMILL_CACHE", str(tmp_path / "cache"))
    values = [float(v % 7) for v in range(30)]
    rows = [(value, place * SECOND) for place, value in enumerate(values)]
    pool = inline_pool()
    for number, costs in enumerate((FREE, replace(ASSUMED, ranked=500, delta=500))):
        store_core_costs(costs)
        mill = fed_mill(tmp_path / "home", Clock(), pool)
        mill.execute(ESL)
        mill.open()
        feed_rows(mill, "s", rows[number * 15 : (number + 1) * 15])
        mill.dispatcher.run_all()
        if number == 0:
            mill.close()
    finish(mill)
    found = [timed.row[0] for timed in mill.queries["q"].timed_rows()]
    mill.close()
    model = expression("median(x) + sum(abs(x))")
    wanted = [model.value([{"x": v} for v in values[max(0, end - 8) : end]]) for end in range(6, 31, 6)]
    assert found == [pytest.approx(float(value)) for value in wanted]
