"""mill-E2: memory of Chain on a path compared with the optimum (stream-mill E2, M7, M12, M13).

A burst waits before O1, which halves the size of each tuple for O2. O1 is cheap except for a share of noise
tuples, which cost ten times as much. O2 is expensive. Costs are in milliseconds of virtual time. Memory is
the size in both buffers integrated over time, in input-tuple sizes times milliseconds. Sampling every
millisecond and summing approximates this value.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path as FilePath

import numpy as np

from slicemill.kernels.arrays import Floats
from slicemill_lab.charts.charts import Objective, Path, Stage
from slicemill_lab.charts.tasks import Level, cut
from slicemill_lab.claims import Claim, ascending, at_least, near
from slicemill_lab.experiment import Experiment, Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.policies.registry import make
from slicemill_lab.simulator.loop import simulate
from slicemill_lab.simulator.measures import buffered_size_time
from slicemill_lab.simulator.workload import Load, draw

TUPLES = 300
NOISE_PERCENT = (0, 1, 2, 4, 6, 8, 10, 15, 20)
SEEDS: Mapping[Scale, int] = {"small": 10, "full": 100}
POLICIES: Mapping[str, tuple[str, Level, dict[str, int]]] = {
    "MSS for memory": ("mss", "operator", {}),
    "Chain": ("component", "chain", {}),
    "greedy": ("greedy", "operator", {}),
    "RR90": ("rr-k", "operator", {"quantum": 90}),
    "RR60": ("rr-k", "operator", {"quantum": 60}),
    "RR30": ("rr-k", "operator", {"quantum": 30}),
}
PATH = Path("path", (Stage("O1", 1.0, size_in=1.0, size_out=0.5), Stage("O2", 5.0, size_in=0.5)))


def run(seed: int, scale: Scale) -> Result:
    """Memory over time by policy and share of noise, over several seeds."""
    runs = SEEDS[scale]
    memory = {name: np.empty((runs, len(NOISE_PERCENT))) for name in POLICIES}
    for number in range(runs):
        random = np.random.default_rng([seed, number])
        for column, percent in enumerate(NOISE_PERCENT):
            costs = _costs_ms(random, percent)
            for name in POLICIES:
                memory[name][number, column] = _memory(name, costs)
    figures = {
        "runs": runs,
        "memory_sizes_ms": {name: curve(NOISE_PERCENT, table) for name, table in memory.items()},
    }
    return Result(_claims(memory), figures)


def plot(result: Result, path: FilePath) -> None:
    """Memory against noise, a line per policy."""
    draw_curves(
        path,
        result.figures["memory_sizes_ms"],
        title="Chain needs as little memory as MSS, which knows every cost; noise hits greedy most",
        x_label="noise tuples on O1 [%]",
        y_label=f"memory [tuple sizes · ms]; bands: range of {result.figures['runs']} runs",
    )


EXPERIMENT = Experiment(
    id="mill-E2",
    title="Memory of tuple-based scheduling and Chain on a path under noise",
    run=run,
    plot=plot,
)


def _costs_ms(random: np.random.Generator, noise_percent: int) -> tuple[Floats, Floats]:
    """Draw the true costs at O1 and O2. Noise is at random positions."""
    noisy = TUPLES * noise_percent // 100
    first = random.normal(1.0, 0.2, TUPLES)
    first[random.permutation(TUPLES)[:noisy]] = random.normal(10.0, 1.0, noisy)
    second = random.normal(5.0, 1.0, TUPLES)
    # Clip the tail of the normal distribution, as costs are positive.
    return np.maximum(first, 0.01), np.maximum(second, 0.01)


def _memory(name: str, costs: tuple[Floats, Floats]) -> float:
    policy, level, options = POLICIES[name]
    units = cut([PATH], level, Objective.MEMORY)
    work = draw([Load(PATH, np.zeros(TUPLES), costs=costs)], seed=0)
    return buffered_size_time(simulate(work, units, make(policy, units.tasks, **options)))


def _claims(memory: Mapping[str, Floats]) -> tuple[Claim, ...]:
    mean = {name: table.mean(axis=0) for name, table in memory.items()}
    best = memory["MSS for memory"]
    ratio = {name: table / best for name, table in memory.items()}
    noise = np.array(NOISE_PERCENT)
    greedy = ratio["greedy"].mean(axis=0)
    growth = {name: float(line[noise == 4].item() / line[0]) for name, line in mean.items()}
    return (
        ascending(
            "memory grows with noise (Chain, sizes · ms)",
            {f"{p} %": float(mean["Chain"][NOISE_PERCENT.index(p)]) for p in (0, 4, 10, 20)},
        ),
        near(
            "Chain and MSS for memory have almost the same curve: greatest mean ratio",
            float(ratio["Chain"].mean(axis=0).max()),
            1,
            note=f"Over single runs the ratio is {ratio['Chain'].min():.4f} to {ratio['Chain'].max():.4f}.",
        ),
        at_least(
            "greedy and round robin never need less than MSS for memory: least ratio in any run",
            min(float(ratio[name].min()) for name in ("greedy", "RR30", "RR60", "RR90")),
            1 - 1e-9,
        ),
        Claim(
            "noise hits greedy most: growth of memory from 0 to 4 % noise",
            "greedy above all others",
            ", ".join(f"{name} {factor:.3f}" for name, factor in growth.items()),
            max(growth, key=growth.__getitem__) == "greedy",
        ),
        ascending(
            "greedy needs more than MSS for memory where there is noise: mean ratio",
            {"0 %": _at(greedy, 0, 0), "2 to 6 %": _at(greedy, 2, 6)},
        ),
        near("greedy without noise is MSS for memory: ratio", _at(greedy, 0, 0), 1),
        ascending(
            "a larger quantum is better for round robin: mean memory over all noise (sizes · ms)",
            {name: float(mean[name].mean()) for name in ("RR90", "RR60", "RR30")},
        ),
        ascending(
            "round robin loses less as noise grows: mean ratio of RR30",
            {f"{p} %": _at(ratio["RR30"].mean(axis=0), p, p) for p in (20, 10, 0)},
        ),
    )


def _at(line: Floats, low_percent: int, high_percent: int) -> float:
    noise = np.array(NOISE_PERCENT)
    return float(line[(noise >= low_percent) & (noise <= high_percent)].mean())
