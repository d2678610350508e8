"""Classifiers of the experiments on the engine: every task is decided, within the configured observations."""

from __future__ import annotations

import pytest

from slicemill_lab import on_engine
from slicemill_lab.mill.classify import BFF, RANDOM
from slicemill_lab.mill.engine import classifying
from slicemill_lab.mill.engine.classifying import classified, walks_to_classify
from support.engine import inline_pool


def test_the_number_of_observed_values_is_that_of_values_not_shed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_engine, "make_pool", lambda: inline_pool(1))
    problem = walks_to_classify(1, 200, 8)
    found = {share: classified(problem, BFF, share, 1) for share in (0, 50, 90)}
    assert {share: one.looked_at for share, one in found.items()} == {0: 100, 50: 50, 90: 10}
    assert found[0].error < 0.2 and found[0].error <= found[90].error < 0.6


def test_unobserved_values_cost_no_cpu_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_engine, "make_pool", lambda: inline_pool(1))
    monkeypatch.setattr(classifying, "LOOK_S", 0.001)
    problem = walks_to_classify(1, 60, 4)
    whole, few = (classified(problem, RANDOM, share, 1, looking_costs=True) for share in (0, 90))
    assert whole.cpu_s > 0.1 and few.cpu_s < whole.cpu_s / 2
