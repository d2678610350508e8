"""kill -9 of drivers and workers, again and again, before and after every kind of write, link and commit."""

from __future__ import annotations

from pathlib import Path

import pytest

from recovery.chain import Chain
from recovery.drivers import Drivers
from recovery.points import SHORT


@pytest.mark.slow_cpu
def test_results_are_those_of_an_uninterrupted_run(drivers: Drivers, database: str, tmp_path: Path) -> None:
    chain = Chain(tmp_path, database, SHORT, files=1)
    chain.kill_at(SHORT, drivers)
    chain.finish(drivers)
