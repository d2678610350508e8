"""The rule for published values, the stored results, and the table generated from both."""

from __future__ import annotations

import json
from io import StringIO
from pathlib import Path

import pytest
from rich.cells import cell_len
from rich.console import Console
from typer.testing import CliRunner

from slicemill_lab.cli.lab import lab_app
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.published import kept, report
from slicemill_lab.published.figure import (
    Printed,
    Verdict,
    at_least,
    between,
    change,
    number,
    ratio,
    up_to,
    verdict,
)
from slicemill_lab.registry import experiment_ids

YES, SIGN, NO = Verdict.reproduced, Verdict.sign_only, Verdict.not_reproduced
ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("printed", "ours", "expected"),
    [
        (change(-74), -0.60, YES),
        (change(-74), -0.58, SIGN),
        (change(-74), 0.01, NO),
        (change(-8), 0.02, NO),  # within 15 points, but with the opposite sign
        (change(4), 0.18, YES),
        (change(0), -0.14, YES),
        (change(0), -0.16, NO),
        (up_to(-57), -0.71, YES),
        (ratio(17), 14.6, YES),
        (ratio(17), 14.4, SIGN),
        (ratio(17), 0.9, NO),
        (ratio(0.5), 0.56, YES),
        (number(12), 13.7, YES),
        (number(12), 8, NO),
        (between(50, 150), 150, YES),
        (between(50, 150), 151, NO),
        (at_least(2), 1.9, NO),
        (at_least(2), 200, YES),
    ],
)
def test_a_measured_value_is_compared_with_the_published_value_by_one_rule(
    printed: Printed, ours: float, expected: Verdict
) -> None:
    assert verdict(printed, [ours]) is expected


def test_the_mean_over_the_seeds_counts() -> None:
    assert verdict(change(-50), [-0.9, -0.1]) is YES


@pytest.mark.parametrize(
    ("printed", "text"),
    [
        (change(-74), "−74 %"),
        (change(4), "+4 %"),
        (up_to(-57), "up to −57 %"),
        (ratio(6.3), "6.3 ×"),
        (number(12, " clusters"), "12 clusters"),
        (between(0.1, 0.25), "0.1 to 0.25"),
        (at_least(2, " orders"), "at least 2 orders"),
    ],
)
def test_published_values_are_printed_as_published(printed: Printed, text: str) -> None:
    assert str(printed) == text


def toy(seed: int, scale: Scale) -> Result:
    del scale
    return Result((), {}, {"toy": [-0.5 - seed / 10]})


@pytest.fixture
def toy_lab(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Experiment:
    experiment = Experiment("toy-E1", "a toy", toy, lambda _, __: None, repeats=3)
    monkeypatch.setattr(kept, "PUBLISHED", {"toy-E1": {"toy": change(-10)}})
    monkeypatch.setattr(kept, "FOLDER", tmp_path)
    monkeypatch.setattr(report, "WHY", {"toy-E1": "it is a toy"})
    return experiment


def test_a_stored_result_has_its_spread_and_its_reason(toy_lab: Experiment, tmp_path: Path) -> None:
    result = kept.run(toy_lab)
    assert result.seeds == [1, 2, 3]
    kept.keep(result, tmp_path)
    rows = kept.rows(["toy-E1", "toy-E2"], tmp_path)
    assert [row.samples for row in rows] == [[-0.6, -0.7, -0.8]]
    assert report.plain(rows)[0]["because"] == "it is a toy"
    page = report.markdown(rows)
    assert "| toy-E1 | simulator | toy | −10 % | −70 % (−80 % to −60 %) | 3 | sign only |" in page
    assert "**toy-E1.** it is a toy" in page


def test_equal_runs_are_stored_as_equal_files(toy_lab: Experiment, tmp_path: Path) -> None:
    texts = set()
    for _ in range(2):
        kept.keep(kept.run(toy_lab), tmp_path)
        texts.add((tmp_path / "toy-E1.json").read_text(encoding="utf-8"))
    assert len(texts) == 1


# -- Results stored in the repository ---------------------------------------------------------------------


def test_every_published_value_belongs_to_an_experiment_with_a_stored_result() -> None:
    assert set(kept.PUBLISHED) <= set(experiment_ids())
    for name, figures in kept.PUBLISHED.items():
        stored = json.loads((kept.FOLDER / f"{name}.json").read_text(encoding="utf-8"))
        assert stored["id"] == name
        assert set(stored["measured"]) == set(figures), name
    assert {file.stem for file in kept.FOLDER.glob("*.json")} == set(kept.PUBLISHED)


def test_every_experiment_that_misses_a_published_value_has_a_reason() -> None:
    rows = kept.rows(experiment_ids())
    off = {row.experiment for row in rows if row.verdict is not YES}
    assert off <= set(kept.WHY)
    assert set(kept.WHY) <= set(kept.PUBLISHED)


def test_only_experiments_stored_at_small_scale_state_the_full_duration() -> None:
    small = {row.experiment for row in kept.rows(experiment_ids()) if row.scale == "small"}
    assert set(kept.FULL_TAKES) <= small
    shown = report.markdown(kept.rows(["mill-E16"]))
    assert f"small (full: {kept.FULL_TAKES['mill-E16']})" in shown


def test_the_page_shows_the_stored_results() -> None:
    page = (ROOT / "docs" / "lab.md").read_text(encoding="utf-8")
    assert report.markdown(kept.rows(experiment_ids())) in page, "run python tests/support/lab_page.py"


def test_the_report_fits_a_terminal() -> None:
    text = StringIO()
    Console(width=80, file=text).print(report.terminal(kept.rows(experiment_ids())))
    assert max(map(cell_len, text.getvalue().splitlines())) <= 80
    assert "…" not in text.getvalue()


def test_the_report_has_three_formats() -> None:
    runner = CliRunner()
    shown = runner.invoke(lab_app, ["report", "sched-E3"])
    assert shown.exit_code == 0
    assert "1 published figures" in shown.stdout
    found = json.loads(runner.invoke(lab_app, ["report", "sched-E3", "--json"]).stdout)
    assert found["rows"][0]["published"] == "−75 %"
    page = runner.invoke(lab_app, ["report", "sched-E3", "--markdown"]).stdout
    assert page == report.markdown(kept.rows(["sched-E3"]))


def test_a_report_about_an_unknown_experiment_is_an_error() -> None:
    shown = CliRunner().invoke(lab_app, ["report", "sched-E99"])
    assert (shown.exit_code, shown.stdout) == (2, "")
    assert shown.stderr == "error: no experiment 'sched-E99'; did you mean sched-E9?\n"
