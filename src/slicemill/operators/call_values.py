"""Values of aggregate calls over windows whose rows are materialized.

| aggregate | evaluated by |
|---|---|
| built-in with a kernel (compiled loop), such as a median | `_kernel_values`: the kernel that also evaluates
OVER | | models and other aggregates that share state | `_joint_values`: all such calls of a query together |
| other aggregates of a user or an extension | `_routine_values`: their code, with each window as a group | |
built-in without a kernel, such as a synopsis | `_row_values`: row by row |
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates.calls import Tuples, Uda
from slicemill.aggregates.columns import ColumnStatistic, Rows, Windows
from slicemill.aggregates.definition import RowAggregate, base_of, evaluate
from slicemill.aggregates.functions import count_stored_arguments, function_of, has_kernel, is_numbered
from slicemill.aggregates.joint import JointCalls, joint_call
from slicemill.aggregates.udf.compiler.layout import NoCompiledForm
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import AggregateCall, WindowCall
from slicemill.functions.vectors import Vector, arrow_type, from_arrow, from_values, take, to_arrow, to_values
from slicemill.kernels.arrays import Int64s
from slicemill.operators.step import StepContext
from slicemill.types import Column, Kind, Row, Type

Call: TypeAlias = AggregateCall | WindowCall

_AT_ONCE = 2**20  # maximum number of window rows that are evaluated together


@dataclass(frozen=True, slots=True)
class WindowRows:
    """Materialized rows of windows, with partition numbers and columns.

    A window is a range of these rows.
    """

    partitions: NDArray[np.int32]
    column: Callable[[str], pa.Array]


@dataclass(frozen=True, slots=True)
class CallValues:
    """Result rows of aggregate calls over windows.

    `windows` has the window number of each result row, ascending.
    """

    windows: Int64s
    columns: dict[str, pa.Array]


Evaluate: TypeAlias = Callable[[WindowRows, Windows], CallValues]
Argument: TypeAlias = tuple[str, Type]  # (name of the column with the argument, type of the argument)


def evaluators(
    calls: Sequence[AggregateCall], columns: Mapping[Expr, str], context: StepContext
) -> tuple[Evaluate, ...]:
    """Return evaluators of aggregate calls over materialized windows.

    `columns` has the column name of each argument.
    """
    catalog = context.catalog
    joint = calls_together(calls, catalog)
    made: list[Evaluate] = []
    joint_columns: list[Column] = []
    for call in calls:
        arguments = [(columns[argument], argument.type) for argument in column_arguments(call, catalog)]
        if joint is not None and joint_call(call, catalog) is not None:
            joint_columns.append(call.columns[0])
        elif has_group_kernel(call, catalog):
            made.append(_kernel_values(function_of(call), arguments, call.columns[0]))
        elif is_defined(call, catalog):
            made.append(_routine_values(prepare(call, catalog, context.rows_of), arguments, call.columns))
        else:
            made.append(_row_values(context.definition(call), arguments, call.columns))
    if joint is not None:
        arguments = [(columns[argument], argument.type) for argument in joint.arguments]
        made.append(_joint_values(joint, arguments, joint_columns))
    return tuple(made)


def column_arguments(call: AggregateCall, catalog: Catalog) -> tuple[Expr, ...]:
    """Return the arguments that an evaluator reads from columns.

    A kernel gets its constant arguments from the call, not from columns.
    """
    return (
        call.arguments[: count_stored_arguments(call)] if has_group_kernel(call, catalog) else call.arguments
    )


def has_group_kernel(call: Call, catalog: Catalog) -> bool:
    """Return True if a kernel evaluates a call over windows in FROM.

    Return False for synopses (such as sketches), which need row numbers that windows in FROM do not have.
    """
    numbered = is_numbered(call) or call.name.startswith("approx")
    return not is_defined(call, catalog) and has_kernel(call) and not numbered


def is_defined(call: Call, catalog: Catalog) -> bool:
    """Return True for an aggregate of a user or of an extension."""
    return catalog.aggregates(call.name) != (None, None)


def _kernel_values(function: ColumnStatistic, arguments: Sequence[Argument], column: Column) -> Evaluate:
    def found(rows: WindowRows, windows: Windows) -> CallValues:
        given = Rows(rows.partitions, [rows.column(name) for name, _ in arguments])
        return _one_each(windows, {column.name: function.answers(given, windows)})

    return found


def _joint_values(joint: JointCalls, arguments: Sequence[Argument], columns: Sequence[Column]) -> Evaluate:
    def found(rows: WindowRows, windows: Windows) -> CallValues:
        vectors = [from_arrow(rows.column(name), type_) for name, type_ in arguments]
        parts = [[pa.nulls(0, arrow_type(column.type))] for column in columns]
        for _, indices, owners in _pieces(windows):
            state = joint.uda.start()
            joint.uda.run(state, _tuples([take(v, indices) for v in vectors], owners))
            results = joint.uda.finish(state)
            for part, vector in zip(parts, results.columns, strict=True):
                part.append(to_arrow(vector, len(results.groups)))
        arrays = map(pa.concat_arrays, parts)
        return _one_each(windows, {c.name: array for c, array in zip(columns, arrays, strict=True)})

    return found


def _routine_values(uda: Uda, arguments: Sequence[Argument], columns: Sequence[Column]) -> Evaluate:
    """Return an evaluator of an aggregate of a user or an extension.

    The results of a window are the results for its last row, then the results of TERMINATE.
    """
    shown = [(index, column) for index, column in enumerate(columns) if column.type.kind is not Kind.ANY]

    def found(rows: WindowRows, windows: Windows) -> CallValues:
        vectors = [from_arrow(rows.column(name), type_) for name, type_ in arguments]
        numbers = [np.zeros(0, np.int64)]
        parts = [[pa.nulls(0, arrow_type(column.type))] for _, column in shown]
        for first, indices, owners in _pieces(windows):
            state = uda.start()
            answers = uda.run(state, _tuples([take(v, indices) for v in vectors], owners))
            ended = uda.finish(state)
            of_last = np.append(owners[1:] != owners[:-1], True)
            last = np.flatnonzero(of_last[answers.numbers])
            of_rows = np.concatenate([owners[answers.numbers[last]], ended.groups])
            order = np.argsort(of_rows, kind="stable")
            numbers.append(first + of_rows[order])
            for part, (index, _) in zip(parts, shown, strict=True):
                returned = to_arrow(take(answers.columns[index], last), len(last))
                both = pa.concat_arrays([returned, to_arrow(ended.columns[index], len(ended.groups))])
                part.append(both.take(pa.array(order)))
        arrays = map(pa.concat_arrays, parts)
        made = {column.name: array for (_, column), array in zip(shown, arrays, strict=True)}
        return CallValues(np.concatenate(numbers), made)

    return found


def _row_values(
    definition: RowAggregate, arguments: Sequence[Argument], columns: Sequence[Column]
) -> Evaluate:
    base = base_of(definition)

    def found(rows: WindowRows, windows: Windows) -> CallValues:
        count = len(rows.partitions)
        given = [to_values(from_arrow(rows.column(name), type_), count) for name, type_ in arguments]
        tuples = list(zip(*given, strict=True)) if given else [()] * count
        numbers: list[int] = []
        returned: list[Row] = []
        for number, (lo, hi) in enumerate(zip(windows.starts.tolist(), windows.ends.tolist(), strict=True)):
            for value in evaluate(base, tuples[lo:hi]):
                numbers.append(number)
                returned.append(definition.row_of(value))
        made = {
            column.name: to_arrow(from_values([row[index] for row in returned], column.type), len(returned))
            for index, column in enumerate(columns)
            if column.type.kind is not Kind.ANY
        }
        return CallValues(np.array(numbers, np.int64), made)

    return found


def align_results(found: Sequence[CallValues], windows: int) -> CallValues:
    """Combine the results of several calls to rows, by position in each window.

    The i-th row of a window has the i-th result of each call, or NULL.
    """
    own = [np.bincount(each.windows, minlength=windows) for each in found]
    counts = np.max(own, axis=0)
    numbers = np.repeat(np.arange(windows), counts)
    position = np.arange(len(numbers)) - np.repeat(np.cumsum(counts) - counts, counts)
    columns: dict[str, pa.Array] = {}
    for each, has in zip(found, own, strict=True):
        taken = (np.cumsum(has) - has)[numbers] + position
        index = pa.array(taken, mask=position >= has[numbers])
        columns |= {name: array.take(index) for name, array in each.columns.items()}
    return CallValues(numbers, columns)


def calls_together(calls: Sequence[Call], catalog: Catalog) -> JointCalls | None:
    """Combine the aggregate calls that share state, if they can be compiled together."""
    asked = [found for call in calls if (found := joint_call(call, catalog)) is not None]
    if not asked or not asked[-1].shares_with(asked[:-1]):
        return None
    try:
        return asked[-1].together(asked, None)
    except NoCompiledForm:
        return None


def _one_each(windows: Windows, columns: dict[str, pa.Array]) -> CallValues:
    return CallValues(np.arange(len(windows.starts)), columns)


def _tuples(arguments: Sequence[Vector], owners: NDArray[np.int32]) -> Tuples:
    no_stamps = np.zeros(len(owners), np.int64)  # no row expires, so timestamps are not used
    return Tuples(arguments, owners, no_stamps)


def _pieces(windows: Windows) -> Iterator[tuple[int, Int64s, NDArray[np.int32]]]:
    """Yield batches of windows with a bounded number of rows.

    A batch is (number of the first window, rows of all windows, window of each row), with windows numbered
    from the first window of the batch.
    """
    lengths = windows.ends - windows.starts
    reached = np.cumsum(lengths)
    first = 0
    while first < len(lengths):
        before = int(reached[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(reached, before + _AT_ONCE, side="right")))
        sizes, starts = lengths[first:last], windows.starts[first:last]
        shift = starts - (np.cumsum(sizes) - sizes)
        indices = np.arange(int(sizes.sum())) + np.repeat(shift, sizes)
        yield first, indices, np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        first = last
