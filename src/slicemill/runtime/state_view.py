"""Stored operator state in a home directory: rows, bytes and ages of each slice of join state.

Only checkpoints are read, so no running engine is needed. The numbers are those at the last checkpoint of
each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from rich.table import Table

from slicemill.codec.registry import StorageError
from slicemill.explain.diagrams import explain_dot, explain_mermaid
from slicemill.explain.json import explain_json
from slicemill.explain.placements import place_tasks
from slicemill.explain.svg import explain_svg
from slicemill.explain.text import explain_text
from slicemill.operators.graph import QueryGraph
from slicemill.operators.join.slices.workload import ASSUMED, Statistics, over_subtasks
from slicemill.operators.join.spec import SharedJoin
from slicemill.operators.join.statistics import Cuts, Inspectable
from slicemill.plan.placement import PlacementKind
from slicemill.storage.checkpoints import SliceFile, read_checkpoint
from slicemill.storage.home import Home
from slicemill.storage.home_reader import HomeReader

T = TypeVar("T")

# Function of the state of one operator in one subtask: (task, node, subtask, state).
Look: TypeAlias = Callable[[str, str, int, object], Iterable[T]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSlice:
    """Slice of join state (rows between two ages) in one subtask of a task.

    `wanted` has, for each query, the number of rows that the query may still read.
    """

    task: str
    subtask: int
    part: str
    rows: int
    bytes: int
    earliest_us: int
    latest_us: int
    wanted: Mapping[str, int]


def slices_of(home: Path | Home) -> list[StoredSlice]:
    """Return the slices of join state of all tasks at their last checkpoints."""
    return map_states(home, _for_inspectable(_slices))


def _slices(task: str, _node: str, subtask: int, state: Inspectable) -> Iterable[StoredSlice]:
    for held in state.held():
        stored = held.slice.stored if held.slice is not None else None
        size = stored.bytes if isinstance(stored, SliceFile) else 0
        wanted: dict[str, int] = {}
        for member, rows in held.wanted.items():
            query = member.split(":")[0]
            wanted[query] = max(rows, wanted.get(query, 0))
        yield StoredSlice(
            task=task,
            subtask=subtask,
            part=held.part,
            rows=held.rows,
            bytes=size,
            earliest_us=held.earliest,
            latest_us=held.latest,
            wanted=wanted,
        )


def slices_of_task(home: Home, task: str) -> list[StoredSlice]:
    """Return the slices of join state of one task at its last checkpoint."""
    return _map_task_states(home, task, _for_inspectable(_slices))


def cuts_of_task(home: Home, task: str) -> list[tuple[int, Cuts]]:
    """Return, for each subtask of a task, the ages that separate its slices of join state."""
    return _map_task_states(
        home, task, _for_inspectable(lambda _, __, subtask, state: [(subtask, cuts) for cuts in state.cuts()])
    )


def cuts_of(home: Path | Home) -> list[tuple[str, int, Cuts]]:
    """Return, for each subtask of each task, the ages that separate its slices of join state."""
    return map_states(
        home,
        _for_inspectable(lambda task, _, subtask, state: [(task, subtask, cuts) for cuts in state.cuts()]),
    )


def with_measures(graph: QueryGraph, home: Path | Home) -> QueryGraph:
    """Return the query graph, with the statistics that shared joins have measured."""
    parts: dict[str, list[Statistics]] = {}
    for node_id, statistics in map_states(
        home, _for_inspectable(lambda _, node, __, state: [(node, state.statistics())])
    ):
        if statistics is not None:
            parts.setdefault(node_id, []).append(statistics)
    nodes = {
        node.id: replace(node, operator=replace(node.operator, measured=over_subtasks(parts[node.id])))
        if isinstance(node.operator, SharedJoin) and node.id in parts
        else node
        for node in graph
    }
    return QueryGraph(nodes, graph.streams)


def explain_plan(
    graph: QueryGraph, home: Path | Home, subtasks: int, query: str | None = None, form: str = "text"
) -> str:
    """Return the execution plan of a query, or of all queries, with measured statistics.

    `form` is "text", "json", "svg", "mermaid" or "dot".
    """
    own = with_measures(graph if query is None else graph.only(graph.ancestors(query)), home)
    if form == "svg":
        return explain_svg(own)
    if form == "mermaid":
        return explain_mermaid(own)
    if form == "dot":
        return explain_dot(own)
    tasks = place_tasks(own, subtasks, placements_in(home))
    return explain_json(own, None, tasks) if form == "json" else explain_text(own, tasks=tasks)


def placements_in(home: Path | Home) -> dict[str, dict[str, Any]]:
    """Map each task to its placement, the stored rule that distributes rows over subtasks.

    A placement by key is reported as hybrid if the task has heavy keys.
    """
    opened = HomeReader(home) if isinstance(home, Path) else home
    return {
        task: {**fields["placement"], "kind": PlacementKind.HYBRID.value}
        if fields.get("heavy")
        else fields["placement"]
        for task, fields in opened.tasks.items()
    }


def map_states(home: Path | Home, look: Look[T]) -> list[T]:
    """Apply a function to all checkpointed states, and return the concatenated results."""
    opened = HomeReader(home) if isinstance(home, Path) else home
    return [seen for task in sorted(opened.tasks) for seen in _map_task_states(opened, task, look)]


def _for_inspectable(look: Callable[[str, str, int, Inspectable], Iterable[T]]) -> Look[T]:
    """Return a function that ignores operator states which do not implement Inspectable."""
    return lambda task, node, subtask, state: (
        look(task, node, subtask, state) if isinstance(state, Inspectable) else ()
    )


def _map_task_states(home: Home | HomeReader, task: str, look: Look[T]) -> list[T]:
    folder = home.checkpoint_folder(task)
    while True:
        subtasks = _files(home, task)
        try:
            return [
                seen
                for subtask, files in enumerate(subtasks)
                for node, state in read_checkpoint(folder, files).items()
                for seen in look(task, node, subtask, state)
            ]
        except StorageError:
            # A running engine deletes a checkpoint when the next checkpoint is complete.
            # In this case the loop reads again.
            if isinstance(home, HomeReader):
                home.poll()
            if _files(home, task) == subtasks:
                raise


def _files(home: Home | HomeReader, task: str) -> list[list[list[object]]]:
    """Return the files of a task's last checkpoint, in the order of the subtasks."""
    files: list[list[list[object]]] = home.tasks.get(task, {}).get("checkpoint", {}).get("files", [])
    return files


def state_tables(home: Path) -> tuple[Table, ...]:
    """Return tables about slices of join state, about queries, and about the borders between slices."""
    found, cuts = slices_of(home), cuts_of(home)
    tables = (_slices_table(found), _queries_table(found))
    return (*tables, _cuts_table(cuts)) if cuts else tables


def _table(left: Iterable[str], right: Iterable[str]) -> Table:
    """Create a table with text columns (left-aligned) and number columns (right-aligned)."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in left:
        table.add_column(column, overflow="fold")
    for column in right:
        table.add_column(column, justify="right", overflow="fold")
    return table


def _seconds(us: int) -> str:
    return f"{us / 1_000_000:,.1f} s"


def _newest(found: Iterable[StoredSlice]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for held in found:
        newest[held.task] = max(held.latest_us, newest.get(held.task, held.latest_us))
    return newest


def _slices_table(found: list[StoredSlice]) -> Table:
    slices = _table(("task", "subtask", "part"), ("rows", "bytes", "span", "age"))
    newest = _newest(found)
    for held in found:
        span, age = held.latest_us - held.earliest_us, newest[held.task] - held.latest_us
        counts = (f"{held.rows:,}", f"{held.bytes:,}", _seconds(span), _seconds(age))
        slices.add_row(held.task, str(held.subtask), held.part, *counts)
    return slices


def _queries_table(found: list[StoredSlice]) -> Table:
    queries: dict[str, list[StoredSlice]] = {}
    newest = _newest(found)
    for held in found:
        for query in held.wanted:
            queries.setdefault(query, []).append(held)
    by_query = _table(("query",), ("rows", "slices", "reaches back"))
    for query, parts in sorted(queries.items()):
        rows = sum(part.wanted[query] for part in parts)
        back = max(newest[part.task] - part.earliest_us for part in parts)
        by_query.add_row(query, f"{rows:,}", str(len(parts)), _seconds(back))
    return by_query


def _cuts_table(found: list[tuple[str, int, Cuts]]) -> Table:
    """Return a table of measured rates and of the slice borders (ages) that result from them."""
    table = _table(
        ("chain", "subtask", "part"),
        ("rows/s", "compared/s", "a cut costs", "Mem-Opt", "CPU-Opt", "cut at", "rows expected"),
    )
    for task, subtask, cuts in found:
        rate = f"{cuts.rate:,.0f} ({ASSUMED.rates[0]:g})"
        costs = (f"{cuts.compared:.3g}", f"{cuts.rewriting:.1f}")
        ends = [", ".join(f"{end:g} s" for end in ends) for ends in (cuts.finest, cuts.cheapest, cuts.used)]
        table.add_row(task, str(subtask), cuts.part, rate, *costs, *ends, f"{cuts.expected_rows:,.0f}")
    return table
