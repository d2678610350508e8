"""Experiments on a standalone cluster give the counts of workers in this process."""

from __future__ import annotations

import pytest

from slicemill_lab import on_engine
from slicemill_lab.slice.ring.on_cluster import MeasuredNodes, NodesRun, measured_nodes
from support.engine import inline_pool

RUNS = [NodesRun(nodes, placement, 0.8, (40, 60, 40)) for placement in ("time", "cube") for nodes in (1, 4)]


def counted(found: list[MeasuredNodes]) -> list[tuple[int, int]]:
    return [(one.results, one.subtasks) for one in found]


def test_counts_on_a_cluster_equal_those_of_workers_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    on_cluster = counted(measured_nodes(RUNS, 5))
    monkeypatch.setattr(on_engine, "make_pool", lambda: inline_pool(1))
    assert counted(measured_nodes(RUNS, 5)) == on_cluster
