from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import pytest

from slicemill_lab.claims import Claim, ascending, at_least, at_most, equal, near, within
from slicemill_lab.experiment import Experiment, Result, to_json
from slicemill_lab.plotting import curve, draw_curves


def test_bounds_are_inclusive_and_printed_as_checked() -> None:
    assert at_most("a", 1.04, 1.04) == Claim("a", "≤ 1.04", 1.04, True)
    assert at_least("b", 1.0, 1.5, "why") == Claim("b", "≥ 1.5", 1.0, False, "why")
    assert within("c", 2.0, 1.0, 2.0) == Claim("c", "1 to 2", 2.0, True)


def test_a_theoretical_value_must_match_up_to_rounding_and_a_published_value_within_15_percent() -> None:
    assert equal("a", 0.1 + 0.2, 0.3).holds
    assert not equal("a", 0.301, 0.3).holds
    assert near("b", 1.14, 1) == Claim("b", "1 ± 15 %", 1.14, True)
    assert not near("b", 0.84, 1).holds


def test_a_claim_about_nan_does_not_hold() -> None:
    nan = math.nan
    claims = (
        at_most("a", nan, 1),
        at_least("b", nan, 1),
        within("c", nan, 0, 1),
        equal("e", nan, 1),
        near("f", nan, 1),
        ascending("d", {"x": nan, "y": 1}),
    )
    assert not any(claim.holds for claim in claims)


def test_ascending_requires_strictly_increasing_values() -> None:
    assert ascending("order", {"x": 1, "y": 2, "z": 3}) == Claim("order", "x < y < z", "x 1, y 2, z 3", True)
    assert not ascending("tie", {"x": 1, "y": 1}).holds


def test_claims_from_numpy_values_are_plain() -> None:
    claim = at_most("a", np.float64(1), 2)
    assert type(claim.measured) is float
    assert type(claim.holds) is bool


def test_a_result_holds_if_all_its_claims_hold() -> None:
    yes, no = Claim("a", "1", 1, True), Claim("b", "1", 2, False)
    assert Result((yes, yes), {}).holds
    assert not Result((yes, no), {}).holds


def test_json_is_one_line_of_plain_values() -> None:
    figures = {"array": np.arange(3), "scalar": np.int64(4), "nested": {1: (np.inf, 2.5)}, "text": "µs"}
    experiment = Experiment("mill-E0", "t", lambda seed, scale: Result((), {}), lambda result, path: None)
    line = to_json(experiment.id, Result((Claim("a", "≤ 1", 0.5, True, "n"),), figures, {"x": [0.5]}))
    assert "\n" not in line
    assert json.loads(line) == {
        "id": "mill-E0",
        "claims": [{"what": "a", "expected": "≤ 1", "measured": 0.5, "holds": True, "note": "n"}],
        "figures": {"array": [0, 1, 2], "scalar": 4, "nested": {"1": ["inf", 2.5]}, "text": "µs"},
        "measured": {"x": [0.5]},
    }


def test_a_curve_has_the_mean_and_range_over_the_seeds() -> None:
    assert curve([0, 5], [[1, 10], [3, 20]]) == {
        "x": [0, 5],
        "mean": [2, 15],
        "low": [1, 10],
        "high": [3, 20],
    }


@pytest.mark.parametrize("log", [False, True])
def test_curves_are_drawn_to_an_image(tmp_path: Path, log: bool) -> None:
    image = tmp_path / "plot.png"
    line = curve([1, 10], [[1, 2], [2, 3]])
    draw_curves(image, {"a": line}, title="t", x_label="x [s]", y_label="y [ms]", log_x=log, log_y=log)
    assert image.read_bytes().startswith(b"\x89PNG")
