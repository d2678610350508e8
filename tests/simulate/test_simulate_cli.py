"""`slicemill simulate` with costs from a file; test_trial.py covers measurements on Spark."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from slicemill.cli import app
from slicemill.errors import SlicemillError
from slicemill.scheduling.capacity import Costs, Output, TaskCost

SCRIPT = """\
CREATE STREAM bid (item int, price int, ts timestamp) ORDER BY ts SOURCE 'bids.csv';
CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 100;
CREATE QUERY mean AS SELECT item, avg(price) OVER (PARTITION BY item ROWS 9 PRECEDING) AS m FROM bid;
"""
COSTS = Costs(
    0.05,
    (
        TaskCost("select from bid", ("bid",), (Output("dear", 0.1),), False, 0.01, 0.01, 1e-4),
        TaskCost("aggregates of bid by item", ("bid",), (Output("mean", 1.0),), True, 0.01, 0.01, 1e-3),
    ),
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bids.esl").write_text(SCRIPT)
    (tmp_path / "costs.json").write_text(COSTS.to_json())
    return tmp_path


def simulate(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from slicemill.cli import main; main()", "simulate", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, cwd=folder)


def test_policies_are_compared_for_each_query(folder: Path) -> None:
    done = simulate(
        folder,
        *("bids.esl", "--costs", "costs.json", "--rate", "bid=500/s", "--cores", "1", "--for", "1m"),
        *("--policy", "fcfs", "--policy", "HNR"),
    )
    assert done.returncode == 0, done.stderr
    assert "These rates need 55% of the CPU time of 1 core." in done.stdout
    assert "All queries together" in done.stdout
    assert done.stdout.count("hnr") == 3  # once for each query, and once for all queries


def test_json_output_is_one_object_with_all_metrics(
    folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(folder)
    arguments = ("bids.esl", "--costs", "costs.json", "--rate", "2000/s", "--cores", "1", "--for", "20s")
    app(["simulate", *arguments, "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert found["utilisation"] == pytest.approx(2.2)
    assert found["verdict"][0].startswith("Overload")
    (fcfs,) = found["policies"]
    assert fcfs["policy"] == "fcfs"
    assert {query["query"]: query["response_s"]["count"] for query in fcfs["queries"]} == {
        "dear": 4000,
        "mean": 40_000,
    }
    assert fcfs["behind_s"] > 10


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("bids.esl", "--costs", "costs.json"), "--rate bid=1000/s"),
        (("bids.esl", "--rate", "5/s", "--policy", "hnrr"), "did you mean hnr"),
        (("bids.esl", "--rate", "5/s", "--for", "long"), "is not a duration"),
        (("bids.esl", "--rate", "5/s", "--for", "0s"), "shorter than a millisecond"),
        (("bids.esl", "--rate", "5/s", "--costs", "nowhere.json"), "cannot read nowhere.json"),
        (("bids.esl", "--rate", "5/s", "--costs", "bids.esl"), "has no measured costs"),
        (("other.esl", "--rate", "5/s", "--costs", "costs.json"), "the costs of other queries"),
        (("bids.esl", "--rate", "5/s", "--home", "nowhere"), "there is no home in nowhere"),
        (("bids.esl", "--rate", "5/s", "--home", "a", "--costs", "b"), "use only one of them"),
        (("empty.esl", "--rate", "5/s"), "nothing to plan for"),
        (("nowhere.esl", "--rate", "5/s"), "cannot read nowhere.esl"),
    ],
)
def test_an_invalid_argument_is_reported_before_spark_starts(
    folder: Path, arguments: tuple[str, ...], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    (folder / "other.esl").write_text(SCRIPT.replace("mean", "average"))
    (folder / "empty.esl").write_text(SCRIPT.partition("\n")[0])
    with pytest.raises(SlicemillError, match=words):
        app(["simulate", *arguments], standalone_mode=False)


def test_an_error_prints_no_traceback(folder: Path) -> None:
    done = simulate(folder, "bids.esl", "--costs", "costs.json")
    assert done.returncode == 1
    assert done.stderr.startswith("stream bid has no rate;")
    assert not done.stdout
