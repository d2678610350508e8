"""What sessions keep from run to run: the rows of those that are open, once for all who read them."""

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
    """`first` is the number of the first row that it counts. Sessions that ended before `closed` are
    answered; `held` is the earliest end of a session that is open.
    """

    definition: object
    first: int = 0
    closed: int = BEGINNING
    held: int | None = None
    failure: str | None = None


@stored_as("sessions", version=1)
@dataclass(slots=True)
class SessionState:
    """Rows in order of arrival; `taken` have come so far."""

    pieces: list[Slice] = field(default_factory=list)
    taken: int = 0
    members: dict[str, SessionMemberState] = field(default_factory=dict)

    def hand_over(self, definitions: Mapping[str, object], successors: Mapping[str, str]) -> None:
        """Give members the state of those that they succeed, by name."""
        for name, before in successors.items():
            if name in definitions and before in self.members:
                self.members[name] = replace(self.members.pop(before), definition=definitions[name])

    def adopt(self, definitions: Mapping[str, object]) -> None:
        """Go on with these members: others are forgotten, and nothing that is here belongs to new ones."""
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
        """Give stored rows these columns: nobody reads others any more, nor old rows in new ones."""
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
