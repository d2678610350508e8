"""What holds for every experiment at small scale: claims, figures and the plot.

Published claims that do not hold here are named in NOT_REPRODUCED, so that it is seen when one comes or goes.
Claims about measured time are for `slicemill lab run`: a test does not depend on how busy the machine is.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from slicemill.testing import inline_pool
from slicemill_lab import on_engine, plotting
from slicemill_lab.experiment import to_json
from slicemill_lab.published.kept import PUBLISHED
from slicemill_lab.registry import load

# Those that take more than a few seconds; `make test-slow` runs them.
LONG = frozenset(
    f"{series}-E{number}"
    for series, numbers in {
        "mill": (5, 11, 19),
        "mill-spark": (5, 10, 11, 12, 16, 17, 18, 19),
        "model": (1, 6),
        "sched": (1, 2, 3, 4, 5, 8, 9, 10, 11, 12, 13, 14, 16, 17, 18, 19, 20, 21, 22, 23, 24, 26, 27, 28),
        "shed": (1, 2, 3, 9),
        "slice": (8, 9, 10, 12, 13, 14, 18),
        "slice-spark": (8, 11, 12),
    }.items()
    for number in numbers
)

NOT_REPRODUCED = {
    "mill-E18": {
        "BFF saves about 10 % where 20 % are shed, with four features, on the published machine",
    },
    "mill-spark-E16": {
        "BFF is more than 45 % better than random at 40 to 50 % shed: its errors over random's, greatest",
    },
    "mill-spark-E19": {"HVWT errs no more than LoadStar: errors over LoadStar's"},
    "sched-E14": {"load 0.7: BRT below HR by"},
    "sched-E16": {"logarithmic, the best number: below HNR by"},
    "sched-E19": {"deviation 5: who gains most", "deviation 25: who gains most"},
    "sched-E20": {"HR: least is worse"},
    "sched-E21": {"BSD: least is worse"},
    "slice-E13": {"state with eight in flight / with one: least over lengths of 4 and more"},
    "slice-spark-E16": {"state at 4 nodes, by time / replicated"},
    "slice-E18": {"to 100/s: response of the last third / before, with adaptation"},
}


def check_experiment(experiment_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its claims hold, there is a figure for each published one, all is plain data, and its plot is drawn."""
    # What the experiments on the engine count does not depend on where its workers are.
    monkeypatch.setattr(on_engine, "make_pool", lambda: inline_pool(1))
    result = load(experiment_id).run(1, "small")
    counted = [claim for claim in result.claims if not claim.timed]
    assert counted
    missed = [claim for claim in counted if not claim.holds]
    assert {claim.what for claim in missed} == NOT_REPRODUCED.get(experiment_id, set()), missed
    assert set(result.measured) == set(PUBLISHED.get(experiment_id, ()))
    assert all(len(samples) for samples in result.measured.values())
    line = json.loads(to_json(experiment_id, result))
    assert line["id"] == experiment_id
    assert line["claims"]
    titles: list[str] = []

    def noted(title: str, width: int) -> str:
        titles.append(title)
        return title

    monkeypatch.setattr(plotting, "fill", noted)
    load(experiment_id).plot(result, tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes().startswith(b"\x89PNG")
    if experiment_id.startswith("sched-E") and experiment_id != "sched-E0":
        arrivals = result.figures["arrivals"]
        assert arrivals in titles[0]
        assert arrivals.startswith(("LBL-like synthetic ON/OFF arrivals", "Poisson arrivals"))
