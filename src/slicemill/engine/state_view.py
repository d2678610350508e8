"""What the state of a home holds: rows, bytes and ages, slice by slice and query by query.

Only what was committed is looked at, so this works beside a mill at work, and without one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from urllib.parse import unquote

from rich.table import Table

from slicemill.engine.early_choice import choices_in, with_choices
from slicemill.engine.task import load_state
from slicemill.errors import SlicemillError
from slicemill.kernels.slice import Cuts, Telling
from slicemill.plan.graph import QueryGraph
from slicemill.plan.operators import SharedJoin
from slicemill.plan.slices.statistics import ASSUMED, Statistics, over_buckets
from slicemill.storage.checkpoints import SliceFile
from slicemill.storage.chunk import ChunkInfo
from slicemill.storage.state import IDENTITY, StateStore


@dataclass(frozen=True, slots=True)
class HeldSlice:
    """One slice in one bucket of a unit. `wanted` has the rows that each query may still get to see."""

    unit: str
    bucket: int
    part: str
    rows: int
    bytes: int
    earliest_us: int
    latest_us: int
    wanted: Mapping[str, int]


def slices_of(home: Path) -> Iterator[HeldSlice]:
    """The slices of all units in a home, as last committed."""
    for unit, _, bucket, state in _states_of(home):
        for held in state.held():
            stored = held.slice.stored if held.slice is not None else None
            size = stored.bytes if isinstance(stored, SliceFile) else 0
            wanted: dict[str, int] = {}
            for member, rows in held.wanted.items():
                query = member.split(":")[0]
                wanted[query] = max(rows, wanted.get(query, 0))
            yield HeldSlice(unit, bucket, held.part, held.rows, size, held.earliest, held.latest, wanted)


def cuts_of(home: Path) -> Iterator[tuple[str, int, Cuts]]:
    """Unit by unit and bucket by bucket, where slices are cut and why."""
    for unit, _, bucket, state in _states_of(home):
        for cuts in state.cuts():
            yield unit, bucket, cuts


def with_measures(graph: QueryGraph, home: Path) -> QueryGraph:
    """A graph whose shared joins and windows know what has been measured of them in a home."""
    parts: dict[str, list[Statistics]] = {}
    for _, node_id, _, state in _states_of(home):
        statistics = state.statistics()
        if statistics is not None:
            parts.setdefault(node_id, []).append(statistics)
    nodes = {
        node.id: replace(node, operator=replace(node.operator, measured=over_buckets(parts[node.id])))
        if isinstance(node.operator, SharedJoin) and node.id in parts
        else node
        for node in graph
    }
    return with_choices(QueryGraph(nodes, graph.streams), choices_in(graph, home))


def _states_of(home: Path) -> Iterator[tuple[str, str, int, Telling]]:
    """Unit, operator, bucket and what it keeps."""
    folder = home / "units"
    if not folder.exists():
        raise SlicemillError(f"{home} is no home of a mill; give the folder that `run --home` was given")
    for unit in sorted(path for path in folder.iterdir() if (path / IDENTITY).exists()):
        version = StateStore(unit).latest()
        buckets: dict[int, list[ChunkInfo]] = {}
        for part in version.slices if version is not None else ():
            buckets.setdefault(part.bucket, []).append(part.chunk)
        for bucket, chunks in sorted(buckets.items()):
            for node_id, state in load_state(unit, chunks).items():
                if isinstance(state, Telling):
                    yield unquote(unit.name), node_id, bucket, state


def state_tables(home: Path) -> tuple[Table, ...]:
    """One line a slice, one line a query, and one for each chain of slices whose streams are known by now."""
    found = list(slices_of(home))
    cuts = list(cuts_of(home))
    tables = (_slices_table(found), _queries_table(found))
    return (*tables, _cuts_table(cuts)) if cuts else tables


def _table(left: Iterable[str], right: Iterable[str]) -> Table:
    """An empty table: columns of words, then columns of numbers."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in left:
        table.add_column(column)
    for column in right:
        table.add_column(column, justify="right")
    return table


def _seconds(us: int) -> str:
    return f"{us / 1_000_000:,.1f} s"


def _newest(found: Iterable[HeldSlice]) -> dict[str, int]:
    newest: dict[str, int] = {}
    for held in found:
        newest[held.unit] = max(held.latest_us, newest.get(held.unit, held.latest_us))
    return newest


def _slices_table(found: list[HeldSlice]) -> Table:
    slices = _table(("unit", "bucket", "part"), ("rows", "bytes", "span", "age"))
    newest = _newest(found)
    for held in found:
        span, age = held.latest_us - held.earliest_us, newest[held.unit] - held.latest_us
        counts = (f"{held.rows:,}", f"{held.bytes:,}", _seconds(span), _seconds(age))
        slices.add_row(held.unit, str(held.bucket), held.part, *counts)
    return slices


def _queries_table(found: list[HeldSlice]) -> Table:
    queries: dict[str, list[HeldSlice]] = {}
    newest = _newest(found)
    for held in found:
        for query in held.wanted:
            queries.setdefault(query, []).append(held)
    by_query = _table(("query",), ("rows", "slices", "reaches back"))
    for query, parts in sorted(queries.items()):
        rows = sum(part.wanted[query] for part in parts)
        back = max(newest[part.unit] - part.earliest_us for part in parts)
        by_query.add_row(query, f"{rows:,}", str(len(parts)), _seconds(back))
    return by_query


def _cuts_table(found: list[tuple[str, int, Cuts]]) -> Table:
    """What was measured, beside what `explain` assumes of a stream, and the cuts that follow from it."""
    table = _table(
        ("chain", "bucket", "part"),
        ("rows/s", "compared/s", "a cut costs", "Mem-Opt", "CPU-Opt", "cut at", "rows expected"),
    )
    for unit, bucket, cuts in found:
        rate = f"{cuts.rate:,.0f} ({ASSUMED.rates[0]:g})"
        costs = (f"{cuts.compared:.3g}", f"{cuts.rewriting:.1f}")
        ends = [", ".join(f"{end:g} s" for end in ends) for ends in (cuts.finest, cuts.cheapest, cuts.used)]
        table.add_row(unit, str(bucket), cuts.part, rate, *costs, *ends, f"{cuts.expected_rows:,.0f}")
    return table
