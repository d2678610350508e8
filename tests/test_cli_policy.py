"""Policy options of the command line that need no Spark."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slicemill.cli import app
from slicemill.scheduling.policies import UnknownPolicyError

SCRIPT = """
CREATE STREAM s (a int) USING json OPTIONS (path 'x.json');
SET policy = 'HNR';
CREATE QUERY q WITH (weight = 2, slo = 'p99 < 2 s') AS SELECT a FROM s;
"""


def test_an_unknown_policy_is_reported_before_spark_starts(tmp_path: Path) -> None:
    (tmp_path / "x.esl").write_text(SCRIPT)
    result = CliRunner().invoke(app, ["run", str(tmp_path / "x.esl"), "--policy", "hrn"])
    assert isinstance(result.exception, UnknownPolicyError)
    with pytest.raises(UnknownPolicyError, match="there is no policy hrn; did you mean hr or hnr"):
        raise result.exception


def test_check_shows_settings_and_query_options(tmp_path: Path) -> None:
    (tmp_path / "x.esl").write_text(SCRIPT)
    result = CliRunner().invoke(app, ["check", str(tmp_path / "x.esl"), "--json"])
    found = [(s["kind"], s["name"], s["what"]) for s in json.loads(result.output)["statements"]]
    assert found[1:] == [("set", "policy", "hnr"), ("query", "q", "a; weight 2, slo p99 < 2 seconds")]
