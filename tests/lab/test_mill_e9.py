"""Burstiness behind a slide aggregate: the claims of mill-E9 at small scale."""

from __future__ import annotations

from pathlib import Path

import pytest

from slicemill.lab.experiment import Result, to_json
from slicemill.lab.mill_e9 import EXPERIMENT


@pytest.fixture(scope="module")
def result() -> Result:
    return EXPERIMENT.run(1, "small")


def test_every_claim_holds(result: Result) -> None:
    assert [claim for claim in result.claims if not claim.holds] == []


def test_the_figures_are_plain_data(result: Result) -> None:
    assert to_json(EXPERIMENT.id, result).startswith('{"id": "mill-E9"')


def test_the_plot_is_an_image(result: Result, tmp_path: Path) -> None:
    EXPERIMENT.plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
