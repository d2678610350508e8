"""Preparation of arriving rows: key hashes and query masks.

System columns are those of `operators.join.block`, and

    #hash #hash1 …      hash of each key of the input
    #key0.0 #key0.1 …   columns of a key, unless equal hashes mean equal keys
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa

from slicemill.esl.types.schema import Schema
from slicemill.operators.join.block import ARRIVAL, DATA, HASH, KEY, MASK, SEQ, TS
from slicemill.operators.join.conditions import Selections
from slicemill.operators.join.hashing import hash_keys
from slicemill.operators.join.slices.coverage import columns_kept
from slicemill.operators.join.spec import JoinMember
from slicemill.operators.join.windows import QueryBits
from slicemill.operators.kind import Keys
from slicemill.operators.multijoin.spec import MultiJoinMember
from slicemill.scalar.columns import compile_vector
from slicemill.scalar.values import ExpressionError
from slicemill.scalar.vectors import arrow_type


def hash_column(key: int) -> str:
    """Return the hash column of a key.

    Blocks are sorted by the hash of the first key.
    """
    return f"{HASH}{key}" if key else HASH


def key_columns(key: int, keys: Keys) -> list[tuple[str, pa.DataType]]:
    """Return the stored columns of a key, and their types."""
    none = [pa.chunked_array([], arrow_type(part.type)) for part in keys]
    return [(f"{KEY}{key}.{n}", column.type) for n, column in enumerate(hash_keys(none, 0).columns)]


def views(members: Mapping[str, MultiJoinMember], input_: str) -> dict[str, JoinMember]:
    """Return the queries' demands on one input, as joins with a single side."""
    found = {}
    for name, member in members.items():
        if input_ in member.inputs:
            side = member.inputs.index(input_)
            own = tuple((given, 0, column) for given, of, column in member.columns if of == side)
            found[name] = JoinMember(name, (member.windows[side],), (member.selections[side],), None, own)
    return found


class StreamEntry:
    """Prepares arriving rows of one input; `schema` is that of prepared rows."""

    def __init__(
        self,
        input_: str,
        schema: Schema,
        keys: Sequence[Keys],
        demanded: Sequence[Sequence[str]],
        members: Mapping[str, MultiJoinMember],
        seats: QueryBits,
    ) -> None:
        """Compile the keys and selections of an input.

        `seats` are the query bits on this input; `demanded` has the queries that need each key.
        """
        self._keys = [[compile_vector(part, schema) for part in key] for key in keys]
        self._needed = [seats.mask(names) for names in demanded]
        self._selections = Selections(list(seats.members.values()), 0, schema, seats)
        fields = [pa.field(name, pa.int64()) for name in (TS, SEQ, ARRIVAL)]
        fields += [pa.field(hash_column(key), pa.uint64()) for key in range(max(1, len(keys)))]
        fields += [pa.field(f"{MASK}{word}", pa.uint64()) for word in range(seats.words)]
        fields += [
            pa.field(*column) for number, key in enumerate(keys) for column in key_columns(number, key)
        ]
        read = frozenset[str]().union(
            *(columns_kept(members[name], members[name].inputs.index(input_)) for name in seats.members)
        )
        data = [pa.field(DATA + c.name, arrow_type(c.type)) for c in schema if c.name in read]
        self.schema = pa.schema([*fields, *data])

    def prepared(self, table: pa.Table, errors: dict[str, ExpressionError]) -> pa.Table:
        """Return the prepared rows; record queries whose selection fails in `errors`."""
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
