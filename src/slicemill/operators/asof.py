"""Vectorized ASOF join: join with the latest earlier row of the same key.

A *version* of a key is a row of the second input. Versions are stored as a log-structured merge tree (LSM
tree). New versions become a *sorted run*, which is an immutable table sorted by (key, time). Sorted runs of
similar size are merged, so that a row probes few sorted runs, and each version is rewritten only a few times.
A merge evicts versions that no row can match any more. A version is evicted if the next version of its key is
not later than any future row of the first input.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import to_arrow
from slicemill.columns.pieces import Slice, concat_with_nulls
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.vectors import arrow_type
from slicemill.kernels.arrays import Int64s
from slicemill.operators.alignment import Due
from slicemill.operators.join import probe
from slicemill.operators.join.block import FIRST, HASH, TIME, Block, column_numbers, group_by_hash, open_block
from slicemill.operators.join.hashing import hash_keys
from slicemill.operators.row_step import row_of_expressions
from slicemill.operators.specs import AsOfJoin
from slicemill.operators.step import StepContext
from slicemill.time import BEGINNING, END
from slicemill.types import Row, Schema, Timed

_KEY, _ROW = "#key", "."
_MASK = "#mask0"  # mask column that hash blocks require; the ASOF join does not use the mask
_SYSTEM = ("_ts", "_seq", "_arr")


@stored_as("asof", version=1)
@dataclass(slots=True)
class AsOfState:
    """State of an ASOF join: waiting rows of input 0, and stored rows of input 1.

    A row waits while later rows of input 1 may still match. `runs` has the rows of input 1 in sorted tables,
    the oldest first.
    """

    waiting: pa.Table | None = None
    runs: list[Slice] = field(default_factory=list)


def as_of_step(join: AsOfJoin, context: StepContext) -> AsOfStep:
    state = context.state if isinstance(context.state, AsOfState) else AsOfState()
    return AsOfStep(join, context, state)


class AsOfStep:
    def __init__(self, join: AsOfJoin, context: StepContext, state: AsOfState) -> None:
        self.state = state
        self._join = join
        self._schemas = context.schemas
        self._names = context.node.schema.names
        self._keys = [
            [compile_vector(key, schema) for key in keys]
            for keys, schema in zip(join.keys, context.schemas, strict=True)
        ]
        # A stored table may be older than a column of the stream. This empty table adds the column to it.
        rows = to_arrow(context.schemas[1])
        self._nothing = pa.schema([field.with_name(_ROW + field.name) for field in rows]).empty_table()
        self._blocks: dict[int, Block] = {}

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        left, right = tables
        state = self.state
        known = complete[1]
        if right.num_rows:
            known = max(known, int(right.column("_ts")[-1].as_py()))
            self._add(right)
        waiting = [table for table in (state.waiting, left) if table is not None]
        whole = concat_with_nulls(waiting).combine_chunks()
        times = column_numbers(whole, "_ts")
        ready = len(times)
        if known < END:
            ready = int(np.searchsorted(times, known, side="right" if self._join.strict else "left"))
        found = self._joined(whole.slice(0, ready))
        rest = whole.slice(ready)
        state.waiting = rest.take(pa.array(np.arange(rest.num_rows))) if rest.num_rows else None
        self._merge(min([complete[0], *(times[ready : ready + 1].tolist())]))
        return found, min(complete)

    def due(self) -> Due | None:
        waiting = self.state.waiting
        if waiting is None:
            return None
        return BEGINNING, int(waiting.column("_ts")[0].as_py()) + (not self._join.strict)

    # -- stored rows of input 1 (versions) -------------------------------------------------------------

    def _add(self, table: pa.Table) -> None:
        hashed = hash_keys([key(table) for key in self._keys[1]], table.num_rows)
        columns = {HASH: pa.array(hashed.hashes), TIME: table.column("_ts").combine_chunks()}
        columns[_MASK] = pa.array(np.zeros(table.num_rows, np.uint64))
        columns |= {f"{_KEY}{index}": column for index, column in enumerate(hashed.columns)}
        columns |= {_ROW + name: table.column(name) for name in self._schemas[1].names}
        new = pa.table(columns)
        if hashed.valid is not None:
            new = new.filter(pa.array(hashed.valid))
        if new.num_rows:
            self.state.runs.append(self._run_of(new))

    def _run_of(self, table: pa.Table) -> Slice:
        block, _ = group_by_hash(table.combine_chunks(), 1)
        made = Slice(block.table)
        self._blocks[id(made)] = block
        return made

    def _block(self, run: Slice) -> Block:
        if id(run) not in self._blocks:
            self._blocks[id(run)] = open_block(
                concat_with_nulls([self._nothing, run.table]).combine_chunks(), 1
            )
        return self._blocks[id(run)]

    def _merge(self, earliest: int) -> None:
        """Merge stored tables of similar size, and evict rows that cannot match any more.

        `earliest` is a lower bound of the timestamps of future rows of input 0.
        """
        runs = self.state.runs
        while len(runs) > 1 and self._block(runs[-2]).rows <= 2 * self._block(runs[-1]).rows:
            parts = [self._block(run).table.drop_columns([FIRST]) for run in runs[-2:]]
            del runs[-2:]
            block, _ = group_by_hash(concat_with_nulls(parts).combine_chunks(), 1)
            kept = self._needed(block, earliest)
            table = block.table.drop_columns([FIRST])
            if not kept.all():
                table = table.filter(pa.array(kept))
            if table.num_rows:
                runs.append(self._run_of(table))
        there = {id(run) for run in runs}
        self._blocks = {key: block for key, block in self._blocks.items() if key in there}

    def _needed(self, block: Block, earliest: int) -> NDArray[np.bool_]:
        """Return the mask of stored rows that input rows from `earliest` on can match."""
        kept = np.ones(block.rows, np.bool_)
        same = block.hashes[1:] == block.hashes[:-1]
        for name in (name for name in block.table.column_names if name.startswith(_KEY)):
            column = block.table.column(name).combine_chunks()
            same &= pc.equal(column.slice(1), column.slice(0, len(column) - 1)).to_numpy(zero_copy_only=False)
        seen = block.times[1:] < earliest if self._join.strict else block.times[1:] <= earliest
        kept[:-1] = ~(same & seen)
        window = self._join.window_us
        return kept if window is None else kept & (block.times > earliest - window)

    # -- probing ---------------------------------------------------------------------------------------

    def _joined(self, left: pa.Table) -> pa.Table:
        hashed = hash_keys([key(left) for key in self._keys[0]], left.num_rows)
        times = column_numbers(left, "_ts")
        run_of = np.full(left.num_rows, -1, np.int64)
        row_of = np.zeros(left.num_rows, np.int64)
        latest = np.full(left.num_rows, BEGINNING, np.int64)
        for number, run in enumerate(self.state.runs if left.num_rows else ()):
            block = self._block(run)
            rows = self._last_matches(block, hashed.hashes, hashed.columns, times)
            if hashed.valid is not None:
                rows[~hashed.valid] = -1
            # At equal timestamps, the version in the later stored table arrived later.
            better = (rows >= 0) & (block.times[np.maximum(rows, 0)] >= latest)
            run_of[better], row_of[better] = number, rows[better]
            latest[better] = block.times[rows[better]]
        if not self._join.left and (run_of < 0).any():
            there = run_of >= 0
            left, run_of, row_of = left.filter(pa.array(there)), run_of[there], row_of[there]
        return self._results(left, run_of, row_of)

    def _last_matches(
        self, block: Block, hashes: NDArray[np.uint64], keys: Sequence[pa.Array], times: Int64s
    ) -> Int64s:
        """Return the last row of a stored table that matches each input row, or -1."""
        window = self._join.window_us
        starts, ends = (np.empty(len(hashes), np.int32) for _ in range(2))
        none = np.zeros(0, np.int64)
        probe.find_spans(
            hashes, times, np.zeros(len(times), np.int64), END if window is None else window, -1,
            block.hashes, block.first, block.times, none, int(block.times.max()), int(block.times.min()),
            0 if self._join.strict else 1, starts, ends,
        )  # fmt: skip
        rows = np.where(ends > starts, ends - 1, -1).astype(np.int64)
        while keys:
            # The hashes of both rows are equal.
            # If their keys differ, a preceding stored row may have an equal key.
            asked = np.flatnonzero(rows >= 0)
            same = np.ones(len(asked), np.bool_)
            for index, own in enumerate(keys):
                theirs = block.table.column(f"{_KEY}{index}").take(pa.array(rows[asked])).combine_chunks()
                equal = pc.equal(own.take(pa.array(asked)), theirs)
                same &= pc.fill_null(equal, False).to_numpy(zero_copy_only=False)
            if same.all():
                break
            other = asked[~same]
            rows[other] = np.where(rows[other] > starts[other], rows[other] - 1, -1)
        return rows

    def _results(self, left: pa.Table, run_of: Int64s, row_of: Int64s) -> pa.Table:
        columns = {name: left.column(name) for name in _SYSTEM}
        names = iter(self._names)
        for name in self._schemas[0].names:
            columns[next(names)] = left.column(name)
        blocks = [self._block(run) for run in self.state.runs]
        begins = np.cumsum([0, *(block.rows for block in blocks)])
        indices = pa.array(begins[np.maximum(run_of, 0)] + row_of, mask=run_of < 0)
        for column in self._schemas[1]:
            kind = arrow_type(column.type)
            parts = [chunk for b in blocks for chunk in b.table.column(_ROW + column.name).chunks]
            values = pa.chunked_array(parts, kind) if parts else pa.chunked_array([pa.array([], kind)])
            columns[next(names)] = values.take(indices)
        return pa.table(columns)


# ASOF join row by row, for the reference engine


class AsOfByRows:
    """ASOF join that processes single rows of both inputs by (timestamp, input).

    At equal timestamps, rows of input 0 precede rows of input 1. Unless the join is `strict`, rows with equal
    timestamps match. A row of input 0 then waits until the watermark passes its timestamp.
    """

    waits_for_time = True
    inputs = 2

    def __init__(self, join: AsOfJoin, keys: Sequence[Callable[[Row], Row]], columns: int) -> None:
        self._join = join
        self._keys = keys
        self._columns = columns
        self._versions: dict[Row, Timed] = {}
        self._waiting: deque[Timed] = deque()

    def process(self, port: int, tuple_: Timed) -> Sequence[Timed]:
        out = list(self.advance(tuple_.ts))
        if port == 1:
            self._versions[self._keys[1](tuple_.row)] = tuple_
        elif self._join.strict:
            out += self._met(tuple_)
        else:
            self._waiting.append(tuple_)
        return out

    def advance(self, ts: int) -> Sequence[Timed]:
        return self._released(ts)

    def finish(self) -> Sequence[Timed]:
        return self._released(None)

    def held_from(self) -> int | None:
        return self._waiting[0].ts if self._waiting else None

    def due(self) -> int | None:
        return self._waiting[0].ts + 1 if self._waiting else None

    def _released(self, ts: int | None) -> list[Timed]:
        out: list[Timed] = []
        while self._waiting and (ts is None or self._waiting[0].ts < ts):
            out += self._met(self._waiting.popleft())
        return out

    def _met(self, tuple_: Timed) -> list[Timed]:
        key = self._keys[0](tuple_.row)
        found = None if None in key else self._versions.get(key)
        window = self._join.window_us
        if found is not None and window is not None and tuple_.ts - found.ts >= window:
            found = None
        if found is None:
            nothing = (None,) * self._columns
            return [Timed(tuple_.ts, (*tuple_.row, *nothing))] if self._join.left else []
        return [Timed(tuple_.ts, (*tuple_.row, *found.row))]


def as_of_rows(join: AsOfJoin, inputs: Sequence[Schema]) -> AsOfByRows:
    keys = [row_of_expressions(own, schema) for own, schema in zip(join.keys, inputs, strict=True)]
    return AsOfByRows(join, keys, len(inputs[1]))
