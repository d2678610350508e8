from __future__ import annotations

import pytest

from slicemill_lab.experiment import to_json
from slicemill_lab.mill import e2 as mill_e2
from slicemill_lab.mill.e2 import EXPERIMENT


def test_the_same_seed_gives_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(mill_e2.SEEDS, "small", 2)
    first, again, other = (to_json(EXPERIMENT.id, EXPERIMENT.run(seed, "small")) for seed in (1, 1, 2))
    assert first == again != other
