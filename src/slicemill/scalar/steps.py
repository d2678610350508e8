"""From expressions to steps over columns, each distinct sub-expression once.

Every step is evaluated for all rows, also under CASE, AND and OR, so that a sub-expression may serve several
queries: a row on which a step fails is only marked (`Vector.unsure`), and the form above it drops the mark
where it does not ask for that value.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa

from slicemill.esl.types.expression import Call, Case, Cast, ColumnRef, Expr, Literal, children, walk
from slicemill.esl.types.schema import Kind, Schema, Type
from slicemill.scalar.fallback import by_distinct_row, inputs_of, local_reference, patch, representable
from slicemill.scalar.forms import converted, form_of, nothing
from slicemill.scalar.kernel import VARIES, Bound, Free, Kernel, Unfit, apply
from slicemill.scalar.kernel_table import cast_kernel, kernel_of, types_taken
from slicemill.scalar.rows import ExpressionError, compile_expression
from slicemill.scalar.vectors import Vector, constant, either, from_arrow, to_values

Run = Callable[[pa.RecordBatch, list[Vector]], Vector]


@dataclass(frozen=True, slots=True)
class Step:
    """How to compute one sub-expression from earlier ones; if not `vectorised`, by asking the reference."""

    expr: Expr
    inputs: tuple[int, ...]
    run: Run
    vectorised: bool = True


class Steps:
    """A list in which each step comes after its inputs."""

    def __init__(self, schema: Schema) -> None:
        self.schema = schema
        self.steps: list[Step] = []
        self._known: dict[tuple[object, ...], int] = {}
        self._constants: dict[int, Vector] = {}

    def add(self, expr: Expr) -> int:
        """The place of the step for an expression; steps that are not there yet are added."""
        if isinstance(expr, ColumnRef):
            return self._once(("column", expr.name), lambda: _column(expr, self.schema))
        if not isinstance(expr, Literal | Call | Cast | Case):
            raise TypeError(f"{type(expr).__name__} has no meaning outside an aggregate's body")
        if isinstance(expr, Literal) or not any(isinstance(node, ColumnRef) for node in walk(expr)):
            return self._constant(expr)
        parts = tuple(self.add(child) for child in children(expr))
        what = expr.function if isinstance(expr, Call) else isinstance(expr, Cast) and expr.safe
        return self._once((type(expr), what, parts, expr.type), lambda: self._step(expr))

    def _once(self, key: tuple[object, ...], make: Callable[[], Step]) -> int:
        if key not in self._known:
            step = make()
            self._known[key] = len(self.steps)
            self.steps.append(step)
        return self._known[key]

    def _constant(self, expr: Expr) -> int:
        """Worked out now; if it has no value, whoever asks for it hears so from the reference."""
        try:
            value = representable(compile_expression(expr, self.schema)(()), expr.type)
            vector = constant(value, expr.type)
        except (ExpressionError, ArithmeticError):
            vector = replace(nothing(expr.type), unsure=np.asarray(True))
        # By text: 0.0 and -0.0 are equal, but not the same.
        text = "fails" if vector.unsure is not None else repr(to_values(vector, 1))
        step = Step(expr, (), lambda _batch, _inputs: vector)
        place = self._once(("constant", text, expr.type), lambda: step)
        self._constants[place] = vector
        return place

    def _step(self, expr: Call | Cast | Case) -> Step:
        form = form_of(expr)
        if form is not None:
            parts, function = form
            return Step(expr, tuple(self.add(part) for part in parts), _free(function))
        assert not isinstance(expr, Case)
        reference = self._fallback(expr)
        kernel_and_inputs = self._cast(expr) if isinstance(expr, Cast) else self._call(expr)
        if kernel_and_inputs is None:
            return reference
        kernel, inputs = kernel_and_inputs
        return Step(expr, inputs + reference.inputs, _kernel(kernel, len(inputs), expr, reference.run))

    def _cast(self, expr: Cast) -> tuple[Kernel, tuple[int, ...]] | None:
        if expr.operand.type.kind is Kind.NULL:
            return _always_null(expr.type), (self.add(expr.operand),)
        kernel = cast_kernel(expr.operand.type, expr.type)
        return None if kernel is None else (kernel, (self.add(expr.operand),))

    def _call(self, expr: Call) -> tuple[Kernel, tuple[int, ...]] | None:
        types = tuple(argument.type for argument in expr.arguments)
        wanted = types_taken(expr.function, types, expr.type)
        if wanted is None:
            return None
        arguments = [converted(a, target) for a, target in zip(expr.arguments, wanted, strict=True)]
        inputs = tuple(self.add(argument) for argument in arguments)
        bound = Bound(
            expr.function,
            tuple(argument.type for argument in arguments),
            expr.type,
            tuple(self._value(place) for place in inputs),
        )
        kernel = kernel_of(bound)
        if kernel is not None and any(type_.kind is Kind.NULL for type_ in bound.types):
            kernel = _always_null(expr.type) if kernel.strict else None
        return None if kernel is None else (kernel, inputs)

    def _value(self, place: int) -> object:
        vector = self._constants.get(place)
        return VARIES if vector is None or vector.unsure is not None else to_values(vector, 1)[0]

    def _fallback(self, expr: Call | Cast) -> Step:
        reference = local_reference(expr)
        inputs = tuple(self.add(argument) for argument in inputs_of(expr))

        def run(batch: pa.RecordBatch, vectors: list[Vector]) -> Vector:
            return by_distinct_row(reference, expr.type, vectors, batch.num_rows)

        return Step(expr, inputs, run, vectorised=False)


def _column(expr: ColumnRef, schema: Schema) -> Step:
    type_ = schema.columns[schema.index(expr.name)].type
    return Step(expr, (), lambda batch, _inputs: from_arrow(batch.column(expr.name), type_))


def _free(function: Free) -> Run:
    return lambda _batch, inputs: function(*inputs)


def _always_null(type_: Type) -> Kernel:
    def null(*vectors: Vector) -> Vector:
        unsure = None
        for vector in vectors:
            unsure = either(unsure, vector.unsure)
        return replace(nothing(type_), unsure=unsure)

    return Kernel(null, strict=False)


def _kernel(kernel: Kernel, count: int, expr: Call | Cast, fallback: Run) -> Run:
    """A kernel on the first inputs; the reference on the others, for what the kernel does not answer."""
    reference = local_reference(expr)

    def run(batch: pa.RecordBatch, inputs: list[Vector]) -> Vector:
        try:
            vector, own = apply(kernel, expr.type, inputs[:count])
        except Unfit:
            return fallback(batch, inputs[count:])
        if own is None:
            return vector
        if kernel.patches:
            return patch(vector, own, reference, inputs[count:], batch.num_rows)
        return replace(vector, unsure=either(vector.unsure, own))

    return run
