from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.lab import mill_e2
from slicemill.lab.experiment import Result, to_json
from slicemill.lab.mill_e2 import EXPERIMENT


@pytest.fixture(scope="module")
def result() -> Result:
    return EXPERIMENT.run(1, "small")


def test_every_claim_holds(result: Result) -> None:
    assert [claim for claim in result.claims if not claim.holds] == []


def test_the_same_seed_gives_the_same_figures(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mill_e2.SEEDS, "small", 2)
    first, again, other = (to_json(EXPERIMENT.id, EXPERIMENT.run(seed, "small")) for seed in (1, 1, 2))
    assert first == again != other


def test_the_plot_is_an_image(result: Result, tmp_path: Path) -> None:
    EXPERIMENT.plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
