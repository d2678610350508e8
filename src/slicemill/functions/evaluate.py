"""Vectorised evaluation of expressions over Arrow tables.

    price_in_cents = compile_vector(expr, schema)
    column = price_in_cents(table)

Columns are found by their names in the schema; the table may have additional columns. `compile_many`
evaluates common sub-expressions once. `fallbacks` returns the sub-expressions that have no kernel. A *kernel*
computes a function over whole columns, and its *row function* computes the same value for one row, in Python.

A table is evaluated in blocks that fit into the CPU cache. A *fallback row* is a row that a kernel could not
evaluate, for example because of an overflow. After the last kernel, the row function evaluates each fallback
row whose value is still needed, and returns the value or raises the error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeAlias, TypeVar

import numpy as np
import pyarrow as pa

from slicemill.catalog.expressions import (
    Call,
    Case,
    Cast,
    ColumnRef,
    Expr,
    Literal,
    children,
    columns_of,
    is_null_literal,
    walk,
)
from slicemill.functions.casts import cast_kernel
from slicemill.functions.kernel import VARIES, Fallback, Free, Kernel, KernelCall, apply
from slicemill.functions.logic import case_column
from slicemill.functions.registry import expand_abbreviation, function_of, kernel_of, may_take_long
from slicemill.functions.rows import compile_expression
from slicemill.functions.values import MOST_TEXT, ExpressionError, representable
from slicemill.functions.vectors import (
    Vector,
    and_masks,
    arrow_type,
    constant,
    from_arrow,
    from_values,
    full_length,
    is_constant,
    mask_or_none,
    null_constant,
    or_masks,
    replace_values,
    take,
    to_arrow,
    to_values,
)
from slicemill.kernels.arrays import Bools, Int64s
from slicemill.types import Column, Kind, Schema, Type

BLOCK_ROWS = 131_072

Arrived: TypeAlias = pa.Table | pa.RecordBatch
# A failing expression stops its own query, not the queries whose expressions are evaluated with it.
Outcome: TypeAlias = pa.ChunkedArray | ExpressionError
R = TypeVar("R")


def compile_many(exprs: Sequence[Expr], schema: Schema) -> Callable[[Arrived], list[Outcome]]:
    """Compile expressions to a function that returns their columns or errors.

    Equal sub-expressions are evaluated once. Columns of the table are not copied.
    """
    computed = [expr for expr in exprs if not isinstance(expr, ColumnRef)]
    program = ColumnProgram(computed, schema)
    types = [arrow_type(expr.type) for expr in computed]

    def evaluate(table: Arrived) -> list[Outcome]:
        made: Iterator[Outcome] = iter(
            [
                results if isinstance(results, ExpressionError) else pa.chunked_array(results, type_)
                for results, type_ in zip(program.run(table, to_arrow), types, strict=True)
            ]
            if computed
            else []
        )
        return [_load_column(table, expr) if isinstance(expr, ColumnRef) else next(made) for expr in exprs]

    return evaluate


def _load_column(table: Arrived, expr: ColumnRef) -> pa.ChunkedArray:
    column, wanted = table.column(expr.name), arrow_type(expr.type)
    found = column if isinstance(column, pa.ChunkedArray) else pa.chunked_array([column])
    return found if found.type == wanted else found.cast(wanted)


def compile_or_null(exprs: Sequence[Expr], schema: Schema) -> Callable[[Arrived], list[pa.ChunkedArray]]:
    """Compile expressions to a function of tables; failing rows become NULL."""
    program = ColumnProgram(exprs, schema)
    types = [arrow_type(expr.type) for expr in exprs]

    def evaluate(table: Arrived) -> list[pa.ChunkedArray]:
        found = program.run(table, to_arrow, or_null=True)
        return [pa.chunked_array(results, type_) for results, type_ in zip(found, types, strict=True)]

    return evaluate


def compile_vector(expr: Expr, schema: Schema) -> Callable[[Arrived], pa.ChunkedArray]:
    """Compile an expression to a function of tables; a failing row raises an error."""
    many = compile_many([expr], schema)

    def evaluate(table: Arrived) -> pa.ChunkedArray:
        (outcome,) = many(table)
        if isinstance(outcome, ExpressionError):
            raise outcome
        return outcome

    return evaluate


def fallbacks(expr: Expr, schema: Schema) -> tuple[Expr, ...]:
    """Return the sub-expressions without a kernel, which run row by row."""
    return tuple(step.expr for step in ColumnProgram([expr], schema).steps if not step.vectorised)


def is_vectorizable(expr: Expr, schema: Schema) -> bool:
    return not fallbacks(expr, schema)


# -- evaluation ----------------------------------------------------------------------------------------------


def blocks(table: Arrived) -> Iterator[pa.RecordBatch]:
    """Yield a table in single-chunk blocks of at most BLOCK_ROWS rows."""
    if isinstance(table, pa.RecordBatch):
        for start in range(0, table.num_rows, BLOCK_ROWS):
            yield table.slice(start, BLOCK_ROWS)
        return
    # Copying many small chunks costs less than evaluating each of them.
    chunks = max((column.num_chunks for column in table.columns), default=0)
    if chunks > 1 and table.num_rows < chunks * BLOCK_ROWS // 8:
        table = table.combine_chunks()
    yield from table.to_batches(max_chunksize=BLOCK_ROWS)


class RootExpression:
    """Compiled expression, with the index of its result among the evaluated columns."""

    def __init__(self, expr: Expr, index: int, schema: Schema) -> None:
        self.expr = expr
        self.index = index
        read = columns_of(expr)
        self._read = Schema(tuple(column for column in schema if column.name in read))

    @cached_property
    def _row_form(self) -> RowForm:
        return compile_expression(self.expr, self._read)

    def evaluate_fallbacks(self, vector: Vector, batch: pa.RecordBatch, *, or_null: bool) -> Vector:
        """Evaluate the rows that the kernels of the expression could not evaluate.

        A failing row raises its error, or becomes NULL with `or_null`.
        """
        rows = batch.num_rows
        if isinstance(vector.data, pa.StringScalar):
            self._check_texts(rows * len(vector.data.as_py() or ""))
        if vector.fallback is None:
            return vector
        indices = np.flatnonzero(np.broadcast_to(vector.fallback, (rows,)))
        columns = [
            to_values(take(from_arrow(batch.column(column.name), column.type), indices), len(indices))
            for column in self._read
        ]
        given: Iterator[tuple[Any, ...]] = (
            zip(*columns, strict=True) if columns else iter([()] * len(indices))
        )
        values: list[object] = []
        # Strings that a kernel has computed count towards the limit of text length too.
        length = vector.data.nbytes if isinstance(vector.data, pa.StringArray) else 0
        for row in given:
            value = self._value(row, vector, or_null=or_null)
            length += len(value) if isinstance(value, str) else 0
            self._check_texts(length)
            values.append(value)
        return replace(replace_values(vector, rows, indices, values), fallback=None)

    def _check_texts(self, length: int) -> None:
        if length > MOST_TEXT:
            raise ExpressionError(
                f"the texts that an expression makes of a block of rows have more than {MOST_TEXT:,} "
                "characters; make them shorter"
            )

    def _value(self, row: tuple[Any, ...], vector: Vector, *, or_null: bool) -> object:
        try:
            return representable(self._row_form(row), vector.type)
        except ExpressionError:
            if or_null:
                return None
            raise


class ColumnProgram:
    """Expressions over one schema, with common sub-expressions computed once."""

    def __init__(self, exprs: Sequence[Expr], schema: Schema) -> None:
        steps = ColumnSteps(schema)
        self.roots = [RootExpression(expr, steps.add(expr), schema) for expr in exprs]
        self.steps = tuple(steps.steps)

    def run(
        self, table: Arrived, use: Callable[[Vector, int], R], *, or_null: bool = False
    ) -> list[list[R] | ExpressionError]:
        """Return `use(vector, rows)` for each block of each expression.

        If a row fails, the error replaces all results of its expression. With `or_null`, the row is NULL.
        """
        found: list[list[R] | ExpressionError] = [[] for _ in self.roots]
        for batch in blocks(table):
            vectors = self._evaluated(batch)
            for index, root in enumerate(self.roots):
                results = found[index]
                if isinstance(results, ExpressionError):
                    continue
                try:
                    vector = root.evaluate_fallbacks(vectors[root.index], batch, or_null=or_null)
                except ExpressionError as error:
                    found[index] = error
                else:
                    results.append(use(vector, batch.num_rows))
        return found

    def _evaluated(self, batch: pa.RecordBatch) -> list[Vector]:
        vectors: list[Vector] = []
        with np.errstate(all="ignore"):
            for step in self.steps:
                vector = step.run(batch, [vectors[index] for index in step.inputs])
                # Computed vectors get full length: kernels treat vectors without a length as constants.
                vectors.append(full_length(vector, batch.num_rows) if step.inputs else vector)
        return vectors


# Compilation of expressions into column steps, one for each distinct sub-expression
#
# Each step is evaluated for all rows, even under CASE, AND and OR, so that queries can share
# sub-expressions. A row on which a step fails is only marked (`Vector.fallback`). A CASE above the step
# drops the mark of rows for which it does not use the value.


Run = Callable[[pa.RecordBatch, list[Vector]], Vector]


@dataclass(frozen=True, slots=True)
class ColumnStep:
    """Computation of one sub-expression from the results of earlier steps.

    A step that is not `vectorised` calls the row function.
    """

    expr: Expr
    inputs: tuple[int, ...]
    run: Run
    vectorised: bool = True


class ColumnSteps:
    """List of column steps; inputs precede the steps that use them."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.steps: list[ColumnStep] = []
        self._known: dict[tuple[object, ...], int] = {}
        self._constants: dict[int, Vector] = {}

    def add(self, expr: Expr) -> int:
        """Return the index of an expression's step; add missing steps."""
        if isinstance(expr, ColumnRef):
            return self._once(("column", expr.name), lambda: _column(expr, self.schema))
        if not isinstance(expr, Literal | Call | Cast | Case):
            raise TypeError(f"{type(expr).__name__} has no meaning outside an aggregate's body")
        if isinstance(expr, Call) and expand_abbreviation(expr) is not expr:
            return self.add(expand_abbreviation(expr))
        if isinstance(expr, Literal) or not any(isinstance(node, ColumnRef) for node in walk(expr)):
            return self._constant(expr)
        parts = tuple(self.add(child) for child in children(expr))
        what = expr.function if isinstance(expr, Call) else isinstance(expr, Cast) and expr.safe
        return self._once((type(expr), what, parts, expr.type), lambda: self._step(expr))

    def _once(self, key: tuple[object, ...], make: Callable[[], ColumnStep]) -> int:
        if key not in self._known:
            step = make()
            self._known[key] = len(self.steps)
            self.steps.append(step)
        return self._known[key]

    def _constant(self, expr: Expr) -> int:
        """Return the index of a constant's step, evaluated now unless it is slow.

        If the evaluation fails, the row function raises the error for the rows that need the value.
        """
        if any(isinstance(node, Call) and may_take_long(node) for node in walk(expr)):
            # Evaluate slow calls in `run`, because time limits apply only while a step runs.
            late = ColumnStep(expr, (), _compute_once(expr, self.schema))
            return self._once(("late constant", repr(expr)), lambda: late)
        vector = _value_of(expr, self.schema)
        # Compare by text: 0.0 and -0.0 are equal but distinct.
        text = "fails" if vector.fallback is not None else repr(to_values(vector, 1))
        step = ColumnStep(expr, (), lambda _batch, _inputs: vector)
        index = self._once(("constant", text, expr.type), lambda: step)
        self._constants[index] = vector
        return index

    def _step(self, expr: Call | Cast | Case) -> ColumnStep:
        if isinstance(expr, Case):
            parts = [part for when, then in expr.branches for part in (when, implicit_cast(then, expr.type))]
            if not is_null_literal(expr.default):
                parts.append(implicit_cast(expr.default, expr.type))
            return ColumnStep(expr, tuple(self.add(part) for part in parts), _free(case_column(expr.type)))
        kernel_and_inputs = self._cast(expr) if isinstance(expr, Cast) else self._call(expr)
        if kernel_and_inputs is None:
            return self._by_row(expr)
        kernel, inputs = kernel_and_inputs
        if isinstance(expr, Call) and function_of(expr.function, _types(expr)).lazy:
            return ColumnStep(expr, inputs, _free(kernel.function))
        by_row = self._by_row(expr)
        return ColumnStep(expr, inputs + by_row.inputs, _kernel(kernel, len(inputs), expr, by_row.run))

    def _cast(self, expr: Cast) -> tuple[Kernel, tuple[int, ...]] | None:
        if expr.operand.type.kind is Kind.NULL:
            return _always_null(expr.type), (self.add(expr.operand),)
        kernel = cast_kernel(expr.operand.type, expr.type)
        return None if kernel is None else (kernel, (self.add(expr.operand),))

    def _call(self, expr: Call) -> tuple[Kernel, tuple[int, ...]] | None:
        types = _types(expr)
        function = function_of(expr.function, types)
        if function.column is None or any(type_.kind is Kind.ANY for type_ in types):
            return None
        wanted = function.takes(types, expr.type)
        arguments = [implicit_cast(a, target) for a, target in zip(expr.arguments, wanted, strict=True)]
        inputs = tuple(self.add(argument) for argument in arguments)
        call = KernelCall(
            expr.function,
            tuple(argument.type for argument in arguments),
            expr.type,
            tuple(self._value(index) for index in inputs),
        )
        kernel = kernel_of(call)
        if kernel is not None and not function.lazy and any(type_.kind is Kind.NULL for type_ in call.types):
            kernel = _always_null(expr.type) if kernel.strict else None
        return None if kernel is None else (kernel, inputs)

    def _value(self, index: int) -> object:
        vector = self._constants.get(index)
        return VARIES if vector is None or vector.fallback is not None else to_values(vector, 1)[0]

    def _by_row(self, expr: Call | Cast) -> ColumnStep:
        form = row_form_of(expr)
        inputs = tuple(self.add(argument) for argument in inputs_of(expr))

        def run(batch: pa.RecordBatch, vectors: list[Vector]) -> Vector:
            return by_distinct_row(form, expr.type, vectors, batch.num_rows)

        return ColumnStep(expr, inputs, run, vectorised=False)


def _value_of(expr: Expr, schema: Schema) -> Vector:
    """Evaluate a constant expression; if it fails, mark the value as failed."""
    try:
        value = representable(compile_expression(expr, schema)(()), expr.type)
        return constant(value, expr.type)
    except (ExpressionError, ArithmeticError):
        return replace(null_constant(expr.type), fallback=np.asarray(True))


def _compute_once(expr: Expr, schema: Schema) -> Run:
    """Return a step that evaluates a constant expression on first use."""
    known: list[Vector] = []

    def run(batch: pa.RecordBatch, _inputs: list[Vector]) -> Vector:
        if not known:
            known.append(_value_of(expr, schema))
        # The constant is repeated for each row, because the kernels were chosen for a column.
        return full_length(known[0], batch.num_rows)

    return run


def _column(expr: ColumnRef, schema: Schema) -> ColumnStep:
    type_ = schema.columns[schema.index(expr.name)].type
    return ColumnStep(expr, (), lambda batch, _inputs: from_arrow(batch.column(expr.name), type_))


def implicit_cast(expr: Expr, target: Type) -> Expr:
    """Return the expression with the implicit conversion to a type."""
    return expr if expr.type == target or target.kind in (Kind.ANY, Kind.NULL) else Cast(expr, target)


def _types(call: Call) -> tuple[Type, ...]:
    return tuple(argument.type for argument in call.arguments)


def _free(function: Free) -> Run:
    return lambda _batch, inputs: function(*inputs)


def _always_null(type_: Type) -> Kernel:
    def null(*vectors: Vector) -> Vector:
        fallback = None
        for vector in vectors:
            fallback = or_masks(fallback, vector.fallback)
        return replace(null_constant(type_), fallback=fallback)

    return Kernel(null, strict=False)


def _kernel(kernel: Kernel, count: int, expr: Call | Cast, by_row: Run) -> Run:
    """Return a step that runs a kernel on the first `count` inputs.

    The row function reads the remaining inputs, for rows that the kernel marks as fallbacks.
    """
    form = row_form_of(expr)

    def run(batch: pa.RecordBatch, inputs: list[Vector]) -> Vector:
        try:
            vector, own = apply(kernel, expr.type, inputs[:count])
        except Fallback:
            return by_row(batch, inputs[count:])
        if own is None:
            return vector
        if kernel.patches:
            return patch(vector, own, form, inputs[count:], batch.num_rows)
        return replace(vector, fallback=or_masks(vector.fallback, own))

    return run


# Evaluation of fallback rows, once per distinct combination of arguments


RowForm = Callable[[tuple[Any, ...]], object]

_LENGTHENING = ("repeat", "lpad", "rpad")
_LONG = 10_000


def row_form_of(expr: Call | Cast) -> RowForm:
    """Return a call's row function, whose parameters are `inputs_of(expr)`."""
    columns = [ColumnRef(str(index), argument.type) for index, argument in enumerate(inputs_of(expr))]
    given: Iterator[Expr] = iter(columns)
    schema = Schema(tuple(Column(column.name, column.type) for column in columns))
    if isinstance(expr, Cast):
        return compile_expression(replace(expr, operand=next(given)), schema)
    arguments = tuple(a if isinstance(a, Literal) else next(given) for a in expr.arguments)
    form = compile_expression(replace(expr, arguments=arguments), schema)
    return _reject_long_texts(form) if expr.function in _LENGTHENING else form


def inputs_of(expr: Call | Cast) -> tuple[Expr, ...]:
    """Return the arguments that are not literals."""
    if isinstance(expr, Cast):
        return (expr.operand,)
    return tuple(argument for argument in expr.arguments if not isinstance(argument, Literal))


def _reject_long_texts(form: RowForm) -> RowForm:
    """Return a row function that fails if an integer argument is large.

    An example is `repeat(x, 1000000)`. The failed row is marked. If a CASE excludes the row, the
    value is never computed. Otherwise `RootExpression` evaluates the complete expression for the row.
    """

    def unless_long(row: tuple[Any, ...]) -> object:
        if any(isinstance(value, int) and value > _LONG for value in row):
            raise ExpressionError("the text would be long")
        return form(row)

    return unless_long


def evaluate_rows(
    form: RowForm, result: Type, vectors: Sequence[Vector], rows: int
) -> tuple[list[Any], list[bool]]:
    """Evaluate a call row by row; return the values, and flags of failed rows.

    A failed row has the value None.
    """
    columns = [to_values(vector, rows) for vector in vectors]
    values: list[Any] = []
    failed: list[bool] = []
    length = 0
    for row in zip(*columns, strict=True) if columns else [()] * rows:
        try:
            value = representable(form(row), result) if length <= MOST_TEXT else None
            length += len(value) if isinstance(value, str) else 0
            values.append(value)
            failed.append(length > MOST_TEXT)
        except (ExpressionError, ArithmeticError):
            values.append(None)
            failed.append(True)
    return values, failed


def by_distinct_row(form: RowForm, result: Type, vectors: Sequence[Vector], rows: int) -> Vector:
    """Evaluate a call once per distinct combination of arguments; mark failed rows."""
    fallback: Bools | None = None
    for vector in vectors:
        fallback = or_masks(fallback, vector.fallback)
    if fallback is not None:
        # Fallback rows contain arbitrary data, so the call gets NULL, which is cheap to evaluate.
        vectors = [
            replace(vector, valid=and_masks(vector.valid, ~fallback), fallback=None) for vector in vectors
        ]
    codes, first = distinct_codes(vectors, rows)
    values, failed = evaluate_rows(form, result, [take(vector, first) for vector in vectors], len(first))
    if result.kind is Kind.VARCHAR and len(first) < rows:
        lengths = np.array([len(value or "") for value in values], np.int64)
        if int(lengths[codes].sum()) > MOST_TEXT:  # the length of a string counts once for each of its rows
            values, failed = [None] * len(values), [True] * len(values)
    found = take(from_values(values, result), codes)
    own = mask_or_none(np.array(failed, np.bool_)[codes]) if any(failed) else None
    return Vector(result, found.data, found.valid, or_masks(fallback, own))


def patch(vector: Vector, own: Bools, form: RowForm, arguments: Sequence[Vector], rows: int) -> Vector:
    """Evaluate the rows that a kernel could not evaluate, and merge the values."""
    indices = np.flatnonzero(np.broadcast_to(own, (rows,)))
    parts = [take(argument, indices) for argument in arguments]
    answer = by_distinct_row(form, vector.type, parts, len(indices))
    filled = replace_values(vector, rows, indices, to_values(replace(answer, fallback=None), len(indices)))
    if answer.fallback is None:
        return filled
    open_ = np.zeros(rows, np.bool_)
    open_[indices] = answer.fallback
    return replace(filled, fallback=or_masks(filled.fallback, open_))


def distinct_codes(vectors: Sequence[Vector], rows: int) -> tuple[Int64s, Int64s]:
    """Return a code for each row, and the first row of each code.

    Rows with equal arguments have equal codes.
    """
    codes: Int64s = np.zeros(rows, np.int64)
    count = min(rows, 1)
    for vector in vectors:
        for part in _parts(vector):
            own, size = _dictionary_codes(part)
            # Both factors are at most the number of rows, so that the product fits into 64 bits.
            codes, count = _dictionary_codes(pa.array(codes * size + own)) if count > 1 else (own, size)
    first: Int64s = np.zeros(count, np.int64)
    first[codes[::-1]] = np.arange(rows - 1, -1, -1)
    return codes, first


def _dictionary_codes(array: pa.Array) -> tuple[Int64s, int]:
    encoded = array.dictionary_encode(null_encoding="encode")
    indices = encoded.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    return indices, len(encoded.dictionary)


def _parts(vector: Vector) -> list[pa.Array]:
    """Return arrays whose rows are equal exactly where the vector's rows are equal.

    NULL equals NULL.
    """
    data = vector.data
    if is_constant(vector):
        columns = []
    elif vector.type.kind is Kind.PERIOD:
        columns = [data[:, 0], data[:, 1]]
    elif vector.type.kind is Kind.LIST:
        columns = [pa.array(map(repr, to_values(vector, len(data))))]
    elif vector.type.kind is Kind.DOUBLE:
        columns = [data.view(np.int64)]  # by bits: 0 and -0 are distinct arguments
    else:
        columns = [data]
    if vector.valid is not None and vector.valid.ndim:
        columns.append(vector.valid)
    return [column if isinstance(column, pa.Array) else pa.array(column) for column in columns]
