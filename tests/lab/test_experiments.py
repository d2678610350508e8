"""Every experiment that takes a few seconds, at small scale; `slow_experiments.py` has the long experiments.

`make test` runs one experiment on the engine, `make test-lab` runs this whole module.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill_lab.registry import experiment_ids
from support.experiments import LONG, check_experiment

EVERY_COMMIT = {"mill-spark-E6"}
PARAMETERS = [
    pytest.param(one, marks=[pytest.mark.every_commit, pytest.mark.slow_cpu] if one in EVERY_COMMIT else [])
    for one in sorted(set(experiment_ids()) - LONG)
]


@pytest.mark.parametrize("experiment_id", PARAMETERS)
def test_every_claim_holds_and_every_plot_is_drawn(
    experiment_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_experiment(experiment_id, tmp_path, monkeypatch)
