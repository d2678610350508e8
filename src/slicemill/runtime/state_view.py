"""What the state of a home holds: rows, bytes and ages, slice by slice and query by query.

Only what was committed is looked at, so this works beside a mill at work, and without one.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote

from rich.table import Table

from slicemill.errors import SlicemillError
from slicemill.esl.units import format_us
from slicemill.kernels.slice import Telling
from slicemill.runtime.chunk import ChunkInfo
from slicemill.runtime.state import IDENTITY, StateStore
from slicemill.runtime.state_slices import load_state


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
    folder = home / "units"
    if not folder.exists():
        raise SlicemillError(f"{home} is no home of a mill; give the folder that `run --home` was given")
    for unit in sorted(path for path in folder.iterdir() if (path / IDENTITY).exists()):
        yield from _slices_of_unit(unit)


def _slices_of_unit(folder: Path) -> Iterator[HeldSlice]:
    version = StateStore(folder).latest()
    buckets: dict[int, list[ChunkInfo]] = {}
    for part in version.slices if version is not None else ():
        buckets.setdefault(part.bucket, []).append(part.chunk)
    for bucket, chunks in sorted(buckets.items()):
        for state in load_state(folder, chunks).values():
            for held in state.held() if isinstance(state, Telling) else ():
                stored = held.slice.stored if held.slice is not None else None
                size = stored.bytes if isinstance(stored, ChunkInfo) else 0
                wanted: dict[str, int] = {}
                for member, rows in held.wanted.items():
                    query = member.split(":")[0]
                    wanted[query] = max(rows, wanted.get(query, 0))
                yield HeldSlice(
                    unquote(folder.name),
                    bucket,
                    held.part,
                    held.rows,
                    size,
                    held.earliest,
                    held.latest,
                    wanted,
                )


def state_tables(home: Path) -> tuple[Table, Table]:
    """One line a slice, and one line a query."""
    slices = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("unit", "bucket", "part"):
        slices.add_column(column)
    for column in ("rows", "bytes", "span", "age"):
        slices.add_column(column, justify="right")
    queries: dict[str, list[HeldSlice]] = {}
    found = list(slices_of(home))
    newest = {held.unit: max(h.latest_us for h in found if h.unit == held.unit) for held in found}
    for held in found:
        span, age = held.latest_us - held.earliest_us, newest[held.unit] - held.latest_us
        counts = (f"{held.rows:,}", f"{held.bytes:,}", format_us(span), format_us(age))
        slices.add_row(held.unit, str(held.bucket), held.part, *counts)
        for query in held.wanted:
            queries.setdefault(query, []).append(held)
    by_query = Table(box=None, pad_edge=False, header_style="bold")
    by_query.add_column("query")
    for column in ("rows", "slices", "reaches back"):
        by_query.add_column(column, justify="right")
    for query, parts in sorted(queries.items()):
        rows = sum(part.wanted[query] for part in parts)
        back = max(newest[part.unit] - part.earliest_us for part in parts)
        by_query.add_row(query, f"{rows:,}", str(len(parts)), format_us(back))
    return slices, by_query
