"""Long experiments at small scale (`make test-slow`)."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.experiments import LONG, check_experiment


@pytest.mark.parametrize("experiment_id", sorted(LONG))
def test_every_claim_holds_and_every_plot_is_drawn(
    experiment_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_experiment(experiment_id, tmp_path, monkeypatch)
