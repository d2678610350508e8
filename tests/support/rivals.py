"""Small workloads for systems that are measured over files."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

from slicemill_lab.bench.files.comparison import Comparison
from slicemill_lab.bench.files.systems import System
from slicemill_lab.bench.ingest import filters
from slicemill_lab.bench.inputs.bids import many_conditions, write_bids
from slicemill_lab.bench.inputs.events import write_events
from slicemill_lab.bench.inputs.join import write_input
from slicemill_lab.bench.join import joins, workload
from slicemill_lab.bench.windows import differences, windows


def assert_right(systems: Sequence[System], folder: Path) -> None:
    """Windows, joins and filters have the results that they should have, and something was measured."""
    paths = write_events(folder / "events", 3, 15_000)
    made = write_input(folder / "join", 3, 2_000, keys=100, rows_per_s=1_000)
    bids = write_bids(folder / "bids", 3, 1_000)
    with ExitStack() as programs:
        comparison = Comparison(folder, programs, 1)
        comparison.run(windows(paths, (1, 3)), systems, check=differences(paths, (1, 3)))
        comparison.run(workload(made, joins(4, 0.5, 2)), systems)
        comparison.run(filters(bids, many_conditions()[8:11]), systems)
    assert comparison.wrong == 0
    assert len(comparison.best) == 3 * len(systems)
    for phase in comparison.best.values():
        assert phase.results > 0 and phase.rows > 0 and phase.usage.peak_bytes > 0
