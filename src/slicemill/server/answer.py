"""Result of one statement, as clients receive it."""

from __future__ import annotations

import math

import pyarrow as pa

from slicemill.server.adhoc.pool import AnswerRows


class StatementAnswer:
    """Result of a statement: tag, message, and rows if there are any.

    The tag is for instance CREATE QUERY or INSERT 0 3. A `warning` reports a problem that did not prevent
    the statement, such as a failed audit log.
    """

    def __init__(
        self,
        tag: str,
        message: str = "",
        table: pa.Table | None = None,
        rows: AnswerRows | None = None,
        warning: str = "",
    ) -> None:
        self.tag = tag
        self.message = message
        self.warning = warning
        self.rows = AnswerRows.of(table) if table is not None else rows
        self._table = table

    @property
    def table(self) -> pa.Table | None:
        """Return all rows as one table, without rows already taken from `rows`."""
        return self.keep()

    def keep(self, most_bytes: float = math.inf) -> pa.Table | None:
        """Compute the remaining rows and store them. Raises an error beyond `most_bytes`."""
        if self._table is None and self.rows is not None:
            self._table = self.rows.whole(most_bytes)
            self.rows = AnswerRows.of(self._table)
        return self._table
