"""Adding queries to a unit and removing them: the changes of its fields between two runs."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any

from slicemill.engine.program import UnitPlan
from slicemill.engine.streams import RunningStream, logs_of
from slicemill.engine.unit import RunningUnit
from slicemill.errors import SlicemillError
from slicemill.esl.types.catalog import QueryDefinition, Stream
from slicemill.ingest.watermarks import newest_tuple
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.slices.coverage import admitted, members_behind
from slicemill.operators.streams.spec import Source
from slicemill.plan.history import history_us
from slicemill.plan.members import names_of_state, without_outputs
from slicemill.plan.overlapping import HeldStates, PlacedQueries, joined_on, logs_read
from slicemill.plan.placement import Placement, PlacementKind, judges_rows
from slicemill.storage.arrow_schema import to_arrow
from slicemill.storage.changes import Change
from slicemill.storage.home import Home
from slicemill.time import BEGINNING, END

# Of a unit: logs that it wrote for queries and streams which a start has not declared.
LEFT_OUT = "left_out"


def new_fields(plan: UnitPlan, home: Home) -> dict[str, Any]:
    """The fields of a new unit: it reads epochs that come after those that are in the logs now."""
    cursors = {log: home.logs[log].head for log in plan.unit.inputs}
    return {
        "placement": Placement.of(plan.exchanges).plain(),
        "joined_on": joined_on(plan.unit, plan.graph),
        "cursors": cursors,
        "outputs": _written(plan),
        "since": {log: _newest_ts(logs, home) for log, logs in _read_by(plan).items()},
        "input_watermarks": {},
        "output_watermarks": {},
        "checkpoint": {"cursors": cursors, "input_watermarks": {}, "files": []},
    }


def keep_announced(unit: RunningUnit, streams: Mapping[str, RunningStream]) -> None:
    """The watermarks that a unit was given before a restart still hold.

    That of a derived stream was not above those of the streams behind it.
    """
    graph, catalog = unit.plan.graph, unit.plan.catalog
    for log, ts in unit.input_watermarks().items():
        behind = graph.ancestors(graph.streams.get(log, log))
        for node in graph:
            if node.id in behind and isinstance(node.operator, Source):
                name = node.operator.stream
                streams[catalog.declared_stream(name).name].announce_at_least(name, ts)


def without_newcomers(plan: UnitPlan, known: Collection[str]) -> UnitPlan:
    """The plan without the queries that have no state yet: they must not read older rows."""
    new = [log for log in _written(plan) if log not in known]
    unit, graph = without_outputs(plan.unit, plan.graph, new)
    return replace(plan, unit=unit, graph=graph)


def joined(plan: UnitPlan, before: RunningUnit, home: Home) -> dict[str, Any]:
    """The changed fields of a unit, which has read all epochs, when it gets the members of a plan.

    Queries that come count what comes from now on; joins among them also get what is stored for others, where
    it serves them (S23).
    """
    graph, written, read = plan.graph, _written(plan), _read_by(plan)
    known = before.since
    new = frozenset(written).difference(known)
    since = {log: known[log] if log in known else _newest_ts(read[log], home) for log in written}
    for log in new:
        passed = _passed(before, read[log])
        if BEGINNING < passed < END:
            since[log] = max(since[log] or passed, passed)
    members = {log: list(members_behind(graph, root)) for root, log in plan.unit.outputs}
    served, since = admitted(members, new, {}, since)
    alone = {
        name: (None, None)
        for root, log in plan.unit.outputs
        if log in new
        for name in names_of_state(graph, plan.unit, root)
    }
    # Queries of joins may bring other streams, or be the last to read one.
    inputs, checkpoint = plan.unit.inputs, before.fields["checkpoint"]
    cursors = {log: before.cursor(log) for log in inputs}
    kept = {log: checkpoint["cursors"].get(log, cursors[log]) for log in inputs}
    marks = {log: ts for log, ts in before.input_watermarks().items() if log in inputs}
    return {
        "placement": Placement.of(plan.exchanges).plain(),
        "joined_on": joined_on(plan.unit, graph, before.fields.get("joined_on")),
        "cursors": cursors,
        "checkpoint": {**checkpoint, "cursors": kept},
        "input_watermarks": marks,
        # What waited for a log that nobody reads any more waited for somebody who is gone.
        "due": [due for due in before.due if due.keys() <= set(inputs)] or None,
        "outputs": written,
        "since": since,
        "newcomers": {**alone, **served} or None,
        "failed": {log: why for log, why in before.failed.items() if log in written} or None,
        "output_watermarks": {
            log: ts for log, ts in before.fields["output_watermarks"].items() if log in written
        },
    }


def replaced(plan: UnitPlan, before: RunningUnit, checkpoint: Mapping[str, Any]) -> dict[str, Any]:
    """The changed fields of a unit whose new members do not allow its cells, or its heavy keys: its state, of
    that checkpoint, is put where it is from now on (`adapting.replacing`)."""
    was, now = Placement.of(before.plan.exchanges), Placement.of(plan.exchanges)
    heavy = before.fields.get("heavy") or []
    if was.spreads_like(now) and not (heavy and judges_rows(plan.unit, plan.graph)):
        return {}
    return {"heavy": None, "checkpoint": {"placement": was.plain(), "heavy": heavy, **checkpoint}}


def with_logs(streams: Iterable[Stream], queries: Iterable[QueryDefinition], home: Home) -> Change:
    """The change by which declared streams and queries get their logs; those that are there must fit."""
    logs = {name: columns for stream in streams for name, columns in logs_of(stream).values()}
    logs |= {query.name: to_arrow(query.schema) for query in queries}
    for name, columns in logs.items():
        known = home.logs.get(name)
        if known is not None and not known.columns.equals(columns, check_metadata=True):
            raise SlicemillError(
                f"{name} is kept in {home.folder} with other columns; give the new one another name"
            )
    return Change(created={name: columns for name, columns in logs.items() if name not in home.logs})


def without_log(name: str, home: Home) -> Change:
    """The change by which the log of a query or derived stream goes, and its place in a unit.

    A unit that runs has given up its place before; one that is still to be taken up has not.
    """
    change = Change(dropped_logs=[name])
    for unit, fields in home.units.items():
        if fields["outputs"] == [name]:
            change.dropped_units.append(unit)
            continue
        changed: dict[str, Any] = {
            by_log: {log: at for log, at in fields[by_log].items() if log != name}
            for by_log in ("since", "failed", "output_watermarks")
            if name in fields.get(by_log, {})
        }
        for names in ("outputs", LEFT_OUT):
            if name in fields.get(names, ()):
                changed[names] = without_names(fields[names], [name])
        if changed:
            change.units[unit] = changed
    return change


def without_names(names: Collection[str], gone: Collection[str]) -> list[str] | None:
    """What is left of a list that a field has; None, for no field, if that is nothing."""
    return [name for name in names if name not in gone] or None


def _written(plan: UnitPlan) -> list[str]:
    return sorted(log for _, log in plan.unit.outputs)


def _read_by(plan: UnitPlan) -> dict[str, frozenset[str]]:
    """By log that a unit writes, those of its inputs that it comes from."""
    return {log: logs_read(plan.graph, root) for root, log in plan.unit.outputs}


def _passed(before: RunningUnit, logs: Collection[str]) -> int:
    """Up to where a unit has let go of what nobody wanted, of some of its inputs.

    The last run did, which may be later than the last row. Of each input, rows are kept as long as a query
    that reads it has not passed them.
    """
    marks, passed = before.input_watermarks(), BEGINNING
    read = [own for own in _read_by(before.plan).values() if all(log in marks for log in own)]
    for log in logs:
        reached = [min(marks[one] for one in own) for own in read if log in own]
        passed = max([passed, *([min(reached)] if reached else [])])
    return passed


def _newest_ts(logs: Collection[str], home: Home) -> int | None:
    """The greatest timestamp of some inputs: a query that is added now reads all that is later.

    Of a stream, tuples that nobody wanted count too: they are not in its log, and were there.
    """
    newest = [home.logs[log].max_ts for log in logs]
    newest += [newest_tuple(home.streams[log]) for log in logs if log in home.streams]
    return max((ts for ts in newest if ts is not None), default=None)


def placed_queries(units: Mapping[str, Mapping[str, Any]]) -> PlacedQueries:
    """What runs where, as the journal says it of a home's units."""
    unit_of = {
        log: unit for unit, fields in units.items() for log in (*fields["outputs"], *fields.get(LEFT_OUT, ()))
    }
    open_kinds = (PlacementKind.ONE.value, PlacementKind.KEY.value)
    states = {
        unit: HeldStates(fields["joined_on"], fields["placement"]["kind"] in open_kinds)
        for unit, fields in units.items()
        if fields.get("joined_on")
    }
    return PlacedQueries(unit_of, states)


def complete_from_of(query: str, graph: QueryGraph, units: Iterable[RunningUnit]) -> int | None:
    """From when on a query's results are those of one that was always there; None where that never comes."""
    history = history_us(graph, query)
    found = [unit.since[query] for unit in units if query in unit.since]
    if not found or history is None:
        return None
    return BEGINNING if found[0] is None else found[0] + history
