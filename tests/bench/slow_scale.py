"""The whole scale benchmark, over tiny cases (`make test-slow`)."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import pytest
from rich.console import Console

from slicemill_lab.bench import scale
from slicemill_lab.bench.inputs.scale import CASES, ONE_KEY
from slicemill_lab.bench.measuring.executors import WALL_SUBTASKS
from slicemill_lab.experiment import to_json


def test_tables_fit_the_terminal_and_name_every_case_and_placement(monkeypatch: pytest.MonkeyPatch) -> None:
    tiny = tuple(
        replace(case, values=100, rows_per_batch=200, rows_per_s=200, window_s=0.5) for case in CASES
    )
    monkeypatch.setattr(scale, "CASES", tiny)
    monkeypatch.setattr(scale, "ONE_KEY", tiny[CASES.index(ONE_KEY)])
    monkeypatch.setattr(scale, "CELLS", (1, 8))
    # A cluster takes a minute to start; the benchmark itself and the slow tests use one.
    monkeypatch.setattr(scale, "wall_seconds", lambda *_: {str(subtasks): 1.0 for subtasks in WALL_SUBTASKS})
    result = scale.run("small")
    (counted,) = [claim for claim in result.claims if claim.what == "runs with rows too many or missing"]
    assert counted.holds
    assert len(result.claims) == 2 + 2 * len(tiny) + 1 + len(scale.OVERLAPS)
    assert json.loads(to_json("scale", result))["figures"]["cases"]["theta, a band"]["8"]["subtasks"] == 8
    console = Console(width=110, record=True, file=io.StringIO())
    for table in scale.tables(result):
        console.print(table)
    shown = console.export_text()
    for words in (*(case.name for case in tiny), "hypercube", "key", "time", "seconds on the wall"):
        assert words in shown
    assert "…" not in shown
