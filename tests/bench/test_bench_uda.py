"""Aggregate benchmark: the compared implementations give equal values."""

from __future__ import annotations

import numpy as np
import pytest

from slicemill_lab.bench import uda


@pytest.mark.parametrize("case", uda.cases(), ids=lambda case: case.what)
def test_aggregates_in_esl_and_by_hand_give_equal_values(case: uda.AggregateCase) -> None:
    codes, values, ts = next(uda.chunks(9000, 9000))
    chunks = [(codes[i : i + 3000], values[i : i + 3000], ts[i : i + 3000]) for i in range(0, 9000, 3000)]
    esl, by_hand = case.esl(), case.by_hand()
    for columns in chunks:
        assert np.array_equal(esl(columns), by_hand(columns))
