"""Policy matrix: each policy is best at its own metric at both loads, over nine recordings."""

from __future__ import annotations

from pathlib import Path

import pytest

from scheduling.test_policy_matrix import check_matrix


@pytest.mark.parametrize("load", [0.7, 0.9])
def test_each_policy_is_best_at_its_own_metric_over_nine_recordings(tmp_path: Path, load: float) -> None:
    check_matrix(tmp_path, load, recordings=9)
