"""model-E6: correctness of incremental graphs (conceptual model CM-E6, golden G14, C15).

Random models of class INCREMENTAL run over random streams, windows and slides, in exact arithmetic. At every
slide, the incremental graph must have the value of the blocking graph and of the formula.
"""

from __future__ import annotations

import random
from pathlib import Path

from slicemill.extensions.models.canonical_graphs import blocking_graph, incremental_graph
from slicemill.extensions.models.cores import CoreKind
from slicemill.extensions.models.model import Model, expression
from slicemill_lab.claims import Claim, at_least, at_most
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.model.reference.interpret import Instance
from slicemill_lab.model.reference.interpret import run as run_graph
from slicemill_lab.plotting import draw_bars

GRAPHS: dict[Scale, int] = {"small": 150, "full": 1_000}
FUNCTIONS = (
    "x",
    "x^2",
    "x*y",
    "2*x - y",
    "abs(x - y)",
    "where(x > y, x, 0)",
    "x^3",
    "(x + y)^2",
    "floor(x/2)",
)
AGGREGATES = ("sum({})", "prod({})", "xor(floor({}))", "count({} > 0)", "mean({})", "variance({})")


def run(seed: int, scale: Scale) -> Result:
    """Count failures among random graphs."""
    pick = random.Random(seed)
    kinds = {"failures": 0, "slides": 0, "graphs": 0, "nodes": 0}
    for _ in range(GRAPHS[scale]):
        model = drawn(pick)
        wrong, slides, nodes = tried(model, pick)
        kinds["graphs"] += model.classification.kind is CoreKind.INCREMENTAL
        kinds["failures"] += wrong
        kinds["slides"] += slides
        kinds["nodes"] += nodes
    return Result(_claims(kinds, GRAPHS[scale]), kinds)


def plot(result: Result, path: Path) -> None:
    """Counts as bars."""
    bars = {name: float(result.figures[name]) for name in ("graphs", "slides", "failures")}
    draw_bars(path, bars, title="Incremental graphs have the value of blocking graphs", y_label="count")


EXPERIMENT = Experiment(id="model-E6", title="Random graphs: incremental equals blocking", run=run, plot=plot)


def drawn(pick: random.Random) -> Model:
    """Return a random formula of one to three aggregates."""
    parts = [pick.choice(AGGREGATES).format(pick.choice(FUNCTIONS)) for _ in range(pick.randint(1, 3))]
    return expression(pick.choice([" + ", " - ", " * "]).join(parts), ["x", "y"])


def tried(model: Model, pick: random.Random) -> tuple[int, int, int]:
    """Return slides with a wrong value, slides, and nodes of the incremental graph."""

    def element() -> tuple[int, int]:
        return pick.randint(-6, 6), pick.randint(-6, 6)

    window = [element() for _ in range(pick.randint(1, 6))]
    instances, expected = [Instance(tuple(window))], [_value(model, window)]
    for _ in range(pick.randint(1, 6)):
        new = [element() for _ in range(pick.randint(0, 3))]
        leaving = pick.randint(0, len(window))
        window = window[leaving:] + new
        instances.append(Instance(tuple(new), leaving))
        expected.append(_value(model, window))
    graph = incremental_graph(model)
    kept = list(run_graph(graph, instances))
    again = list(run_graph(blocking_graph(model), instances))
    wrong = sum(not a == b == c for a, b, c in zip(kept, again, expected, strict=True))
    return wrong, len(instances), len(graph.nodes)


def _value(model: Model, window: list[tuple[int, int]]) -> object:
    return model.value([{"x": x, "y": y} for x, y in window])


def _claims(kinds: dict[str, int], wanted: int) -> tuple[Claim, ...]:
    return (
        at_least("random graphs of class INCREMENTAL", kinds["graphs"], wanted),
        at_most("slides at which the graphs or the formula disagree", kinds["failures"], 0),
    )
