"""shed-E7: shedding for queries with a least duration (temporal-load-shedding TLS-E7, L23).

The threshold is a quartile of the lengths of coalesced runs. Plain CALS shortens all long runs alike, and so
moves all of them below a high threshold. CALS-θ drops the runs that are too short anyway.
"""

from __future__ import annotations

from pathlib import Path

from slicemill_lab.claims import Claim, ascending, at_least, at_most, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.shed.runs import SEEDS, ShedSetting, accuracies, mean, quartiles

CELLS = ((0.1, 0.5), (0.5, 0.5), (0.9, 0.5), (0.9, 0.7), (0.9, 0.9))
WAYS = {"RAND": "random", "CALS": "lookahead", "CALS-θ": "threshold"}
PROTOTYPE = {
    (0.1, 0.5): ((0.50, 0.48, 0.45), (0.53, 0.51, 0.44), (0.64, 0.93, 1.00)),
    (0.5, 0.5): ((0.47, 0.38, 0.28), (0.68, 0.43, 0.05), (0.81, 0.87, 0.98)),
    (0.9, 0.5): ((0.22, 0.12, 0.04), (0.67, 0.44, 0.02), (0.71, 0.71, 0.86)),
    (0.9, 0.7): ((0.36, 0.23, 0.12), (0.83, 0.77, 0.31), (0.86, 0.90, 1.00)),
    (0.9, 0.9): ((0.59, 0.55, 0.40), (0.96, 0.94, 0.88), (0.98, 1.00, 1.00)),
}
"""RAND, CALS and CALS-θ at the first quartile, the median and the third quartile."""


def run(seed: int, scale: Scale) -> Result:
    """Measure accuracy by cell, method and quartile."""
    found = {f"p {p:g}, ratio {ratio:g}": _cell(p, ratio, scale, seed) for p, ratio in CELLS}
    return Result(_claims(list(found.values())), {"accuracy_at_quartiles": found})


def plot(result: Result, path: Path) -> None:
    """Accuracy against the threshold, at p = 0.9 and half the memory."""
    cell = result.figures["accuracy_at_quartiles"]["p 0.9, ratio 0.5"]
    draw_curves(
        path,
        {name: curve([1, 2, 3], [cell[name]]) for name in WAYS},
        title="With a high threshold plain CALS is no better than chance (p 0.9, memory 0.5 of the window)",
        x_label="threshold: quartile of run lengths",
        y_label="accuracy",
    )


EXPERIMENT = Experiment(
    id="shed-E7", title="Shedding that knows the least duration asked for", run=run, plot=plot
)


def _cell(p: float, ratio: float, scale: Scale, seed: int) -> dict[str, list[float]]:
    found: dict[str, list[float]] = {}
    for name, method in WAYS.items():
        rows = []
        for number in range(SEEDS[scale]):
            thresholds = quartiles(p, scale, seed + number)
            if method == "threshold":
                row = [
                    accuracies(ShedSetting(method, p, ratio, one), scale, seed + number, (one,))[0]
                    for one in thresholds
                ]
            else:
                row = list(accuracies(ShedSetting(method, p, ratio), scale, seed + number, thresholds))
            rows.append(row)
        found[name] = [mean([row[place] for row in rows]) for place in range(3)]
    return found


def _claims(cells: list[dict[str, list[float]]]) -> tuple[Claim, ...]:
    lead = min(
        aware - max(cell["CALS"][place], cell["RAND"][place])
        for cell in cells
        for place, aware in enumerate(cell["CALS-θ"])
    )
    high = cells[2]
    ours = [value for cell in cells for name in WAYS for value in cell[name]]
    theirs = [value for at in CELLS for row in PROTOTYPE[at] for value in row]
    return (
        at_least("CALS-θ is above CALS and RAND in every cell: least lead", lead, 0),
        at_most(
            "plain CALS with a high threshold is no better than RAND: p = 0.5, third quartile: CALS - RAND",
            cells[1]["CALS"][2] - cells[1]["RAND"][2],
            0,
        ),
        ascending(
            "p = 0.9, ratio 0.5: with the threshold, CALS-θ / RAND grows",
            {
                f"quartile {place + 1}": high["CALS-θ"][place] / max(high["RAND"][place], 1e-9)
                for place in (0, 2)
            },
            note="Here the factor of ten that was printed for plain CALS is reached.",
        ),
        near("against the prototype's table: mean of all cells, over its", sum(ours) / sum(theirs), 1),
    )
