"""`explain --model`: class and reason, state, core statistics, and the cost of a slide."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slicemill.binder import bind
from slicemill.cli import app
from slicemill.errors import SlicemillError
from slicemill.extensions.models.explain import explain_model, explain_model_json, models_named

ESL = """
CREATE STREAM s(a real, b real, ts timestamp) ORDER BY ts;
CREATE MODEL spread(x REAL) AS variance(x);
CREATE MODEL odd(x REAL) AS sum(log(i)*x) + sum(x);
CREATE QUERY one AS SELECT spread(a) OVER (ROWS 99 PRECEDING SLIDE 10) AS v,
  odd(a) OVER (ROWS 9 PRECEDING) AS o FROM s;
CREATE QUERY two AS SELECT spread(a) AS v FROM s [RANGE 10 SECONDS SLIDE 1 SECOND];
"""


def explained(name: str) -> list[str]:
    catalog = bind(ESL).catalog
    return explain_model(models_named(name, catalog)[0], catalog).splitlines()


def test_text_has_class_reason_state_and_core_statistics() -> None:
    lines = explained("odd")
    assert lines[0] == "odd(x DOUBLE) = sum(log(i)*x) + sum(x)"
    assert lines[2].startswith("class   BLOCKING: not uniform: uses position i")
    assert lines[3] == "state   1 number besides the elements of the window"
    assert lines[5] == "cores   2 core statistics, which the formula uses 2 times"
    assert "cores   3 core statistics, which the formula uses 6 times" in explained("spread")
    table = [line.split() for line in lines]
    assert ["sum(x)", "INCREMENTAL", "delta", "1", "number", "spread", "uniform,"] in [
        row[:7] for row in table
    ]


def test_text_has_the_cost_of_a_slide_for_each_window_of_the_script() -> None:
    lines = explained("spread")
    index = lines.index("calls in a slide, ROWS 99 SLIDE 10: n = 100, d = 10")
    rows = {line.split()[0]: line.split()[1:] for line in lines[index + 2 : index + 7]}
    # Three sums: each new and each old element once, against a recomputation over all elements.
    assert rows["incremental"] == ["60", "60", "30", "3"]
    assert rows["blocking"] == ["300", "297", "0", "0"]
    supposed = "calls in a slide, RANGE 10 SECONDS SLIDE 1 SECOND, if it has 1000 elements: n = 1000, d = 100"
    assert supposed in lines


def test_json_has_the_content_of_the_text_and_the_graph() -> None:
    catalog = bind(ESL).catalog
    record = json.loads(explain_model_json(models_named("ODD", catalog)[0], catalog))
    assert (record["name"], record["class"], record["parameters"]) == ("odd", "BLOCKING", ["x"])
    assert [core["also_in"] for core in record["cores"]] == [[], ["spread"]]
    assert record["costs"][0]["blocking"] == {
        "transforms": 20, "combinations": 18, "inverses": 0, "stored": 0,
    }  # fmt: skip
    assert {node["op"] for node in record["graph"]["nodes"]} == {"S", "W", "F", "M", "T", "Ac"}


def test_a_built_in_model_is_explained_and_a_misspelt_name_has_a_hint() -> None:
    catalog = bind("").catalog
    assert "correlation(x DOUBLE, y DOUBLE)" in explain_model(
        models_named("correlation", catalog)[0], catalog
    )
    with pytest.raises(SlicemillError, match="there is no model corelation; did you mean correlation"):
        models_named("corelation", catalog)[0]


def test_the_explain_command_draws_a_model(tmp_path: Path) -> None:
    script = tmp_path / "s.esl"
    script.write_text(ESL, encoding="utf-8")
    picture = tmp_path / "odd.svg"
    runner = CliRunner()
    drawn = runner.invoke(
        app, ["explain", str(script), "--model", "odd", "--format", "svg", "-o", str(picture)]
    )
    assert drawn.exit_code == 0 and picture.read_text(encoding="utf-8").startswith("<svg")
    assert "class   INCREMENTAL" in runner.invoke(app, ["explain", str(script), "--model", "spread"]).output
    listed = runner.invoke(app, ["check", str(script), "--json"])
    assert '"model"' in listed.output
