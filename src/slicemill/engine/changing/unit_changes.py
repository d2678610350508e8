"""From one plan to the next: units go on, are new, or change between two runs.

A change is seen by the tuples that arrive after it. So what has arrived is worked on first, as far as it
goes, by the units that feed one that changes, and by that one as it was.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from slicemill.engine.changing.joining import (
    LEFT_OUT,
    joined,
    keep_announced,
    new_fields,
    replaced,
    without_names,
    without_newcomers,
)
from slicemill.engine.changing.tables import TableVersions
from slicemill.engine.dispatcher import Dispatcher
from slicemill.engine.program import UnitPlan
from slicemill.engine.unit import RunningUnit
from slicemill.esl.types.catalog import Catalog
from slicemill.operators.graph import QueryGraph
from slicemill.plan.content import quoted
from slicemill.plan.partitions import Exchange, needed_by_log
from slicemill.plan.placement import PlacementKind, chosen, permitted, restored
from slicemill.plan.planner import Plan
from slicemill.plan.units import Unit, part_of
from slicemill.storage.arrow_schema import to_arrow
from slicemill.storage.changes import Change
from slicemill.storage.home import Home

_LOGGER = logging.getLogger("slicemill")


@dataclass(slots=True)
class UnitChanges:
    """Makes the units of a plan; `cells` is how many ways a new one is split, `placement` how, if not the
    cheapest way."""

    home: Home
    dispatcher: Dispatcher
    tables: TableVersions
    mill: str
    cells: int
    placement: PlacementKind | None = None

    def units_of(self, plan: Plan, catalog: Catalog) -> list[RunningUnit]:
        """The units that are to run from now on; while paused."""
        units: list[RunningUnit] = []
        for part in self._plans(plan, catalog):
            running = self.dispatcher.running.unit(part.unit.id)
            if running is None or not running.plan.does_the_same(part):
                running = self._changed(part, running, units)
            units.append(running)
        # Nobody needs the rows from before any more.
        self.home.commit(Change(tables=self.tables.changes()))
        read_by = needed_by_log(unit.plan.exchanges for unit in units)
        for unit in units:
            unit.read_by = read_by
        return units

    def note_left_out(self, catalog: Catalog) -> None:
        """Note what the home keeps and this start does not declare, and say so: it misses what arrives."""
        declared = catalog.queries.keys() | catalog.relations.keys()
        change = Change()
        for unit, fields in self.home.units.items():
            known = fields.get(LEFT_OUT, [])
            kept = [log for log in (*known, *fields["outputs"]) if log in self.home.logs]
            missing = sorted({log for log in kept if log.lower() not in declared})
            if not set(missing) <= set(known):
                change.units[unit] = {LEFT_OUT: sorted({*known, *missing})}
            for log in missing:
                _LOGGER.warning(
                    "%s is kept in %s and is not declared: it does not run, and will have missed what "
                    "arrives; declare it, or DROP it",
                    log,
                    self.home.folder,
                )
        if change:
            self.home.commit(change)

    def exchanges(self, unit: Unit, graph: QueryGraph) -> dict[str, Exchange]:
        """How a unit reads logs: one that was there before has the placement that it had."""
        known = self.home.units.get(unit.id)
        if known is not None:
            return dict(permitted(unit, graph, restored(unit, graph, known["placement"])).exchanges)
        return dict(chosen(unit, graph, self.cells, kind=self.placement).exchanges)

    def _plans(self, plan: Plan, catalog: Catalog) -> list[UnitPlan]:
        # A plan travels to workers: it must not grow with queries that others run.
        catalog = catalog.without_queries()
        found = []
        for unit in plan.units:
            graph = part_of(plan.graph, unit)
            tables = self.tables.seen_by(graph, catalog)
            found.append(UnitPlan(unit, graph, catalog, tables, self.exchanges(unit, graph)))
        return found

    def _changed(
        self, plan: UnitPlan, running: RunningUnit | None, before: Sequence[RunningUnit]
    ) -> RunningUnit:
        """The unit of a plan: changed, or new and starting from now; `before` are those that may feed it."""
        unit_id = plan.unit.id
        logs = {log: to_arrow(plan.graph[node].schema) for node, log in plan.unit.outputs}
        created = {log: columns for log, columns in logs.items() if log not in self.home.logs}
        if unit_id not in self.home.units:
            self._catch_up(before, plan.unit.inputs)
            self.home.commit(Change(created=created, units={unit_id: new_fields(plan, self.home)}))
        else:
            self.home.commit(Change(created=created))
            self._take_back(unit_id, logs)
            self._change_members(plan, running, before)
        unit = self._running(plan)
        keep_announced(unit, self.dispatcher.streams)
        return unit

    def _running(self, plan: UnitPlan) -> RunningUnit:
        by_key_alone = self.placement is PlacementKind.KEY
        return RunningUnit(plan, self.home, self.mill, by_key_alone=by_key_alone)

    def _take_back(self, unit: str, logs: Collection[str]) -> None:
        """Say which of the queries that come to a unit have missed something, and what to do about it."""
        left_out = self.home.units[unit].get(LEFT_OUT, [])
        back = [log for log in left_out if log in logs]
        if not back:
            return
        self.home.commit(Change(units={unit: {LEFT_OUT: without_names(left_out, back)}}))
        for log in back:
            _LOGGER.warning(
                "%s, kept in %s, was not declared for a while: what arrived then is missing from its "
                "windows; run DROP QUERY %s once to begin anew",
                log,
                self.home.folder,
                quoted(log),
            )

    def _change_members(
        self, plan: UnitPlan, running: RunningUnit | None, feeding: Sequence[RunningUnit]
    ) -> None:
        """Queries come to a unit, or leave it, or its tables change: its state is written as it was before,
        so that a replay never has to know both."""
        fields = self.home.units[plan.unit.id]
        written = sorted(log for _, log in plan.unit.outputs)
        tables = self.tables.seen_so_far(plan.tables)
        if running is None and fields["outputs"] == written and tables == plan.tables:
            return
        before = running
        if before is None:
            known = without_newcomers(plan, fields["outputs"])
            before = self._running(replace(known, tables=tables))
            keep_announced(before, self.dispatcher.streams)
        self._catch_up(feeding, plan.unit.inputs)
        self.dispatcher.finish(before)
        changed = joined(plan, before, self.home)
        self.home.commit(
            Change(units={plan.unit.id: changed | replaced(plan, before, changed["checkpoint"])})
        )

    def _catch_up(self, units: Sequence[RunningUnit], logs: Collection[str]) -> None:
        """Let all that has arrived get to some logs."""
        wanted, feeding = set(logs), []
        for unit in reversed(units):
            if any(log in wanted for _, log in unit.plan.unit.outputs):
                wanted.update(unit.plan.unit.inputs)
                feeding.append(unit)
        for unit in reversed(feeding):
            self.dispatcher.catch_up(unit)
