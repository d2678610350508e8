"""For which units panes are made early, by what their runs have counted (`plan.early_cost`)."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from slicemill.engine.early_panes import want_panes
from slicemill.metrics.unit_statistics import UnitStatistics
from slicemill.plan.early_cost import Choice, PaneStatistics, choose
from slicemill.plan.early_panes import Recipe, recipe_of_unit
from slicemill.plan.graph import QueryGraph
from slicemill.plan.operators import SharedWindows
from slicemill.plan.units import cut
from slicemill.storage.home import folder_name
from slicemill.storage.state import IDENTITY, StateStore

if TYPE_CHECKING:
    from slicemill.engine.unit_run import RunningUnit


@dataclass
class EarlyPanes:
    """Tells the tasks that read which panes to make; `choose` decides for one unit."""

    cores: int
    choose: Callable[[PaneStatistics, bool, int, int], Choice] = choose
    _wanted: dict[Path, list[Recipe]] = field(default_factory=dict)  # by log

    def update(self, units: Iterable[RunningUnit], logs: Iterable[Path] = ()) -> None:
        """Have made what pays by now, and no more, also of `logs` for which something was made before."""
        wanted: dict[Path, list[Recipe]] = {folder: [] for folder in (*self._wanted, *logs)}
        for unit in units:
            if unit.early is not None:
                folder, recipe = unit.early
                found = wanted.setdefault(folder, [])
                if self._choice(unit, recipe).early and recipe not in found:
                    found.append(recipe)
        for folder, recipes in wanted.items():
            if self._wanted.get(folder) != recipes:
                want_panes(folder, recipes)
        self._wanted = wanted

    def told(self, graph: QueryGraph, units: Iterable[RunningUnit]) -> QueryGraph:
        """A graph whose shared windows know what was chosen for them."""
        choices = {
            node: self._choice(unit, unit.early[1])
            for unit in units
            if unit.early is not None
            for node in unit.plan.unit.nodes
        }
        return with_choices(graph, choices)

    def _choice(self, unit: RunningUnit, recipe: Recipe) -> Choice:
        return self.choose(unit.statistics.panes, bool(recipe.keys), unit.plan.buckets, self.cores)


def with_choices(graph: QueryGraph, choices: Mapping[str, Choice]) -> QueryGraph:
    """A graph whose shared windows know what was chosen for them, by node."""
    nodes = {
        node.id: replace(node, operator=replace(node.operator, early=choices[node.id]))
        if isinstance(node.operator, SharedWindows) and node.id in choices
        else node
        for node in graph
    }
    return QueryGraph(nodes, graph.streams)


def choices_in(graph: QueryGraph, home: Path) -> dict[str, Choice]:
    """What a mill on this machine would choose for shared windows, by what is counted in a home; by node."""
    found: dict[str, Choice] = {}
    for unit in cut(graph):
        early, folder = recipe_of_unit(unit, graph), home / "units" / folder_name(unit.id)
        version = StateStore(folder).latest() if (folder / IDENTITY).exists() else None
        if early is not None and version is not None:
            statistics, kept = UnitStatistics(), version.extra.get("statistics", {})
            assert isinstance(kept, dict)
            statistics.restore(kept)
            buckets = int(str(version.extra["buckets"]))
            choice = choose(statistics.panes, bool(early[1].keys), buckets, os.cpu_count() or 1)
            found |= dict.fromkeys(unit.nodes, choice)
    return found
