"""Further checks of the experiments on temporal shedding, beyond their claims."""

from __future__ import annotations

from itertools import pairwise

import pytest

from slicemill.shedding.memory import FastMemory, ScanMemory
from slicemill_lab.registry import load
from slicemill_lab.shed.runs import ShedSetting, accuracies, accuracy_of, intervals, quartiles, stream


@pytest.mark.parametrize(
    ("experiment_id", "printed"), [("shed-E1", "nearly an order of magnitude"), ("shed-E3", "nearly flat")]
)
def test_a_printed_value_that_does_not_hold_is_named_in_a_note(experiment_id: str, printed: str) -> None:
    claims = load(experiment_id).run(1, "small").claims
    assert any(printed in claim.note and "Printed" in claim.note for claim in claims)


def test_synthetic_data_is_declared_as_synthetic() -> None:
    assert "synthetic" in load("shed-E2").run(1, "small").figures["data"]


@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_streams_have_the_configured_gaps_and_coalescing(p: float) -> None:
    tuples = stream(p, 5_000, 3)
    assert {one.length for one in tuples} == set(range(1, 11))
    assert tuples[-1].run / len(tuples) == pytest.approx(1 - p, abs=0.03)
    assert all(a.end == b.begin for a, b in pairwise(tuples))


def test_quartiles_are_of_coalesced_runs() -> None:
    assert quartiles(0.9, "small", 1)[1] == pytest.approx(38, abs=10)
    assert quartiles(0.1, "small", 1)[1] == pytest.approx(6, abs=1)


def test_with_enough_memory_every_method_is_exact() -> None:
    for method in ("lookahead", "random"):
        assert accuracies(ShedSetting(method, 0.5, 1.0), "small", 1) == [1.0]


def test_accuracy_counts_only_runs_that_last_long_enough() -> None:
    exact = {1: [(0, 10)], 2: [(10, 12)]}
    assert accuracy_of(exact, {1: [(0, 5)], 2: [(10, 12)]}) == pytest.approx(0.75)
    assert accuracy_of(exact, {1: [(0, 5)], 2: [(10, 12)]}, least=5) == pytest.approx(0.5)
    assert accuracy_of(exact, {}, least=20) == 1


def test_each_setting_gets_a_memory_that_supports_it() -> None:
    assert isinstance(ShedSetting("lookahead", 0.5, 0.5, weights=(0.5, 1.0)).memory(1), ScanMemory)
    assert isinstance(ShedSetting("lookahead", 0.5, 0.5, weights=(0.0, 1.0)).memory(1), FastMemory)
    assert ShedSetting("value", 0.5, 0.7).capacity == 350


def test_pieces_of_a_run_are_separated_by_gaps() -> None:
    tuples = stream(1.0, 5, 1)
    assert len(intervals([*tuples[:2], *tuples[3:]])[0]) == 2
