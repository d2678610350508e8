"""Execution of filters and projections, which have no state."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from slicemill.catalog.expressions import ColumnRef, Expr
from slicemill.catalog.queries import SelectItem
from slicemill.columns.arrow_schema import is_system_column
from slicemill.columns.changelog import filter_changes, with_ops, without_unchanged
from slicemill.columns.keys import to_array
from slicemill.functions.evaluate import Arrived, ColumnProgram, Outcome, compile_many, compile_vector
from slicemill.functions.logic import true_rows
from slicemill.functions.values import ExpressionError
from slicemill.functions.vectors import Vector
from slicemill.kernels.arrays import Bools
from slicemill.operators.graph import Node
from slicemill.operators.specs import Filter, Project
from slicemill.operators.step import StepContext
from slicemill.types import OP, Schema

_REMEMBERED = 1 << 13


class FilterStep:
    def __init__(self, condition: Expr, schema: Schema) -> None:
        self._condition = compile_vector(condition, schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return filter_table(tables[0], self._condition), complete[0]


class ProjectStep:
    def __init__(self, items: Sequence[SelectItem], schema: Schema) -> None:
        self._names = [item.name for item in items]
        self._columns = compile_many([item.expr for item in items], schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        return project_table(tables[0], self._names, self._columns), complete[0]


def filter_step(_: Filter, context: StepContext) -> FilterStep | FilterChangesStep:
    return _filter_step(context.node, *context.schemas)


def project_step(_: Project, context: StepContext) -> ProjectStep | ProjectChangesStep | InsertsStep:
    return _project_step(context.node, *context.schemas)


# A task may have a thousand filters.
# When a query is added or removed, the cache reuses the steps of the task's other queries.
@lru_cache(_REMEMBERED)
def _filter_step(node: Node, schema: Schema) -> FilterStep | FilterChangesStep:
    assert isinstance(node.operator, Filter)
    return (FilterChangesStep if schema.changelog else FilterStep)(node.operator.condition, schema)


@lru_cache(_REMEMBERED)
def _project_step(node: Node, schema: Schema) -> ProjectStep | ProjectChangesStep | InsertsStep:
    assert isinstance(node.operator, Project)
    if schema.changelog:
        return ProjectChangesStep(node.operator.items, schema)
    return (InsertsStep if node.schema.changelog else ProjectStep)(node.operator.items, schema)


# Vectorized filter, projection and predicate masks
#
# System columns (`_ts`, `_seq`, `_arr`) are passed through. Conditions and items are compiled once per
# schema, and then evaluated on any number of tables.


WORD_BITS = 64

Columns: TypeAlias = Callable[[Arrived], list[Outcome]]


@dataclass(frozen=True, slots=True)
class Masks:
    """Results of many predicates for each row, as bits.

    Bit b of `words[w, row]` is the result of predicate 64 w + b.

    A predicate that raised an error has no bit set.
    """

    words: NDArray[np.uint64]
    errors: dict[int, ExpressionError]


def filter_table(table: pa.Table, condition: Callable[[Arrived], pa.ChunkedArray]) -> pa.Table:
    """Return the rows of a table for which the condition is true."""
    return table.filter(condition(table))


def project_table(table: pa.Table, names: Sequence[str], columns: Columns) -> pa.Table:
    """Return the system columns and the computed columns, or raise the first error."""
    arrays = {name: table.column(name) for name in table.column_names if is_system_column(name)}
    for name, outcome in zip(names, columns(table), strict=True):
        if isinstance(outcome, ExpressionError):
            raise outcome
        arrays[name] = outcome
    return pa.table(arrays)


def compile_masks(conditions: Sequence[Expr], schema: Schema) -> Callable[[Arrived], Masks]:
    """Compile predicates to one function that returns their results as bits.

    Common subexpressions are evaluated once.
    """
    program = ColumnProgram(conditions, schema)

    def evaluate(table: Arrived) -> Masks:
        found = program.run(table, _truth)
        errors = {index: truth for index, truth in enumerate(found) if isinstance(truth, ExpressionError)}
        truths = [() if isinstance(truth, ExpressionError) else truth for truth in found]
        return Masks(pack_masks(truths, table.num_rows), errors)

    return evaluate


def predicate_mask(table: Arrived, masks: Callable[[Arrived], Masks]) -> NDArray[np.uint64]:
    """Evaluate compiled predicates for a table; return their results as bits.

    Raise the first error of a predicate.
    """
    found = masks(table)
    for error in found.errors.values():
        raise error
    return found.words


def _truth(vector: Vector, rows: int) -> Bools:
    return np.broadcast_to(true_rows(vector), (rows,))


def pack_masks(truths: Sequence[Sequence[Bools]], rows: int) -> NDArray[np.uint64]:
    """Pack boolean masks into the bits of 64-bit words.

    All masks have the same chunks. A mask without chunks sets no bits.
    """
    words = np.zeros((-(-len(truths) // WORD_BITS), rows), np.uint64)
    octets = words.view(np.uint8).reshape(len(words), rows, 8)
    start = 0
    for number, size in enumerate(len(piece) for piece in max(truths, key=len, default=())):
        pieces = [truth[number].view(np.uint8) if truth else None for truth in truths]
        for first in range(0, len(pieces), 8):
            # Eight masks are combined to a vector of bytes before the words are written.
            octet, shifted = np.zeros(size, np.uint8), np.empty(size, np.uint8)
            for bit, piece in enumerate(pieces[first : first + 8]):
                if piece is not None:
                    octet |= np.left_shift(piece, np.uint8(bit), out=shifted)
            octets[first // WORD_BITS, start : start + size, first % WORD_BITS // 8] = octet
        start += size
    return words


# Filter and projection of changelogs
#
# A filter may pass an update, turn it into an insert or a delete, or drop it.


class FilterChangesStep:
    def __init__(self, condition: Expr, schema: Schema) -> None:
        self._condition = compile_vector(condition, schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        holds = to_array(pc.fill_null(self._condition(tables[0]), False)).to_numpy(zero_copy_only=False)
        return filter_changes(tables[0], np.asarray(holds, np.bool_)), complete[0]


class ProjectChangesStep:
    """Projection of a changelog, which drops updates that change no selected column.

    The first SELECT item is the operation.
    """

    def __init__(self, items: Sequence[SelectItem], schema: Schema) -> None:
        self._names = [item.name for item in items if item.name != OP]
        self._columns = compile_many([item.expr for item in items if item.name != OP], schema)
        # If all columns are selected, under any name, every update changes a selected column.
        self._has_all = set(schema.own.names) <= {
            item.expr.name for item in items if isinstance(item.expr, ColumnRef)
        }

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        table = tables[0]
        made = project_table(table, self._names, self._columns)
        index = sum(is_system_column(name) for name in made.column_names)
        made = made.add_column(index, table.schema.field(OP), table.column(OP))
        return made if self._has_all else without_unchanged(made, self._names), complete[0]


class InsertsStep:
    """Step that converts insert-only input to a changelog."""

    def __init__(self, items: Sequence[SelectItem], schema: Schema) -> None:
        self._names = [item.name for item in items if item.name != OP]
        self._columns = compile_many([item.expr for item in items if item.name != OP], schema)

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        made = project_table(tables[0], self._names, self._columns)
        index = sum(is_system_column(name) for name in made.column_names)
        return with_ops(made, np.zeros(made.num_rows, np.int8), index), complete[0]
