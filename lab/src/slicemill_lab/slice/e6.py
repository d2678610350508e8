"""slice-E6: comparisons of a shared tree of joins at the published point (state-slice E6, S16)."""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import Claim, ascending, equal, near, within
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import draw_bars
from slicemill_lab.slice.analysis.join_tree import JoinTree


def run(seed: int, scale: Scale) -> Result:  # noqa: ARG001
    """Compute million comparisons per minute of each method."""
    tree = JoinTree()
    cpu = {
        "isolated": tree.isolated().cpu / 1e6,
        "state-slice": tree.sliced().cpu / 1e6,
        "pull-up": tree.pull_up().cpu / 1e6,
    }
    measured = {way: [value] for way, value in cpu.items()}
    return Result(_claims(cpu), {"million_comparisons": cpu}, measured)


def plot(result: Result, path: Path) -> None:
    """A bar for each way."""
    draw_bars(
        path,
        result.figures["million_comparisons"],
        title="Where little is shared, sharing costs a tenth for its unions; without slices, four times",
        y_label="comparisons a minute [million]",
    )


EXPERIMENT = Experiment(
    id="slice-E6",
    title="CPU of a shared join tree, one point",
    run=run,
    plot=plot,
    substrate="formula",
)


def _claims(cpu: dict[str, float]) -> tuple[Claim, ...]:
    return (
        equal("isolated, million", round(cpu["isolated"], 1), 5820.9),
        equal("state-slice, million", round(cpu["state-slice"], 1), 6422.7),
        equal("pull-up, million", round(cpu["pull-up"], 1), 27227.9),
        ascending("isolated trees compare least, one shared tree most", cpu),
        within("pull-up over state-slice: four to five times", cpu["pull-up"] / cpu["state-slice"], 4, 5),
        near(
            "state-slice over isolated: a tenth more, because little is shared",
            cpu["state-slice"] / cpu["isolated"],
            1.1,
        ),
    )
