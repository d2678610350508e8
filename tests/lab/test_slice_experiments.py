"""Further checks of the sliced-join experiments, beyond their claims."""

from __future__ import annotations

import pytest

from slicemill_lab.experiment import to_json
from slicemill_lab.registry import load
from slicemill_lab.slice import e8 as slice_e8
from slicemill_lab.slice import e10 as slice_e10
from slicemill_lab.slice import joins as slice_joins
from slicemill_lab.slice.joins import JoinSetting, arrivals, matching, measured, modelled


@pytest.mark.parametrize(
    ("experiment_id", "printed"),
    [
        ("slice-E1", "20-30 % on average"),
        ("slice-E2", "10-40 % on average"),
        ("slice-E4", "2325.8"),
        ("slice-E5", "20-30 % on average"),
        ("slice-E7", "leaves out the third chain's probing"),
    ],
)
def test_a_printed_value_that_does_not_hold_is_named_in_a_note(experiment_id: str, printed: str) -> None:
    claims = load(experiment_id).run(1, "small").claims
    assert any(printed in claim.note and "Printed" in claim.note for claim in claims)


def test_the_analytic_experiments_hold_at_full_scale() -> None:
    for number in range(1, 8):
        assert load(f"slice-E{number}").run(1, "full").holds


def test_the_same_seed_gives_the_same_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slice_e8, "PANELS", {panel: slice_e8.PANELS[panel] for panel in "be"})
    monkeypatch.setitem(slice_joins.RATES, "small", (20,))

    def figures(seed: int) -> str:
        measured.cache_clear()
        return to_json("slice-E8", load("slice-E8").run(seed, "small"))

    assert figures(1) == figures(1) != figures(2)


def test_arrivals_have_the_configured_rate_and_selectivities() -> None:
    tuples = list(arrivals(50, 20, seed=3))
    assert [tuple_.ts for _, tuple_ in tuples] == sorted(tuple_.ts for _, tuple_ in tuples)
    left, right = ([tuple_ for stream, tuple_ in tuples if stream == side] for side in (0, 1))
    assert len(left) == pytest.approx(1000, rel=0.1)
    assert sum(float(str(one.row[1])) < 0.2 for one in left) / len(left) == pytest.approx(0.2, abs=0.01)
    matches = matching(0.1)
    found = sum(matches(a.row, b.row) for a in left for b in right[:100])
    assert found / (len(left) * 100) == pytest.approx(0.1, rel=0.1)


def test_measured_comparisons_equal_those_of_the_model() -> None:
    setting = JoinSetting("uniform", 0.5, 0.1)
    found, expected = measured(setting, 60, "small", 1), modelled(setting, 60, "small")
    for way in slice_joins.WAYS[1:]:
        ratio = found["state-slice"].comparisons / found[way].comparisons
        assert ratio == pytest.approx(expected["state-slice"].cpu / expected[way].cpu, rel=0.06)


def test_more_queries_have_closer_windows_in_the_same_two_ranges() -> None:
    assert slice_e10.WINDOWS_S["small and large"] == (1, 2, 3, 4, 5, 6, 25, 26, 27, 28, 29, 30)
    many = slice_e10.WINDOWS_S["36 small and large"]
    assert len(many) == 36
    assert (max(many[:18]), min(many[18:]), max(many)) == (6, pytest.approx(24 + 1 / 3), 30)
