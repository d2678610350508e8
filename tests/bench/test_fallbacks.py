"""Benchmark of calls by row: it covers every function, and `slicemill check` names the same calls."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from slicemill.catalog.expressions import Call
from slicemill.functions.evaluate import fallbacks
from slicemill.functions.render import render
from slicemill.functions.row_only import hint_by_row
from slicemill.functions.signatures import SCALARS
from slicemill_lab.bench.fallbacks import FallbackSizes, cpu_per_million, measured
from slicemill_lab.bench.inputs.scalar_calls import SCHEMA, calls

pytestmark = pytest.mark.every_commit  # compares results of the product

LIMITS = Path(__file__).parents[2] / "docs" / "limits.md"
WITHOUT_COLUMNS = {name for name, signature in SCALARS.items() if not signature.parameters}


def test_check_names_the_calls_without_a_kernel() -> None:
    wrong = {
        render(call) for call in calls() if bool(fallbacks(call, SCHEMA)) != (hint_by_row(call) is not None)
    }
    assert not wrong


def test_every_function_is_called() -> None:
    called = {call.function for call in calls() if isinstance(call, Call)}
    lists_and_periods = {
        name
        for name, signature in SCALARS.items()
        if signature.parameters
        and {signature.parameter(0), *signature.parameters} & {"list", "period", "element"}
    }
    assert SCALARS.keys() - called - WITHOUT_COLUMNS - lists_and_periods == set()


def test_the_page_has_a_row_for_every_function_without_a_kernel() -> None:
    by_row = {call.function for call in calls() if isinstance(call, Call) and fallbacks(call, SCHEMA)}
    (table,) = re.findall(r"(?s)## Row by row\n(.*?)\n## ", LIMITS.read_text(encoding="utf-8"))
    assert by_row <= set(re.findall(r"`(\w+)", table.lower()))


def test_a_call_and_a_query_are_measured() -> None:
    sizes = FallbackSizes(rows=20, run_rows=50, runs=1, rounds=1)
    (call,) = [call for call in calls() if render(call) == "md5(text)"]
    assert measured(call, sizes).us > 0
    assert cpu_per_million("SELECT k, avg(d) AS x FROM s GROUP BY k", sizes) > 0
