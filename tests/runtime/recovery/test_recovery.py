"""kill -9 of drivers and a worker: nothing is lost, nothing comes twice. `make recovery` kills far more."""

from __future__ import annotations

from pathlib import Path

from runtime.recovery.chain import Chain, shared_jvm
from runtime.recovery.points import SHORT


def test_after_five_kills_results_are_those_of_an_uninterrupted_run(tmp_path: Path) -> None:
    with shared_jvm() as jvm:
        Chain(tmp_path, jvm).run(SHORT)
