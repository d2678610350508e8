"""Entries of panes against a dictionary by pane, key and pattern, in however many parts they are made."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import example, given, settings
from hypothesis import strategies as st

from operators.panes.brute import aggregate, shown
from operators.panes.values import arrow, call, doubles, plain
from slicemill import types as t
from slicemill.operators.window.pane_answers import PaneView, pane_aggregate_of
from slicemill.operators.window.pane_state import (
    aggregate_panes,
    cells_of,
    concat_partials,
    empty_partials,
    from_table,
    merge_panes,
    partial_columns,
    take_partials,
    to_table,
)
from slicemill.operators.window.partial_aggregates import Columns, NonNullCount
from slicemill.operators.window.spans import Spans, cut

STEP = 10
NAMES = ("count", "sum", "min", "max", "first", "last", "variance")
FIGURES = {name: figure for name in NAMES if (figure := pane_aggregate_of(call(name, t.DOUBLE))) is not None}
PARTIALS = {partial.name: partial for figure in FIGURES.values() for partial in figure.partials}

Row = tuple[int, int, int, float | None]  # time, key, pattern, value
rows = st.lists(
    st.tuples(st.integers(0, 35), st.integers(0, 2), st.integers(0, 1), st.none() | doubles), max_size=24
).map(lambda found: sorted(found, key=lambda row: row[0]))


def made(rows: list[Row], seen: int) -> Columns:
    """The entries that a run makes of its rows."""
    times, keys, patterns = (np.array(column, np.int64) for column in list(zip(*rows, strict=True))[:3])
    indices = seen + np.arange(len(rows))
    column = arrow([row[3] for row in rows], t.DOUBLE)
    lifted = {name: partial.lift(column, indices) for name, partial in PARTIALS.items()}
    panes = cut(times, ((STEP, 0),), -1000)
    entries, first = aggregate_panes(panes, cells_of(keys, 3, patterns, 2), indices, lifted, PARTIALS)
    return {**entries, "key": keys[first], "pattern": patterns[first]}


def entry_rows(entries: Columns) -> list[str]:
    """What each entry says, one by one."""
    count = len(entries["start"])
    one = np.arange(count, dtype=np.int32)
    spans = Spans(np.zeros(count, np.int64), np.zeros(count, np.int32), one, one + 1)
    view = PaneView(np.zeros(1, np.int64), np.array([0, count]), entries, PARTIALS)
    columns = [entries[name].tolist() for name in ("start", "key", "pattern", "seq", "rows")]
    for name, figure in FIGURES.items():
        result = t.BIGINT if name == "count" else t.DOUBLE
        columns.append(plain(figure.over(view, spans), result))
    return [shown(row) for row in zip(*columns, strict=True)]


def expected(rows: list[Row]) -> list[str]:
    found: dict[tuple[int, int, int], list[int]] = {}
    for index, (ts, key, pattern, _) in enumerate(rows):
        found.setdefault((ts // STEP * STEP, key, pattern), []).append(index)
    made = []
    for names, indices in found.items():
        values = [rows[index][3] for index in indices]
        figures = [aggregate(name, values) for name in NAMES]
        made.append(shown([*names, indices[0], len(indices), *figures]))
    return made


@settings(max_examples=80)
@given(rows, st.sets(st.integers(1, 23), max_size=4))
@example([(0, 0, 0, 1.0), (5, 1, 0, 2.0), (6, 0, 1, 3.0), (7, 1, 0, 4.0)], {1, 2, 3})  # one pane, four parts
@example([(0, 0, 0, -0.0), (1, 0, 0, 0.0), (10, 0, 0, 0.0), (11, 0, 0, -0.0)], {1, 2, 3})
@example([(0, 0, 0, 1e300), (1, 0, 0, 1.0), (2, 0, 0, -1e300)], {2})  # pairs of doubles become wide
def test_parts_merged_are_the_entries_of_the_whole(rows: list[Row], cuts: set[int]) -> None:
    borders = sorted({0, len(rows), *(c for c in cuts if c < len(rows))})
    parts = [made(rows[first:last], first) for first, last in pairwise(borders)]
    if not parts:
        return
    whole = parts[0]
    for part in parts[1:]:
        whole = merge_panes([from_table(to_table(whole)), from_table(to_table(part))], PARTIALS)
    assert entry_rows(whole) == expected(rows)
    # Entries that are only put side by side say, pane by pane, what their own rows say.
    beside = concat_partials([empty_partials(), *parts], PARTIALS)
    assert int(beside["rows"].sum()) == len(rows)
    assert entry_rows(beside) == [row for part in parts for row in entry_rows(part)]


@given(
    st.lists(st.tuples(st.integers(0, 4), st.integers(0, 3)), min_size=1, max_size=12),
    st.sampled_from([(5, 4), (5, 400), (5, 1)]),
)
def test_cells_number_combinations_of_key_and_pattern(
    pairs: list[tuple[int, int]], counts: tuple[int, int]
) -> None:
    n_codes, n_patterns = counts
    pairs = [(code, min(pattern, n_patterns - 1)) for code, pattern in pairs]
    codes, patterns = (np.array(column, np.int64) for column in zip(*pairs, strict=True))
    cells, count = cells_of(codes, n_codes, patterns, n_patterns)
    assert len(set(zip(cells.tolist(), pairs, strict=True))) == len(set(cells.tolist())) == len(set(pairs))
    assert cells.min() >= 0 and cells.max() < count


def test_what_a_part_lacks_is_nothing_and_what_nobody_asks_for_is_left_out() -> None:
    full, known = (
        made([(0, 0, 0, 1.5), (1, 0, 0, None)], 0),
        NonNullCount(call("count", t.DOUBLE).arguments[0]),
    )
    bare = {name: full[name] for name in ("start", "key", "pattern", "seq", "rows")}
    both = concat_partials([bare, full], PARTIALS)
    assert entry_rows(both)[0] == shown([0, 0, 0, 0, 2, 0, *[None] * 6])
    assert entry_rows(both)[1] == entry_rows(full)[0]
    counted = concat_partials([bare, full], {known.name: known})
    assert set(counted) == {"start", "key", "pattern", "seq", "rows", f"{known.name}|n"}
    assert partial_columns(counted, known.name)["n"].tolist() == [0, 1]


@given(st.lists(st.integers(-(2**200), 2**200), max_size=6))
@example([0, -1, 127, 128, -128, -129, 255, 256, 2**63, -(2**63)])
def test_entries_come_back_from_a_table(wide: list[int]) -> None:
    numbers = np.empty(len(wide), object)
    numbers[:] = wide
    texts = pa.array([None if n % 3 == 0 else str(n) for n in wide], pa.string())
    entries: dict[str, Any] = {
        **empty_partials(),
        "s|x": numbers,
        "t|value": texts,
        "h|hi": np.arange(len(wide)) / 3,
    }
    entries |= {name: np.arange(len(wide)) for name in empty_partials()}
    back = from_table(to_table(entries))
    assert list(back) == list(entries) and back["s|x"].tolist() == wide and back["t|value"].equals(texts)
    assert back["h|hi"].tolist() == entries["h|hi"].tolist() and back["seq"].dtype == np.int64
    indices = np.arange(len(wide))[::-1].copy()
    assert take_partials(back, indices)["s|x"].tolist() == wide[::-1]
    assert take_partials(back, indices)["t|value"].to_pylist() == texts.to_pylist()[::-1]
