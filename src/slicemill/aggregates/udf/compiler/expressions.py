"""Code generator for SQL expressions in user-defined aggregates.

The generated code of an expression (`Code`) is one text for the value and one for its NULL flag, and lines
that precede them. The semantics are those of `functions.rows`. A strict function is NULL as soon as an
argument is NULL, and evaluates no further argument. AND, OR, CASE and COALESCE evaluate no more arguments
than necessary. After an error, such as an overflow, the generated code stops, and the interpreter produces
the error message. Generated Python calls the row-by-row implementation of functions for which no code can be
generated.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol, TypeAlias

from slicemill import types as t
from slicemill.aggregates.udf.compiler.layout import (
    MACHINE,
    Aside,
    Code,
    NoCompiledForm,
    Writer,
    any_null,
    default_of,
)
from slicemill.catalog.expressions import (
    Argument,
    Call,
    Case,
    Cast,
    ColumnRef,
    ExistsQuery,
    Expr,
    Literal,
    Oldest,
    ScalarQuery,
    is_null,
)
from slicemill.functions.casts import cast_source, converter
from slicemill.functions.registry import FUNCTIONS, expand_abbreviation, function_of, row_form
from slicemill.functions.source import Snippet, SnippetMaker
from slicemill.types import Kind, Type

# Code generators for columns of the current rows, by name.
# Only columns that an expression reads are generated.
Columns: TypeAlias = Mapping[str, Callable[[], Code]]


class Names(Protocol):
    """Code generator for the leaves of expressions: arguments, the oldest window tuple, and sub-queries."""

    def argument(self, expr: Argument) -> Code: ...

    def oldest(self, expr: Oldest) -> Code: ...

    def scalar_query(self, expr: ScalarQuery, columns: Columns) -> Code: ...

    def exists_query(self, expr: ExistsQuery, columns: Columns) -> Code: ...


class ScalarWriter:
    """Code generator for the expressions in the statements of a user-defined aggregate.

    `literals` has the integer codes of string literals in machine code. `closures` has the Python objects to
    which generated Python refers, by name. `fail` writes code that stops after an error.
    """

    def __init__(
        self, writer: Writer, form: str, literals: dict[str, int], closures: dict[str, Any], names: Names
    ) -> None:
        self.out = writer
        self.form = form
        self.literals = literals
        self.closures = closures
        self.fail: Callable[[], None] = lambda: None
        self._names = names

    def fail_if(self, condition: str) -> None:
        with self.out.block(f"if {condition}:"):
            self.fail()
        self.out.failing = True

    def expression(self, expr: Expr, columns: Columns) -> Code:
        if expr.type.kind is Kind.ANY:
            raise NoCompiledForm("an argument has no type")
        if isinstance(expr, Literal):
            return self.literal(converter(expr.type, expr.type)(expr.value), expr.type)
        if isinstance(expr, ColumnRef):
            if expr.name not in columns:
                raise NoCompiledForm(f"{expr.name} is read from a group outside")
            return columns[expr.name]()
        if isinstance(expr, Argument):
            return self._names.argument(expr)
        if isinstance(expr, Oldest):
            return self._names.oldest(expr)
        if isinstance(expr, ScalarQuery):
            return self._names.scalar_query(expr, columns)
        if isinstance(expr, ExistsQuery):
            return self._names.exists_query(expr, columns)
        if isinstance(expr, Cast):
            return self._cast(expr, columns)
        if isinstance(expr, Case):
            return self._case(expr.branches, expr.default, expr.type, columns)
        return self._call(expr, columns)

    def condition(self, expr: Expr | None, columns: Columns) -> str:
        """Generate a predicate, in which NULL is false. Return its code expression."""
        return "True" if expr is None else self.expression(expr, columns).truth

    def convert_expression(self, expr: Expr, target: Type, columns: Columns) -> Code:
        """Generate an expression, converted to a target type. Constants are converted at compile time."""
        if isinstance(expr, Literal) and target.kind is not Kind.NULL:
            return self.literal(converter(expr.type, target)(expr.value), target)
        return self.convert(self.expression(expr, columns), expr.type, target)

    def literal(self, value: object, type_: Type) -> Code:
        if value is None:
            return Code(default_of(type_), "True")
        if isinstance(value, str) and self.form == MACHINE:
            return Code(str(self.literals.setdefault(value, len(self.literals))))
        if isinstance(value, float) and not math.isfinite(value):
            return Code("np.nan" if math.isnan(value) else "np.inf" if value > 0 else "-np.inf")
        if isinstance(value, bool | int | float | str):
            return Code(repr(value))
        return Code(self.closure("constant", value))

    # -- type conversions ----------------------------------------------------------------------------------

    def convert(self, code: Code, source: Type, target: Type) -> Code:
        if source == target or Kind.NULL in (source.kind, target.kind) or code.null == "True":
            return Code(default_of(target), code.null) if code.null == "True" else code
        make = cast_source(source, target)
        if make is not None:
            return self.strict_call([code], target, make)
        return self._by_row(f"{source} to {target}", [code], target, converter(source, target))

    def _cast(self, expr: Cast, columns: Columns) -> Code:
        if expr.safe:
            raise NoCompiledForm("TRY_CAST cannot be compiled")
        if expr.operand.type.kind is Kind.NULL:
            return Code(default_of(expr.type), "True")
        return self.convert(self.expression(expr.operand, columns), expr.operand.type, expr.type)

    # -- calls of SQL functions and operators --------------------------------------------------------------

    def _call(self, call: Call, columns: Columns) -> Code:
        name, arguments = call.function, call.arguments
        types = tuple(argument.type for argument in arguments)
        if name in ("and", "or"):
            return self._logic(name, arguments, columns)
        if name == "coalesce":
            return self._coalesce(arguments, call.type, columns)
        if name in ("isnull", "isnotnull"):
            null = self.expression(arguments[0], columns).null
            return Code(null if name == "isnull" else f"(not {null})")
        if name == "nullif" and types[0].kind is types[1].kind:
            return self._nullif(arguments, types, columns)
        meant = expand_abbreviation(call)
        if meant is not call:
            return self.expression(meant, columns)
        function = function_of(name, types)
        if function.strict and any(is_null(argument) for argument in arguments):
            return Code(default_of(call.type), "True")
        wanted = function.takes(types, call.type)
        make = function.source and function.source(wanted, call.type, self.form == MACHINE)
        if make is None:
            _, row_function, _ = row_form(name, types, call.type)
            if not function.strict:
                raise NoCompiledForm(f"{name} of {' and '.join(map(str, types))} cannot be compiled")
            codes = self._strict_arguments(arguments, wanted, columns, function.right_first)
            return self._by_row(name, codes, call.type, row_function)
        if function.strict:
            codes = self._strict_arguments(arguments, wanted, columns, function.right_first)
            return self.strict_call(codes, call.type, make)
        codes = [self.convert_expression(a, to, columns) for a, to in zip(arguments, wanted, strict=True)]
        return self._free(name, [self.out.named(code) for code in codes], call.type, make)

    def _nullif(self, arguments: Sequence[Expr], types: tuple[Type, ...], columns: Columns) -> Code:
        """Generate NULLIF. Arguments may be queries, so the code evaluates each argument once."""
        equals = FUNCTIONS["="]
        make = equals.source and equals.source(types, t.BOOLEAN, self.form == MACHINE)
        if make is None:
            raise NoCompiledForm(f"nullif of {types[0]} cannot be compiled")
        a, b = (self.out.named(self.expression(argument, columns)) for argument in arguments)
        result = self.out.fresh()
        self.out.line(f"{result}_null = {a.null} or (not {b.null} and {make(a.value, b.value).value})")
        return Code(a.value, f"{result}_null")

    def _strict_arguments(
        self, arguments: Sequence[Expr], wanted: Sequence[Type], columns: Columns, right_first: bool
    ) -> list[Code]:
        """Generate the arguments of a strict function, so that none is evaluated after a NULL argument.

        They are evaluated from left to right, or with `right_first` from right to left.
        """
        if right_first:
            return self._strict_arguments(arguments[::-1], wanted[::-1], columns, False)[::-1]
        codes: list[Code] = []
        for argument, type_ in zip(arguments, wanted, strict=True):
            with self.out.aside() as rest:
                code = self.convert_expression(argument, type_, columns)
            nullable = [index for index, before in enumerate(codes) if not before.known]
            if nullable and rest.failing:
                codes = [self.out.named(before) for before in codes]
                condition = " and ".join(f"not {codes[index].null}" for index in nullable)
                codes.append(self._if_else(condition, rest, code, type_))
                continue
            if rest.lines:  # earlier arguments are assigned to variables, to preserve the evaluation order
                codes = [self.out.named(before) for before in codes]
            self.out.put(rest)
            codes.append(code)
        return codes

    def _if_else(self, condition: str, aside: Aside, code: Code, type_: Type) -> Code:
        """Generate a value that is evaluated only under a condition, and otherwise NULL."""
        name = self.out.fresh()
        self.out.line(f"{name}, {name}_null = {default_of(type_)}, True")
        with self.out.block(f"if {condition}:"):
            self.out.put(aside)
            self.out.line(f"{name}, {name}_null = {code.value}, {code.null}")
        return Code(name, f"{name}_null")

    def strict_call(self, codes: list[Code], type_: Type, make: SnippetMaker) -> Code:
        """Generate the call of a strict function, which is NULL if an argument is NULL.

        A function that may fail or divide is evaluated only for non-NULL arguments.
        """
        null = any_null(codes)
        if null == "True":
            return Code(default_of(type_), "True")
        made = make(*(code.value for code in codes))
        if made.bad is None and not made.twice:
            return Code(made.value, null)
        codes = [self.out.named(code) for code in codes]
        null = any_null(codes)
        made = make(*(code.value for code in codes))
        if made.bad is None:
            return Code(f"({made.value})", null)
        name = self.out.fresh()
        if null == "False":
            self._assign_with_check(name, made)
            return Code(name)
        self.out.line(f"{name}, {name}_null = {default_of(type_)}, {null}")
        with self.out.block(f"if not {name}_null:"):
            self._assign_with_check(name, made)
        return Code(name, f"{name}_null")

    def _assign_with_check(self, name: str, made: Snippet) -> None:
        """Generate the assignment of a value to a variable, and the test for an error such as overflow.

        The test precedes or follows the assignment.
        """
        assert made.bad is not None
        if made.before:
            self.fail_if(made.bad)
        self.out.line(f"{name} = {made.value}")
        if not made.before:
            self.fail_if(made.bad.replace("RESULT", name))

    def _by_row(self, what: str, codes: list[Code], type_: Type, function: Callable[..., Any]) -> Code:
        """Generate a call of the row-by-row implementation of a function, in generated Python only.

        The function may return NULL or raise an error.
        """
        if self.form == MACHINE:
            raise NoCompiledForm(f"{what} cannot be compiled to machine code")
        null, name = any_null(codes), self.out.fresh()
        called = self.closure("reference", lambda *values: function(*map(_plain, values)))
        self.out.line(f"{name} = None")
        with self.out.block(f"if not {null}:"):
            self.out.line(f"{name} = {called}({', '.join(code.value for code in codes)})")
        self.out.line(f"{name}_null = {name} is None")
        with self.out.block(f"if {name}_null:"):
            self.out.line(f"{name} = {default_of(type_)}")
        self.out.failing = True
        return Code(name, f"{name}_null")

    def closure(self, stem: str, value: object) -> str:
        if self.form == MACHINE:
            raise NoCompiledForm(f"{value!r} cannot be compiled to machine code")
        name = f"{stem}_{len(self.closures) + 1}"
        self.closures[name] = value
        return name

    def _free(self, name: str, codes: list[Code], type_: Type, make: SnippetMaker) -> Code:
        """Generate functions that accept NULL arguments: <=>, IN, greatest, least.

        `make` generates the comparison of two non-NULL values.
        """
        out = self.out
        if name == "<=>":
            a, b = codes
            equal = make(a.value, b.value).value
            if a.known and b.known:
                return Code(equal)
            return Code(f"(({a.null} and {b.null}) or (not {a.null} and not {b.null} and {equal}))")
        result = out.fresh()
        if name == "in":
            value, *choices = codes
            tests = [Code(make(value.value, c.value).value, c.null).truth for c in choices]
            out.line(f"{result} = {' or '.join(tests)}")
            unknown = any_null(choices)
            if unknown == "False":
                return Code(result, value.null)
            return Code(result, f"({value.null} or (not {result} and {unknown}))")
        out.line(f"{result}, {result}_null = {default_of(type_)}, True")
        for code in codes:
            better = make(code.value, result).value
            with out.block(f"if not {code.null} and ({result}_null or {better}):"):
                out.line(f"{result}, {result}_null = {code.value}, False")
        return Code(result, f"{result}_null")

    # -- AND, OR, CASE and COALESCE, which do not evaluate all of their arguments --------------------------

    def _logic(self, name: str, arguments: Sequence[Expr], columns: Columns) -> Code:
        first = self.expression(arguments[0], columns)
        with self.out.aside() as rest:
            second = self.expression(arguments[1], columns)
        decides = "not {}" if name == "and" else "{}"  # condition under which the first value decides
        if rest.lines:
            if first.known and second.known:
                return Code(self._short_circuit(name, first.value, rest, second))
            first = self.out.named(first)
            needed = first.value if name == "and" else f"not {first.value}"
            if not first.known:
                needed = f"{first.null} or {needed}"
            second = self._if_else(needed, rest, second, t.BOOLEAN)
            if first.known:  # the second value is also NULL if it has not been evaluated
                settled = decides.format(first.value)
                value = f"({first.value} {name} {second.value})"
                return Code(value, f"(not ({settled}) and {second.null})")
        if first.known and second.known:
            return Code(f"({first.value} {name} {second.value})")
        a, b = self.out.named(first), self.out.named(second)
        if name == "and":
            null = f"(({a.null} and ({b.null} or {b.value})) or ({b.null} and {a.value}))"
            return Code(f"({a.truth} and {b.truth})", null)
        null = f"(({a.null} and ({b.null} or not {b.value})) or ({b.null} and not {a.truth}))"
        return Code(f"({a.truth} or {b.truth})", null)

    def _short_circuit(self, name: str, first: str, rest: Aside, second: Code) -> str:
        """Generate AND or OR of two non-NULL values. The second value is evaluated only if necessary."""
        result = self.out.fresh()
        self.out.line(f"{result} = {first}")
        with self.out.block(f"if {'' if name == 'and' else 'not '}{result}:"):
            self.out.put(rest)
            self.out.line(f"{result} = {second.value}")
        return result

    def _case(
        self, branches: Sequence[tuple[Expr, Expr]], default: Expr, type_: Type, columns: Columns
    ) -> Code:
        name = self.out.fresh()
        self._branch(list(branches), default, type_, columns, name)
        return Code(name, f"{name}_null")

    def _branch(
        self, branches: list[tuple[Expr, Expr]], default: Expr, type_: Type, columns: Columns, name: str
    ) -> None:
        if not branches:
            code = self.convert_expression(default, type_, columns)
            self.out.line(f"{name}, {name}_null = {code.value}, {code.null}")
            return
        (when, then), *rest = branches
        with self.out.block(f"if {self.condition(when, columns)}:"):
            code = self.convert_expression(then, type_, columns)
            self.out.line(f"{name}, {name}_null = {code.value}, {code.null}")
        with self.out.block("else:"):
            self._branch(rest, default, type_, columns, name)

    def _coalesce(self, arguments: Sequence[Expr], type_: Type, columns: Columns) -> Code:
        first = self.convert_expression(arguments[0], type_, columns)
        if first.known:
            return first
        name = self.out.fresh()
        self.out.line(f"{name}, {name}_null = {first.value}, {first.null}")
        null = f"{name}_null"
        for argument in arguments[1:]:
            with self.out.block(f"if {null}:"):
                code = self.convert_expression(argument, type_, columns)
                self.out.line(f"{name}, {null} = {code.value}, {code.null}")
                last = code.known
            if last:
                return Code(name)
        return Code(name, null)


def _plain(value: Any) -> object:
    """Convert a NumPy scalar to the Python value that row functions expect."""
    return value.item() if hasattr(value, "dtype") else value
