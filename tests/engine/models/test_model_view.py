"""Live values of models (C19): the cores and results of a running query are those of its windows."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slicemill.cli import app
from slicemill.extensions.models.canonical_graphs import execution_graph
from slicemill.extensions.models.model import expression
from slicemill.testing import Clock, inline_pool
from support.engine import fed_mill, feed_rows

SECOND = 1_000_000
VALUES = [3.0, 1.0, 4.0, 1.0, 5.0, 9.0, 2.0]
MODELS = {
    "spread": "sum(x^2)/n - (sum(x)/n)^2",
    "reach": "max(x) - min(x)",
    "middle": "median(x)",
    "fading": "sum(x*0.5^j)",
    "far": "let m = mean(x) in sum(abs(x - m))",
    "signs": "all(x > 0)",
}


def test_values_of_a_running_model_are_those_of_its_window(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLICEMILL_COMPILE", "never")
    mill = fed_mill(tmp_path, Clock(), inline_pool(), subtasks=2)
    models = "".join(f"CREATE MODEL {name}(x REAL) AS {text};\n" for name, text in MODELS.items())
    calls = ", ".join(f"{name}(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS {name}" for name in MODELS)
    try:
        mill.execute(f"CREATE STREAM s (k varchar, v real, ts timestamp) ORDER BY ts;\n{models}")
        query = mill.query(f"SELECT k, {calls} FROM s")
        mill.open()
        rows = [(k, v + (k == "b"), at * SECOND) for at, v in enumerate(VALUES) for k in ("a", "b")]
        feed_rows(mill, "s", rows[:9])
        mill.dispatcher.run_all()
        assert {len(found["partitions"]) for found in query.model_values()} == {2}
        feed_rows(mill, "s", rows[9:])
        mill.dispatcher.run_all()
        found = query.model_values()
    finally:
        mill.close()
    assert [one["model"] for one in found] == list(MODELS.values())
    for record in found:
        model = expression(record["model"])
        assert (record["query"], record["arguments"]) == (query.name, ["v"])
        for partition in record["partitions"]:
            window = [{"x": value + (partition["key"] == ["b"])} for value in VALUES[-3:]]
            assert partition["elements"] == 3
            assert partition["result"] == pytest.approx(model.value(window))
            nodes = {node.id for node in execution_graph(model).nodes}
            for core in partition["cores"]:
                assert core["node"] in nodes
                if "pivot" not in core["core"] and not model.lets:
                    wanted = expression(core["core"].replace("v", "x"))
                    assert core["value"] == pytest.approx(float(wanted.value(window)))
        assert sorted(partition["key"] for partition in record["partitions"]) == [["a"], ["b"]]
    json.dumps(found)
    printed = CliRunner().invoke(app, ["state", str(tmp_path), "--json"])
    assert json.loads(printed.stdout)["models"] == found
