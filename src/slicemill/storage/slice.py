"""Slices: immutable pieces of an operator's state.

State that grows is kept in slices, each a table that never changes once it is made. So it is stored once, and
only referred to afterwards; one that comes back from storage is opened when it is first looked at.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


class Slice:
    """A table of state rows. `stored` is the storage's own note of where it lies, None while it is new."""

    def __init__(self, table: pa.Table | Callable[[], pa.Table], stored: object = None) -> None:
        self._table = table
        self.stored = stored

    @property
    def table(self) -> pa.Table:
        if not isinstance(self._table, pa.Table):
            self._table = self._table()
        return self._table
