from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from slicemill_lab import registry
from slicemill_lab.claims import Claim
from slicemill_lab.cli.lab import lab_app
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.registry import UnknownExperimentError, experiment_ids, load

GOOD, BAD = Claim("a [b] claim", "≤ 1", 0.5, True), Claim("another", "≤ 1", 2.0, False, "printed 1, is 2")


def experiment(experiment_id: str, *claims: Claim) -> Experiment:
    def run(seed: int, scale: Scale) -> Result:
        return Result(claims, {"seed": seed, "scale": scale})

    return Experiment(
        experiment_id, f"title of {experiment_id}", run, lambda _, path: path.write_text("image")
    )


@pytest.fixture
def lab(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """A lab of two small experiments; a claim of the second does not hold."""
    known = {e.id: e for e in (experiment("toy-E1", GOOD), experiment("toy-E2", GOOD, BAD))}
    monkeypatch.setattr(registry, "experiment_ids", lambda: list(known))
    monkeypatch.setattr(registry, "load", known.__getitem__)
    return CliRunner()


def test_list_shows_ids_and_titles(lab: CliRunner) -> None:
    shown = lab.invoke(lab_app, ["list"])
    assert shown.exit_code == 0
    assert "toy-E1" in shown.stdout
    assert "title of toy-E2" in shown.stdout


def test_run_shows_the_claims_and_succeeds_if_all_hold(lab: CliRunner) -> None:
    shown = lab.invoke(lab_app, ["run", "toy-E1"])
    assert shown.exit_code == 0
    assert "a [b] claim" in shown.stdout


def test_run_fails_with_status_1_if_a_claim_does_not_hold(lab: CliRunner) -> None:
    assert lab.invoke(lab_app, ["run", "toy-E1", "toy-E2"]).exit_code == 1


def test_json_output_has_one_line_for_each_experiment(lab: CliRunner) -> None:
    shown = lab.invoke(lab_app, ["run", "--all", "--json", "--seed", "5", "--scale", "full"])
    assert shown.exit_code == 1
    objects = [json.loads(line) for line in shown.stdout.splitlines()]
    assert [o["id"] for o in objects] == ["toy-E1", "toy-E2"]
    assert objects[1]["claims"][1] == {
        "what": "another",
        "expected": "≤ 1",
        "measured": 2.0,
        "holds": False,
        "note": "printed 1, is 2",
    }
    assert objects[0]["figures"] == {"seed": 5, "scale": "full"}
    said = shown.output.splitlines()
    first, last = map(said.index, shown.stdout.splitlines())
    assert first < said.index(next(line for line in said if "toy-E2:" in line)) < last == len(said) - 1


def test_plots_are_written_to_a_new_directory_by_id(lab: CliRunner, tmp_path: Path) -> None:
    lab.invoke(lab_app, ["run", "toy-E1", "--plot", str(tmp_path / "plots" / "new")])
    assert (tmp_path / "plots" / "new" / "toy-E1.png").read_text() == "image"


def test_an_unknown_id_is_an_error_line_with_the_nearest_id_and_status_2() -> None:
    shown = CliRunner().invoke(lab_app, ["run", "MILL-e1"])
    assert shown.exit_code == 2
    assert shown.stdout == ""
    assert shown.stderr == "error: no experiment 'MILL-e1'; did you mean mill-E1?\n"


def test_run_without_an_id_explains_how_to_name_an_experiment() -> None:
    shown = CliRunner().invoke(lab_app, ["run"])
    assert shown.exit_code == 2
    assert "--all" in shown.stderr


def test_ids_are_sorted_by_family_and_number() -> None:
    mill = [name for name in experiment_ids() if name.startswith("mill-E")]
    assert mill[:2] == ["mill-E1", "mill-E2"]
    assert mill == sorted(mill, key=lambda name: int(name.removeprefix("mill-E")))


def test_an_id_without_a_similar_id_refers_to_the_list() -> None:
    with pytest.raises(UnknownExperimentError, match="slicemill lab list"):
        load("zzz")


@pytest.mark.parametrize("experiment_id", ["mill-E1", "mill-E2"])
def test_an_experiment_has_the_id_of_its_module(experiment_id: str) -> None:
    assert load(experiment_id).id == experiment_id
