"""State of multi-way joins: query bits, one state per stream, statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import cast

import numpy as np
import pyarrow as pa

from slicemill.catalog.expressions import Expr
from slicemill.codec.registry import stored_as
from slicemill.functions.evaluate import compile_vector
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import arrow_type
from slicemill.operators.join.block import (
    BLOCK_ARRIVAL,
    BLOCK_SEQ,
    BLOCK_TS,
    DATA,
    HASH,
    KEY,
    MASK,
    QueryBits,
)
from slicemill.operators.join.conditions import Selections
from slicemill.operators.join.hashing import hash_keys
from slicemill.operators.join.multiway_orders import MultiJoinMeasures
from slicemill.operators.join.multiway_spec import KeyTable, MultiJoinMember, SharedMultiJoin
from slicemill.operators.join.rescale import plain_key, redistribute_side
from slicemill.operators.join.slices.coverage import columns_to_store
from slicemill.operators.join.slices.workload import Statistics
from slicemill.operators.join.spec import JoinMember
from slicemill.operators.join.state import SideState
from slicemill.operators.join.statistics import Cuts, SliceContent
from slicemill.operators.protocol import Keys
from slicemill.operators.rescale import Redistribution
from slicemill.shedding.accuracy import AccuracyReport, merge_reports
from slicemill.types import Schema


@stored_as(
    "multijoin",
    version=2,
    stored_names={"query_bits": "seats"},
    upgrade={1: lambda plain: {"late": {}, "sheds": {}, **plain}},
)
@dataclass(slots=True)
class MultiJoinState:
    query_bits: QueryBits = field(default_factory=lambda: QueryBits({}, {}))
    sides: dict[str, SideState] = field(default_factory=dict)  # by input
    # Rows that are stored but have not probed for some queries yet, by line (`lines_of`) and input.
    late: dict[str, dict[str, SideState]] = field(default_factory=dict)
    measures: MultiJoinMeasures = field(default_factory=MultiJoinMeasures)
    sheds: dict[str, AccuracyReport] = field(default_factory=dict)  # by query with load shedding

    def held(self) -> list[SliceContent]:
        """Return the content of slices, oldest first, and of waiting rows."""
        held = sorted(self.sides.items())
        held += [(name, side) for line in self.late.values() for name, side in sorted(line.items())]
        return [
            SliceContent(
                f"{name.removeprefix('log ')}{part.part}",
                part.slice, part.rows, part.earliest, part.latest, part.wanted,
            )
            for name, side in held
            for part in side.held()
        ]  # fmt: skip

    def statistics(self) -> Statistics | None:
        """Return the statistics; None without measurements."""
        measures = self.measures
        shares = [
            found.met / (found.probes * held)
            for name, found in measures.probes.items()
            if "=" in name and found.probes and (held := self._held(name)) > 0
        ]
        if not shares or measures.elapsed_s <= 0:
            return None
        rates = tuple(measures.rows.get(name, 0) / measures.elapsed_s for name in self.sides)
        return Statistics(rates, sum(shares) / len(shares), measured=True)

    def _held(self, probe: str) -> int:
        """Return the number of stored rows that a probe searches."""
        side = list(self.sides.values())[int(probe.split(":")[0])]
        return sum(stored.rows for stored in side.slices)

    def cuts(self) -> list[Cuts]:
        """Return no cuts. Slices are rewritten by their share of expired rows."""
        return []


# Preparation of arriving rows. The system columns are described in `operators.join.block`. Additional columns
# are:
#
#     #hash #hash1 …      hash of each key of the input
#     #key0.0 #key0.1 …   columns of a key, unless equal hashes mean equal keys


def hash_column(key: int) -> str:
    """Return the name of a key's hash column.

    Blocks are sorted by the hash of the first key.
    """
    return f"{HASH}{key}" if key else HASH


def key_columns(key: int, keys: Keys) -> list[tuple[str, pa.DataType]]:
    """Return the stored columns of a key, and their types."""
    none = [pa.chunked_array([], arrow_type(part.type)) for part in keys]
    return [(f"{KEY}{key}.{n}", column.type) for n, column in enumerate(hash_keys(none, 0).columns)]


def views(members: Mapping[str, MultiJoinMember], input_: str) -> dict[str, JoinMember]:
    """Return the queries that join an input, reduced to this side."""
    found = {}
    for name, member in members.items():
        if input_ in member.inputs:
            side = member.inputs.index(input_)
            own = tuple((given, 0, column) for given, of, column in member.columns if of == side)
            found[name] = JoinMember(name, (member.windows[side],), (member.selections[side],), None, own)
    return found


class StreamRowPreparer:
    """Prepares arriving rows of one input.

    `schema` is the schema of prepared rows.
    """

    def __init__(
        self,
        input_: str,
        schema: Schema,
        keys: Sequence[Keys],
        demanded: Sequence[Sequence[str]],
        members: Mapping[str, MultiJoinMember],
        query_bits: QueryBits,
    ) -> None:
        """Compile the keys and selections of an input.

        `demanded` has for each key the queries for which the key must not be NULL. `query_bits` are the query
        bits.
        """
        self._keys = [[compile_vector(part, schema) for part in key] for key in keys]
        self._needed = [query_bits.mask(names) for names in demanded]
        self._selections = Selections(list(query_bits.members.values()), 0, schema, query_bits)
        fields = [pa.field(name, pa.int64()) for name in (BLOCK_TS, BLOCK_SEQ, BLOCK_ARRIVAL)]
        fields += [pa.field(hash_column(key), pa.uint64()) for key in range(max(1, len(keys)))]
        fields += [pa.field(f"{MASK}{word}", pa.uint64()) for word in range(query_bits.words)]
        fields += [
            pa.field(*column) for number, key in enumerate(keys) for column in key_columns(number, key)
        ]
        read = frozenset[str]().union(
            *(
                columns_to_store(members[name], members[name].inputs.index(input_))
                for name in query_bits.members
            )
        )
        data = [pa.field(DATA + c.name, arrow_type(c.type)) for c in schema if c.name in read]
        self.schema = pa.schema([*fields, *data])

    def prepare(self, table: pa.Table, errors: dict[str, ExpressionError]) -> pa.Table:
        """Return the prepared rows. Add queries whose selection fails to `errors`."""
        words = self._selections.masks(table, errors)
        hashed = [hash_keys([part(table) for part in key], table.num_rows) for key in self._keys]
        for found, needed in zip(hashed, self._needed, strict=True):
            if found.valid is not None:
                words[~found.valid] &= ~needed
        hashes = [found.hashes for found in hashed] or [np.zeros(table.num_rows, np.uint64)]
        columns = [table.column(name) for name in ("_ts", "_seq", "_arr")]
        columns += [pa.array(found) for found in hashes]
        columns += [pa.array(np.ascontiguousarray(words[:, word])) for word in range(words.shape[1])]
        columns += [column for found in hashed for column in found.columns]
        names = [name for name in self.schema.names if name.startswith(DATA)]
        columns += [table.column(name.removeprefix(DATA)) for name in names]
        whole = pa.table(columns, schema=self.schema)
        wanted = words.any(axis=1)
        return whole if wanted.all() else whole.filter(pa.array(wanted))


# Build a subtask's multi-way join state after a rescale (S41).


def redistribute_state(
    operator: SharedMultiJoin, states: Sequence[MultiJoinState | None], change: Redistribution
) -> MultiJoinState:
    """Return the state of a new subtask.

    At least one old subtask has state.
    """
    found = next(state for state in states if state is not None)
    whole = MultiJoinState(found.query_bits, measures=found.measures)
    whole.measures.begin_anew()
    members = cast(Mapping[str, MultiJoinMember], found.query_bits.members)
    table_of_keys = KeyTable(operator.inputs, operator.members)
    for number, name in enumerate(operator.inputs):
        before = [None if state is None else state.sides.get(name, SideState()) for state in states]
        query_bits = QueryBits(found.query_bits.bits, views(members, name))
        keys = table_of_keys.keys[number]

        def value(table: pa.Table, key: Expr, keys: Sequence[Keys] = keys) -> pa.Array:
            return _value(table, key, keys)

        whole.sides[name] = redistribute_side(before, number, query_bits, change, value, 0)
        for line in {line for state in states if state is not None for line in state.late}:
            late = [
                None if state is None else state.late.get(line, {}).get(name, SideState()) for state in states
            ]
            kept = redistribute_side(late, number, query_bits, change, value, 0)
            whole.late.setdefault(line, {})[name] = kept
    if change.after.number == 0:  # one subtask continues to report the rows shed so far
        told = [state for state in states if state is not None]
        names = {query for state in told for query in state.sheds}
        whole.sheds = {
            name: merge_reports([s.sheds[name] for s in told if name in s.sheds]) for name in names
        }
    return whole


def _value(table: pa.Table, key: Expr, keys: Sequence[Keys]) -> pa.Array:
    """Return the values of one expression of a key."""
    for number, parts in enumerate(keys):
        if key in parts:
            name = f"{KEY}{number}.{parts.index(key)}"
            return table.column(name) if name in table.column_names else plain_key(table, hash_column(number))
    raise KeyError(key)
