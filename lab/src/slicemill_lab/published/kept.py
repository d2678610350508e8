"""Stored results of experiments, which `slicemill lab report` prints.

A file has the scale, the seeds, and one value per seed for each published figure. It has no data about the
machine or the time, so a run of the same code writes the same file, except for measured times.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from slicemill_lab.experiment import Experiment, Scale
from slicemill_lab.published import mill, sched, slices
from slicemill_lab.published.figure import Printed, Verdict, verdict
from slicemill_lab.spread import SEEDS, fewer_seeds

FOLDER = Path(__file__).parent.parent / "results"
PUBLISHED: Mapping[str, Mapping[str, Printed]] = {**mill.FIGURES, **sched.FIGURES, **slices.FIGURES}
WHY: Mapping[str, str] = {**mill.WHY, **sched.WHY, **slices.WHY}
FULL_TAKES: Mapping[str, str] = {
    "mill-E16": "3 min",
    "mill-E18": "3 min",
    "mill-spark-E5": "6 min",
    "mill-spark-E6": "6 min",
    "mill-spark-E7": "6 min",
    "mill-spark-E10": "3 min",
    "mill-spark-E11": "3 min",
    "slice-E8": "above 5 min",
    "slice-spark-E8": "1 min",
    "slice-spark-E9": "1 min",
    "slice-spark-E12": "2 min",
    "slice-spark-E17": "2 min",
    "slice-spark-E18": "3 min",
}
"""Duration of a full run for experiments whose stored results are small, on one processor."""
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class KeptResult:
    """Stored measurements of one experiment."""

    id: str
    substrate: str
    scale: Scale
    seeds: list[int]
    measured: dict[str, list[float]]


@dataclass(frozen=True, slots=True)
class Row:
    """A published figure with our values."""

    experiment: str
    substrate: str
    scale: Scale
    what: str
    printed: Printed
    samples: Sequence[float]

    @property
    def verdict(self) -> Verdict:
        return verdict(self.printed, self.samples)


def run(experiment: Experiment, seed: int = 1, scale: Scale = "full", most_seeds: int = SEEDS) -> KeptResult:
    """Run an experiment with as many seeds as it needs, up to a limit."""
    repeats = min(experiment.repeats, most_seeds)
    with fewer_seeds(most_seeds):
        results = [experiment.run(one, scale) for one in range(seed, seed + repeats)]
    measured = {
        name: [_rounded(value) for result in results for value in result.measured[name]]
        for name in results[0].measured
    }
    own = max(map(len, measured.values()), default=1)
    return KeptResult(
        experiment.id,
        experiment.substrate,
        scale,
        list(range(seed, seed + max(own, repeats))),
        measured,
    )


def keep(result: KeptResult, folder: Path = FOLDER) -> None:
    folder.mkdir(exist_ok=True)
    text = json.dumps(asdict(result), ensure_ascii=False, indent=1)
    (folder / f"{result.id}.json").write_text(text + "\n", encoding="utf-8")


def rows(ids: Sequence[str], folder: Path = FOLDER) -> list[Row]:
    """Return the published figures of experiments with stored results, in the order of the ids."""
    found: list[Row] = []
    for experiment in ids:
        file = folder / f"{experiment}.json"
        if experiment not in PUBLISHED or not file.exists():
            continue
        kept = KeptResult(**json.loads(file.read_text(encoding="utf-8")))
        found += [
            Row(experiment, kept.substrate, kept.scale, what, printed, kept.measured[what])
            for what, printed in PUBLISHED[experiment].items()
        ]
    return found


def _rounded(value: float) -> float:
    return float(f"{float(value):.{_DIGITS}g}")
