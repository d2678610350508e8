"""Three-way ring join on the engine, placed by time and as a cube, against brute force."""

from __future__ import annotations

from itertools import product

import pytest

from slicemill_lab import on_engine
from slicemill_lab.slice.ring.on_cluster import NodesRun, measured_nodes
from support.engine import inline_pool

SECOND = 1_000_000


def brute_force(run: NodesRun, seed: int) -> int:
    """Count triples that match pairwise and lie within the window at the arrival of the newest tuple."""
    streams: dict[str, list[tuple[int, int]]] = {name: [] for name in run.names}
    for tables in run.seconds(seed):
        for name, table in tables.items():
            times = table.column("ts").cast("int64").to_pylist()
            streams[name] += zip(times, table.column("h").to_pylist(), strict=True)
    bound = round(1000 * run.selectivity)
    found = 0
    for (ta, a), (tb, b) in product(streams["a"], streams["b"]):
        if (a + b) % 1000 < bound and abs(ta - tb) < run.window_s * SECOND:
            found += sum(
                (a + c) % 1000 < bound
                and (b + c) % 1000 < bound
                and max(ta, tb, tc) - min(ta, tb, tc) < run.window_s * SECOND
                for tc, c in streams["c"]
            )
    return found


@pytest.mark.parametrize("placement", ["time", "cube"])
def test_results_equal_those_of_brute_force(placement: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(on_engine, "make_pool", lambda: inline_pool(1))
    runs = [NodesRun(nodes, placement, 0.8, (40, 60, 40), selectivity=0.3) for nodes in (1, 3)]
    expected = brute_force(runs[0], 5)
    assert expected
    one, three = measured_nodes(runs, 5)
    assert one.results == three.results == expected
    assert (one.subtasks, three.subtasks) == (1, 3)
