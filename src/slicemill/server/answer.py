"""What a statement gives back to the person who sent it."""

from __future__ import annotations

from dataclasses import dataclass

import pyarrow as pa


@dataclass(frozen=True, slots=True)
class StatementAnswer:
    """`tag` says what was done, such as CREATE QUERY or INSERT 0 3; a question has rows.

    `warning` says what went wrong beside the statement, which is done.
    """

    tag: str
    message: str = ""
    table: pa.Table | None = None
    warning: str = ""
