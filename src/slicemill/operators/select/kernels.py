"""Vectorized filter, projection and predicate masks.

System columns (`_ts`, `_seq`, `_arr`) are passed through. Conditions and items are compiled once for a
schema, and then applied to any number of tables.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.esl.types.expression import Expr
from slicemill.esl.types.schema import Schema
from slicemill.scalar.columns import Arrived, ColumnProgram, Outcome
from slicemill.scalar.functions.logic import holds
from slicemill.scalar.values import ExpressionError
from slicemill.scalar.vectors import Mask, Vector
from slicemill.storage.arrow_schema import is_system_column

WORD_BITS = 64

Columns: TypeAlias = Callable[[Arrived], list[Outcome]]


@dataclass(frozen=True, slots=True)
class Masks:
    """Predicate bits: `words[w, row]` has bit b for predicate 64 w + b.

    A predicate that raised an error has no bit set.
    """

    words: NDArray[np.uint64]
    errors: dict[int, ExpressionError]


def filter_table(table: pa.Table, condition: Callable[[Arrived], pa.ChunkedArray]) -> pa.Table:
    """Return the rows on which the condition is true."""
    return table.filter(condition(table))


def project_table(table: pa.Table, names: Sequence[str], columns: Columns) -> pa.Table:
    """Return system columns and computed columns; raise the first error."""
    arrays = {name: table.column(name) for name in table.column_names if is_system_column(name)}
    for name, outcome in zip(names, columns(table), strict=True):
        if isinstance(outcome, ExpressionError):
            raise outcome
        arrays[name] = outcome
    return pa.table(arrays)


def compile_masks(conditions: Sequence[Expr], schema: Schema) -> Callable[[Arrived], Masks]:
    """Compile conditions into one program that returns their bits.

    Common subexpressions are evaluated once.
    """
    program = ColumnProgram(conditions, schema)

    def evaluate(table: Arrived) -> Masks:
        found = program.run(table, _truth)
        errors = {index: truth for index, truth in enumerate(found) if isinstance(truth, ExpressionError)}
        truths = [() if isinstance(truth, ExpressionError) else truth for truth in found]
        return Masks(packed(truths, table.num_rows), errors)

    return evaluate


def predicate_mask(table: Arrived, masks: Callable[[Arrived], Masks]) -> NDArray[np.uint64]:
    """Return the bits of compiled conditions for a table; raise the first error."""
    found = masks(table)
    for error in found.errors.values():
        raise error
    return found.words


def _truth(vector: Vector, rows: int) -> Mask:
    return np.broadcast_to(holds(vector), (rows,))


def packed(truths: Sequence[Sequence[Mask]], rows: int) -> NDArray[np.uint64]:
    """Pack masks into the bits of 64-bit words.

    All masks have the same chunks; a mask without chunks sets no bits.
    """
    words = np.zeros((-(-len(truths) // WORD_BITS), rows), np.uint64)
    octets = words.view(np.uint8).reshape(len(words), rows, 8)
    start = 0
    for number, size in enumerate(len(piece) for piece in max(truths, key=len, default=())):
        pieces = [truth[number].view(np.uint8) if truth else None for truth in truths]
        for first in range(0, len(pieces), 8):
            # Eight masks are combined in a vector of bytes before the words are written.
            octet, shifted = np.zeros(size, np.uint8), np.empty(size, np.uint8)
            for bit, piece in enumerate(pieces[first : first + 8]):
                if piece is not None:
                    octet |= np.left_shift(piece, np.uint8(bit), out=shifted)
            octets[first // WORD_BITS, start : start + size, first % WORD_BITS // 8] = octet
        start += size
    return words
