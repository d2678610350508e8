"""State of session windows: rows of open sessions, stored once for all queries."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa

from slicemill.storage.codec import stored_as
from slicemill.storage.slice import Slice
from slicemill.time import BEGINNING


@stored_as("sessions.member", version=1)
@dataclass(slots=True)
class SessionMemberState:
    """Progress of one query.

    `first` is the number of its first row. Sessions that ended before `closed` have been emitted. `held`
    is the earliest end of an open session.
    """

    definition: object
    first: int = 0
    closed: int = BEGINNING
    held: int | None = None
    failure: str | None = None


@stored_as("sessions", version=1)
@dataclass(slots=True)
class SessionState:
    """Rows of open sessions in order of arrival.

    `taken` counts all rows so far.
    """

    pieces: list[Slice] = field(default_factory=list)
    taken: int = 0
    members: dict[str, SessionMemberState] = field(default_factory=dict)

    def hand_over(self, definitions: Mapping[str, object], successors: Mapping[str, str]) -> None:
        """Rename the state of replaced queries to the names of their successors."""
        for name, before in successors.items():
            if name in definitions and before in self.members:
                self.members[name] = replace(self.members.pop(before), definition=definitions[name])

    def adopt(self, definitions: Mapping[str, object]) -> None:
        """Restore state for these queries.

        New ones start empty; state of removed ones is dropped.
        """
        known = {
            name: member
            for name, member in self.members.items()
            if name in definitions and member.definition == definitions[name]
        }
        self.members = {
            name: known.get(name) or SessionMemberState(what, self.taken)
            for name, what in definitions.items()
        }

    def fit(self, schema: pa.Schema) -> None:
        """Convert stored rows to these columns.

        New columns are NULL in old rows, which no query reads there. Columns that no query reads are
        dropped.
        """
        if all(piece.table.schema.equals(schema) for piece in self.pieces):
            return
        self.pieces = [Slice(_fitted(piece.table, schema)) for piece in self.pieces]


def _fitted(table: pa.Table, schema: pa.Schema) -> pa.Table:
    have = set(table.column_names)
    return pa.table(
        {
            column.name: table.column(column.name).cast(column.type)
            if column.name in have
            else pa.nulls(table.num_rows, column.type)
            for column in schema
        },
        schema=schema,
    )
