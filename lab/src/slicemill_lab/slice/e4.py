"""slice-E4: state of a shared tree of joins at the published point (state-slice E4, S16).

Three streams, two queries of which neither contains the other, with the parameters of Table 6.2.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import Claim, ascending, equal, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import draw_bars
from slicemill_lab.slice.analysis.join_tree import JoinTree


def run(seed: int, scale: Scale) -> Result:  # noqa: ARG001
    """Compute state memory of each method in MB."""
    tree = JoinTree()
    memory = {
        "state-slice": tree.sliced().memory / 1000,
        "isolated": tree.isolated().memory / 1000,
        "pull-up": tree.pull_up().memory / 1000,
    }
    measured = {way: [value] for way, value in memory.items()}
    return Result(_claims(memory), {"memory_mb": memory}, measured)


def plot(result: Result, path: Path) -> None:
    """A bar for each way."""
    draw_bars(
        path,
        result.figures["memory_mb"],
        title="A shared tree without slices holds three times the state",
        y_label="state memory [MB]",
    )


EXPERIMENT = Experiment(
    id="slice-E4",
    title="Memory of a shared join tree, one point",
    run=run,
    plot=plot,
    substrate="formula",
)


def _claims(memory: dict[str, float]) -> tuple[Claim, ...]:
    return (
        equal("state-slice, MB", round(memory["state-slice"], 1), 2308.2),
        equal(
            "isolated, MB",
            round(memory["isolated"], 3),
            2329.175,
            note="Printed: 2325.8; its two terms add up to 2329.175.",
        ),
        equal("pull-up, MB", round(memory["pull-up"], 1), 6484.5),
        ascending("slices need least, one shared tree most", memory),
        near("pull-up over state-slice: about three times", memory["pull-up"] / memory["state-slice"], 3),
    )
