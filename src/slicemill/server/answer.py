"""What a statement gives back to the person who sent it."""

from __future__ import annotations

import math

import pyarrow as pa

from slicemill.server.questions.pool import AnswerRows


class StatementAnswer:
    """`tag` says what was done, such as CREATE QUERY or INSERT 0 3; a question or command has rows.

    `warning` says what went wrong beside the statement, which is done.
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
        """All rows at once; whoever takes `rows` one after another has none left here."""
        return self.keep()

    def keep(self, most_bytes: float = math.inf) -> pa.Table | None:
        """Compute the rows that are left and keep them; raise if they take more bytes than that."""
        if self._table is None and self.rows is not None:
            self._table = self.rows.whole(most_bytes)
            self.rows = AnswerRows.of(self._table)
        return self._table
