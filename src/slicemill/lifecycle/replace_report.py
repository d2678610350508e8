"""EXPLAIN REPLACE: predict which state a replacement keeps or drops, and when results are complete."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.errors import all_of
from slicemill.lifecycle.catalog_journal import StoredStatements, in_force, new_entries
from slicemill.lifecycle.replace import Replacement, with_users
from slicemill.lifecycle.running_catalog import RunningCatalog
from slicemill.lifecycle.task_fields import complete_from_of, newest_ts
from slicemill.plan.history import history_us
from slicemill.plan.overlapping_joins import logs_read
from slicemill.plan.planner import Plan
from slicemill.plan.state_reuse import kept_state, state_of, successors
from slicemill.sql.errors import SourceText
from slicemill.time import BEGINNING


@dataclass(frozen=True, slots=True)
class ReplaceEffect:
    """Effect of a replacement on one query or stream.

    `effect` is "keeps", "begins anew", "ends", "reads on" or another topic, such as "complete from".
    """

    name: str
    effect: str
    what: str


def predict_effects(running: RunningCatalog, esl: str | SourceText) -> list[ReplaceEffect]:
    """Predict the effects of the CREATE OR REPLACE statements of a script, without executing it."""
    home = running.home
    kept = StoredStatements.of(home.statements, home.folder, home.logs)
    bound = bind(esl, running.catalog, lambda: kept.catalog)
    catalog, same, replaced = kept.reconcile(bound)
    entries = new_entries(bound, home.statements, 0, same)
    if replaced:
        after = in_force([*home.statements, *entries])
        catalog, replacing = with_users(catalog, replaced, after, bound.source)
        replacing = running.with_past(catalog, replacing)
        return effects_of(running, running.make_plan(catalog, replacing), catalog, replacing)
    new = {entry["name"] for entry in entries}
    names = [statement.name for statement, _ in bound.statements]
    return [
        ReplaceEffect(name, "begins anew", "it is new")
        if name in new
        else ReplaceEffect(name, "keeps", "everything: it means what it meant")
        for name in names
    ]


def effects_of(
    running: RunningCatalog, plan: Plan, catalog: Catalog, replacing: Replacement
) -> list[ReplaceEffect]:
    """Return the effects of a replacement, query by query; `plan` is the plan of the new catalog."""
    found: list[ReplaceEffect] = []
    causes = {key[1]: cause for key, cause in replacing.because.items()}
    for name in sorted(replacing.logs):
        if name.lower() in causes:
            found.append(ReplaceEffect(name, "is bound again", f"it uses {causes[name.lower()]}"))
        if name in replacing.emptied:
            found.append(ReplaceEffect(name, "deletes", "all rows that its table has then"))
        found += _state_effects(running, plan, name, name in replacing.anew, name in replacing.past)
        found += _columns_effect(running, catalog, name)
    for name, query in sorted(running.catalog.queries.items()):
        if query.writes_for is not None and name not in catalog.queries:
            found.append(ReplaceEffect(query.name, "ends", f"{query.options.table} gets no more of it"))
    others = sorted({key[1] for key in replacing.because} - {name.lower() for name in replacing.logs})
    found += [ReplaceEffect(name, "is bound again", f"it uses {causes[name]}") for name in others]
    for name in sorted(replacing.moved):
        source = catalog.declared_stream(name).source
        found.append(
            ReplaceEffect(name, "reads on", f"{source}, from its beginning; its queries keep their state")
        )
    return found or [ReplaceEffect("", "keeps", "everything: nothing that runs uses what is replaced")]


def _state_effects(
    running: RunningCatalog, plan: Plan, name: str, anew: bool, past: bool
) -> list[ReplaceEffect]:
    was, now = state_of(running.plan, name), state_of(plan, name)
    task = running.dispatcher.running.writers.get(name)
    anew = anew or (task is not None and name in task.failed)
    kept = [] if anew else kept_state(running.plan, plan, name)
    taken = successors(running.plan.graph, plan.graph, was[1], kept)
    fresh = [one for one in now[1] if one not in kept]
    gone = [one for one in was[1] if one not in kept and one not in taken.values()]
    found = [ReplaceEffect(name, "keeps", _describe_node(plan, one)) for one in kept]
    found += [ReplaceEffect(name, "begins anew", _describe_node(plan, one)) for one in fresh]
    found += [ReplaceEffect(name, "ends", _describe_node(running.plan, one)) for one in gone]
    if not now[1]:
        found.append(ReplaceEffect(name, "keeps", "nothing: it has no state"))
    return [
        *found,
        ReplaceEffect(name, "complete from", _describe_completeness(running, plan, name, not fresh, past)),
    ]


def _describe_node(plan: Plan, node: str) -> str:
    return plan.graph[node].label or node


def _describe_completeness(running: RunningCatalog, plan: Plan, name: str, kept: bool, past: bool) -> str:
    task, root = next((task, root) for task in plan.tasks for root, log in task.outputs if log == name)
    logs = [log for log in logs_read(task, plan.graph)[name] if log in running.home.logs]
    if past:
        again = sorted(plan.apart[name].again) if name in plan.apart else []
        words = f"the beginning: {all_of(again)} is read again"
        return words if again else "as far back as its streams are retained"
    if any(plan.graph[plan.graph.streams.get(log, log)].schema.changelog for log in logs):
        return "as complete as the tables that it reads"
    if kept:
        known = complete_from_of(name, running.plan.graph, running.dispatcher.tasks.values())
        words = "the beginning" if known == BEGINNING else "no time that can be told"
        return "as before: " + (_format_time(known) if known not in (None, BEGINNING) else words)
    length = history_us(plan.graph, root)
    newest = newest_ts(logs, running.home)
    if length is None:
        return "no time that can be told: it counts rows, or never forgets"
    return "now" if newest is None else f"{_format_time(newest + length)}, if it takes effect now"


def _format_time(us: int | None) -> str:
    try:
        return (datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=us or 0)).isoformat()
    except OverflowError:
        return f"{us} µs"


def _columns_effect(running: RunningCatalog, catalog: Catalog, name: str) -> list[ReplaceEffect]:
    before, after = (
        one.queries.get(name.lower()) or one.relation(name) for one in (running.catalog, catalog)
    )
    if before is None or after is None or before.schema == after.schema:
        return []
    return [ReplaceEffect(name, "columns", f"{before.schema} become {after.schema}")]
