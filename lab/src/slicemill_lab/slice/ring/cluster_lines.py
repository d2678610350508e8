"""Response and state over the number of nodes of a cluster, by method."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from slicemill_lab.experiment import Result, Scale
from slicemill_lab.plotting import curve, draw_curves
from slicemill_lab.slice.ring.on_cluster import (
    CLUSTER_NODES,
    CLUSTER_WINDOW_S,
    MeasuredNodes,
    NodesRun,
    measured_nodes,
    steady,
)


@dataclass(frozen=True, slots=True)
class NodesPoint:
    """Run of one method on a number of nodes."""

    response_ms: float
    state: int
    largest: int
    slowest_cpu_ms: float
    """Work of the slowest node for each second's tuples: a lower bound of the response on as many machines.
    """

    @staticmethod
    def of(one: MeasuredNodes) -> NodesPoint:
        count = len(one.response_s)
        return NodesPoint(
            1000 * fmean(one.response_s), one.state, one.largest, 1000 * one.slowest_cpu_s / count
        )


Lines = Mapping[str, Mapping[int, NodesPoint]]


def cluster_lines(ways: Mapping[str, Mapping[str, Any]], scale: Scale, seed: int) -> Lines:
    """Run every method at every number of nodes, on one cluster. All must give as many results."""
    window, rates, nodes = CLUSTER_WINDOW_S[scale], steady(scale), CLUSTER_NODES[scale]
    runs = [NodesRun(nodes=n, window_s=window, rates=rates, **way) for way in ways.values() for n in nodes]
    found = measured_nodes(runs, seed)
    lines = {}
    for place, name in enumerate(ways):
        line = found[place * len(nodes) : (place + 1) * len(nodes)]
        assert len({one.results for one in line}) == 1, [one.results for one in line]
        lines[name] = {n: NodesPoint.of(one) for n, one in zip(nodes, line, strict=True)}
    return lines


def best_nodes(line: Mapping[int, NodesPoint]) -> tuple[int, float]:
    """Return the number of nodes with the least response, and this response in ms."""
    nodes = min(line, key=lambda one: line[one].response_ms)
    return nodes, line[nodes].response_ms


def line_figures(lines: Lines) -> dict[str, dict[str, list[float]]]:
    return {
        name: {
            "response_ms": [round(one.response_ms, 2) for one in line.values()],
            "state": [one.state for one in line.values()],
            "largest state": [one.largest for one in line.values()],
            "CPU of the slowest node, ms": [round(one.slowest_cpu_ms, 2) for one in line.values()],
        }
        for name, line in lines.items()
    }


def draw_lines(result: Result, path: Path, what: str, title: str) -> None:
    """Plot a figure over the number of nodes."""
    labels = {"response_ms": "time for a second's tuples [ms]", "state": "tuples stored"}
    draw_curves(
        path,
        {
            name: curve(result.figures["nodes"], [line[what]])
            for name, line in result.figures["lines"].items()
        },
        title=title,
        x_label="nodes",
        y_label=labels[what],
    )
