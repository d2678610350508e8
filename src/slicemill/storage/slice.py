"""Slices: immutable pieces of an operator's state.

Growing state is kept in slices: tables that never change once they are made. So each slice is stored once and
only referenced afterwards. A restored slice is read on first access.
"""

from __future__ import annotations

from collections.abc import Callable

import pyarrow as pa


class Slice:
    """Immutable table of state rows.

    `stored` is the storage's reference to its file, None for a new slice. A slice that `spills` is read from
    its file once it is stored, and no longer kept in memory.
    """

    def __init__(
        self, table: pa.Table | Callable[[], pa.Table], stored: object = None, *, spills: bool = False
    ) -> None:
        self._table = table
        self._spills = spills
        self.stored = stored

    @property
    def table(self) -> pa.Table:
        if not isinstance(self._table, pa.Table):
            self._table = self._table()
        return self._table

    def set_stored(self, stored: object, read: Callable[[], pa.Table]) -> None:
        """Record the file of a slice; `read` maps it."""
        self.stored = stored
        if self._spills:
            # Mapped at once: the mapping stays valid if the file is deleted.
            self._table = read()
