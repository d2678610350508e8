from __future__ import annotations

import pytest

from slicemill_lab.experiment import Result, to_json
from slicemill_lab.mill import e1 as mill_e1
from slicemill_lab.mill.e1 import EXPERIMENT


@pytest.fixture(scope="module")
def result() -> Result:
    return EXPERIMENT.run(1, "small")


def test_the_printed_bound_of_4_percent_is_corrected_in_a_note(result: Result) -> None:
    (claim,) = [claim for claim in result.claims if "always within 4 %" in claim.note]
    assert "no bound in general" in claim.note


def test_the_same_seed_gives_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mill_e1.SEEDS, "small", 2)
    first, again, other = (to_json(EXPERIMENT.id, EXPERIMENT.run(seed, "small")) for seed in (1, 1, 2))
    assert first == again != other
