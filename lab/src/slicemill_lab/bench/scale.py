"""Benchmark of joins over 1 to 16 subtasks on the same rows: total cost, and cost of the slowest subtask.

On a cluster each subtask can have its own core, so a run lasts as long as its slowest subtask. Here all
subtasks run in one process, one after the other, each in a worker that reads and keeps its own rows. The
figures are CPU seconds, which do not depend on the number of cores. Batches are run one by one; the first
ones fill the windows and compile code. The best of some rounds counts. The number of results must be the
same for every number of subtasks.

The second part uses two executors of a standalone cluster and shows wall time. With two cores, at most two
subtasks run at the same time, and driver and JVMs need CPU time as well.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.table import Table

from slicemill.errors import SlicemillError
from slicemill.plan.placement import AUTO, PlacementKind
from slicemill_lab.bench.benchmark import Benchmark
from slicemill_lab.bench.inputs.scale import (
    BAND,
    CASES,
    ONE_KEY,
    OVERLAPS,
    UNIFORM,
    OverlapCase,
    ScaleCase,
)
from slicemill_lab.bench.measuring.executors import WALL_SUBTASKS, wall_seconds
from slicemill_lab.bench.measuring.subtasks import SubtaskFigures, measured_subtasks
from slicemill_lab.claims import Claim, at_most, timed
from slicemill_lab.experiment import Result, Scale
from slicemill_lab.progress import say

SUBTASKS = (1, 2, 4, 8, 16)
BAR_SUBTASKS = 8
SLOWEST, SLOWEST_UNIFORM, TOGETHER, STATE = 1 / 5, 1 / 7, 1.25, 1.1
"""Bars: at eight subtasks, relative to one task; state of many joins, relative to the longest join alone."""
MANY = 8
OVERLAP_SECONDS = 5  # batches of one second each, instead of one batch
OVERLAP_STATE = {
    "eight of abc": 1.1 * 30 / 135,
    "abc, abd, acd, ab": 1.1 * 40 / 110,
    "the same, 4 to 10 s": 1.1 * 38 / 80,
}
"""Bars: seconds of the longest windows over seconds of all windows, plus a tenth as for `STATE`."""


@dataclass(frozen=True, slots=True)
class ScaleSizes:
    batches: int
    rounds: int


SIZES: Mapping[Scale, ScaleSizes] = {"small": ScaleSizes(3, 1), "full": ScaleSizes(8, 3)}


def run(scale: Scale) -> Result:
    sizes = SIZES[scale]
    found = {case: by_subtasks(case, sizes) for case in CASES}
    others = {case.name: other_placements(case, sizes) for case in CASES}
    alone, many = (many_joins(count, sizes) for count in (1, MANY))
    overlaps = {case.name: overlapping(case, sizes) for case in OVERLAPS}
    say("two executors")
    walls = {case.name: wall_seconds(case, sizes.batches) for case in (UNIFORM, BAND)}
    claims = (
        counted(found, others),
        *(claim for case, figures in found.items() for claim in bars(case, figures)),
        at_most(
            f"{MANY} three-way joins with different windows: state, times that of the longest alone",
            many.state_bytes / alone.state_bytes,
            STATE,
        ),
        at_most(
            "joins that share states: runs with rows too many or missing",
            sum(dict(together.rows) != rows for together, _, rows in overlaps.values()),
            0,
        ),
        *(
            at_most(
                f"{name}: state, times that of its joins apart", _state_ratio(*found[:2]), OVERLAP_STATE[name]
            )
            for name, found in overlaps.items()
        ),
    )
    figures = {
        "how": f"{sizes.batches} batches behind those that fill the windows; processor seconds of the runs "
        f"of each subtask, in one process; best of {sizes.rounds}",
        "load of the machine, 1 min": round(os.getloadavg()[0], 1),
        "cases": {case.name: {n: _plain(one) for n, one in by.items()} for case, by in found.items()},
        f"every placement, {BAR_SUBTASKS} subtasks": {
            name: list(map(_plain, by)) for name, by in others.items()
        },
        f"{MANY} three-way joins": {"the longest alone": _plain(alone), "all": _plain(many)},
        "joins that share states": {
            name: {"together": _plain(together), "apart": list(map(_plain, apart))}
            for name, (together, apart, _) in overlaps.items()
        },
        "two executors, seconds on the wall": walls,
    }
    return Result(claims, figures)


def by_subtasks(case: ScaleCase, sizes: ScaleSizes) -> dict[int, SubtaskFigures]:
    """Run the same rows over every number of subtasks, in turns, so that disturbances affect all alike."""
    best: dict[int, SubtaskFigures] = {}
    for round_ in range(sizes.rounds):
        for subtasks in SUBTASKS:
            say(f"{case.name}: {subtasks} subtasks, round {round_ + 1} of {sizes.rounds}")
            best[subtasks] = _measured(case, (case.window_s,), sizes, subtasks).better(best.get(subtasks))
    return best


def many_joins(count: int, sizes: ScaleSizes) -> SubtaskFigures:
    """Measure `count` joins: the longest window, and shorter ones."""
    say(f"{count} three-way joins")
    windows = [ONE_KEY.window_s * (number + 1) / count for number in range(count)]
    return _measured(ONE_KEY, windows, sizes, 1)


def overlapping(
    case: OverlapCase, sizes: ScaleSizes
) -> tuple[SubtaskFigures, list[SubtaskFigures], dict[str, int]]:
    """Measure all joins of a case in one mill, and each join in its own mill, with its row counts."""
    best: dict[tuple[int, ...], SubtaskFigures] = {}
    every = tuple(range(len(case.joins)))
    for round_ in range(sizes.rounds):
        for chosen in (every, *((number,) for number in every)):
            say(f"{case.name}: joins {', '.join(map(str, chosen))}, round {round_ + 1} of {sizes.rounds}")
            rows = case.rows(chosen)
            batches = rows.batches(OVERLAP_SECONDS * sizes.batches)
            found = measured_subtasks(case.script(chosen), batches, rows.warming, 1)
            best[chosen] = found.better(best.get(chosen))
    apart = [best[number,] for number in every]
    return best[every], apart, {name: rows for one in apart for name, rows in one.rows.items()}


def _state_ratio(together: SubtaskFigures, apart: Sequence[SubtaskFigures]) -> float:
    return together.state_bytes / sum(one.state_bytes for one in apart)


def other_placements(case: ScaleCase, sizes: ScaleSizes) -> list[SubtaskFigures]:
    """Measure every kind of placement that is possible for the case, once."""
    found = []
    for kind in PlacementKind:
        say(f"{case.name}: placed as {kind}")
        try:
            found.append(_measured(case, (case.window_s,), sizes, BAR_SUBTASKS, kind.value))
        except SlicemillError:
            continue  # the case does not support this placement
    return found


def _measured(
    case: ScaleCase, windows_s: Sequence[float], sizes: ScaleSizes, subtasks: int, placement: str = AUTO
) -> SubtaskFigures:
    batches = case.batches(sizes.batches)
    return measured_subtasks(case.script(windows_s), batches, case.warming, subtasks, placement)


def counted(
    found: Mapping[ScaleCase, Mapping[int, SubtaskFigures]], others: Mapping[str, Sequence[SubtaskFigures]]
) -> Claim:
    """Claim that all numbers of subtasks, and all placements, give the same number of rows."""
    wrong = sum(
        one.rows != by[1].rows for case, by in found.items() for one in (*by.values(), *others[case.name])
    )
    rows = sum(sum(by[1].rows.values()) for by in found.values())
    return at_most("runs with rows too many or missing", wrong, 0, f"{rows} rows in one subtask")


def bars(case: ScaleCase, by: Mapping[int, SubtaskFigures]) -> tuple[Claim, Claim]:
    one, wide = by[1], by[BAR_SUBTASKS]
    bar = SLOWEST_UNIFORM if case == UNIFORM else SLOWEST
    name = f"{case.name}, {BAR_SUBTASKS} subtasks {wide.placement}"
    return (
        timed(at_most(f"{name}: CPU of the slowest / of one task", wide.slowest_cpu_s / one.cpu_s, bar)),
        timed(at_most(f"{name}: CPU of all / of one task", wide.cpu_s / one.cpu_s, TOGETHER)),
    )


def _plain(one: SubtaskFigures) -> dict[str, Any]:
    return {
        "placement": one.placement,
        "subtasks": one.subtasks,
        "CPU of all, s": round(one.cpu_s, 3),
        "CPU of the slowest, s": round(one.slowest_cpu_s, 3),
        "state of all, MB": round(one.state_bytes / 1e6, 2),
        "largest state, MB": round(one.largest_state_bytes / 1e6, 2),
        "read by all, MB": round(one.bytes_read / 1e6, 2),
        "most read, MB": round(one.most_bytes_read / 1e6, 2),
        "rows": sum(one.rows.values()),
    }


def tables(result: Result) -> list[Table]:
    chosen = _subtasks_table("Placements as they are chosen: CPU seconds and MB")
    for case, by in result.figures["cases"].items():
        _add_rows(chosen, case, list(by.values()), by[1])
    others = _subtasks_table(f"Every placement, {BAR_SUBTASKS} subtasks: CPU seconds and MB")
    for case, found in result.figures[f"every placement, {BAR_SUBTASKS} subtasks"].items():
        _add_rows(others, case, found, result.figures["cases"][case][1])
    walls = Table("case", title="Two executors: seconds on the wall")
    for subtasks in WALL_SUBTASKS:
        walls.add_column(f"{subtasks} subtasks", justify="right")
    for case, by in result.figures["two executors, seconds on the wall"].items():
        walls.add_row(case, *(f"{by[str(subtasks)]:.2f}" for subtasks in WALL_SUBTASKS))
    shared = Table(
        "joins", title="Joins that share states, and the sum of the same apart: CPU seconds and MB"
    )
    for column in ("CPU", "apart", "ratio", "state", "apart", "ratio"):
        shared.add_column(column, justify="right")
    for name, found in result.figures["joins that share states"].items():
        row = []
        for what in ("CPU of all, s", "state of all, MB"):
            own, sum_ = found["together"][what], sum(one[what] for one in found["apart"])
            row += [f"{own:.2f}", f"{sum_:.2f}", f"{own / sum_:.2f}"]
        shared.add_row(name, *row)
    return [chosen, others, shared, walls]


def _subtasks_table(title: str) -> Table:
    table = Table("case", "subtasks", "placement", title=title)
    for column in ("CPU", "slowest", "of one", "state", "largest", "read", "most"):
        table.add_column(column, justify="right")
    return table


def _add_rows(table: Table, case: str, found: Sequence[Mapping[str, Any]], one: Mapping[str, Any]) -> None:
    for place, own in enumerate(found):
        table.add_row(
            "" if place else case,
            str(own["subtasks"]),
            own["placement"],
            f"{own['CPU of all, s']:.2f}",
            f"{own['CPU of the slowest, s']:.2f}",
            f"{own['CPU of the slowest, s'] / one['CPU of all, s']:.2f}",
            f"{own['state of all, MB']:.1f}",
            f"{own['largest state, MB']:.1f}",
            f"{own['read by all, MB']:.0f}",
            f"{own['most read, MB']:.0f}",
            end_section=place == len(found) - 1,
        )


BENCHMARK = Benchmark(
    "Joins over 1 to 16 subtasks: the slowest, all together, and what they keep", run, tables
)
