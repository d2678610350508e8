"""Compile expressions into column steps, one per distinct sub-expression.

Each step is evaluated for all rows, even under CASE, AND and OR, so that queries can share sub-expressions. A
row on which a step fails is only marked (`Vector.fallback`). A CASE above the step drops the mark of rows for
which it does not use the value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from slicemill.esl.types.expression import (
    Call,
    Case,
    Cast,
    ColumnRef,
    Expr,
    Literal,
    children,
    is_null_literal,
    walk,
)
from slicemill.esl.types.schema import Kind, Schema, Type
from slicemill.scalar.fallback import by_distinct_row, inputs_of, patch, row_form_of
from slicemill.scalar.functions.casts import cast_kernel
from slicemill.scalar.functions.logic import case_column
from slicemill.scalar.kernel import VARIES, Fallback, Free, Kernel, KernelCall, apply
from slicemill.scalar.rows import compile_expression
from slicemill.scalar.table import expanded, function_of, kernel_of, may_take_long
from slicemill.scalar.values import ExpressionError, representable
from slicemill.scalar.vectors import Vector, constant, either, from_arrow, full_length, nothing, to_values

Run = Callable[[pa.RecordBatch, list[Vector]], Vector]


@dataclass(frozen=True, slots=True)
class ColumnStep:
    """Computation of one sub-expression from the results of earlier steps.

    A step that is not `vectorised` runs by the row form.
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
        if isinstance(expr, Call) and expanded(expr) is not expr:
            return self.add(expanded(expr))
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
        """Return a constant's step, evaluated now unless that may take long.

        If the evaluation fails, the row form raises the error for the rows that need the value.
        """
        if any(isinstance(node, Call) and may_take_long(node) for node in walk(expr)):
            # Time limits hold only while the step runs.
            late = ColumnStep(expr, (), _computed_once(expr, self.schema))
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
            parts = [part for when, then in expr.branches for part in (when, converted(then, expr.type))]
            if not is_null_literal(expr.default):
                parts.append(converted(expr.default, expr.type))
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
        arguments = [converted(a, target) for a, target in zip(expr.arguments, wanted, strict=True)]
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
    """Evaluate a constant expression; a failure is a fallback vector."""
    try:
        value = representable(compile_expression(expr, schema)(()), expr.type)
        return constant(value, expr.type)
    except (ExpressionError, ArithmeticError):
        return replace(nothing(expr.type), fallback=np.asarray(True))


def _computed_once(expr: Expr, schema: Schema) -> Run:
    """Return a step that evaluates a constant expression on first use."""
    known: list[Vector] = []

    def run(batch: pa.RecordBatch, _inputs: list[Vector]) -> Vector:
        if not known:
            known.append(_value_of(expr, schema))
        # The kernels were chosen for a column, not for a constant.
        return full_length(known[0], batch.num_rows)

    return run


def _column(expr: ColumnRef, schema: Schema) -> ColumnStep:
    type_ = schema.columns[schema.index(expr.name)].type
    return ColumnStep(expr, (), lambda batch, _inputs: from_arrow(batch.column(expr.name), type_))


def converted(expr: Expr, target: Type) -> Expr:
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
            fallback = either(fallback, vector.fallback)
        return replace(nothing(type_), fallback=fallback)

    return Kernel(null, strict=False)


def _kernel(kernel: Kernel, count: int, expr: Call | Cast, by_row: Run) -> Run:
    """Return a step that runs a kernel on the first `count` inputs.

    The row form runs on the remaining inputs, for rows that the kernel leaves to it.
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
        return replace(vector, fallback=either(vector.fallback, own))

    return run
