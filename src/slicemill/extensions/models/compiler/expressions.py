"""Code generator for scalar formulas of models.

A value in generated code is a pair of doubles, whose sum is the number. NaN means no value.
"""

from __future__ import annotations

from collections.abc import Mapping
from fractions import Fraction
from typing import TypeAlias

from slicemill.aggregates.udf.compiler.layout import NoCompiledForm, Writer
from slicemill.extensions.models.terms import PI as SYMBOL_OF_PI
from slicemill.extensions.models.terms import Apply, Expr, Number, Parameter, Symbol

Pair: TypeAlias = tuple[str, str]

_ONE = {name: name for name in ("floor", "ceil", "sign", "nonnegative", "log", "exp", "sin", "cos")}
_ONE |= {"sqrt": "root", "abs": "absolute"}
PI = Fraction("3.14159265358979323846264338327950288419716939937510582")
_SMALL_POWERS = range(2, 9)


def constant(value: Fraction) -> Pair:
    """Return the code of a constant: a pair of doubles, whose sum has 106 correct bits."""
    try:
        high = float(value)
    except OverflowError:
        raise NoCompiledForm(f"the number {value} is too great for a double") from None
    return repr(high), repr(float(value - Fraction(high)))


class Formulas:
    """Code generator for formulas over named values.

    A pair has the names of two doubles in generated code, whose sum is the value. `names` maps columns and
    symbols to pairs, `known` maps other expressions to pairs. With `rounded`, operands have rounding errors,
    so a tiny sum or difference is replaced by 0.
    """

    def __init__(
        self,
        out: Writer,
        names: Mapping[Expr, Pair],
        *,
        known: Mapping[Expr, Pair] | None = None,
        rounded: bool = False,
    ) -> None:
        self._out = out
        self._names = names
        self._known: dict[Expr, Pair] = dict(known or {})
        self._two = {"*": "multiply", "/": "divide", "^": "power", "%": "modulo"}
        self._two |= {"+": "total", "-": "difference"} if rounded else {"+": "add", "-": "subtract"}

    def pair(self, expr: Expr) -> Pair:
        """Write code that computes an expression, unless it has been written already.

        Return the names of the two doubles whose sum is the value.
        """
        if expr not in self._known:
            self._known[expr] = self._write(expr)
        return self._known[expr]

    def _write(self, expr: Expr) -> Pair:
        match expr:
            case Number(value):
                return constant(value)
            case Symbol() if expr == SYMBOL_OF_PI:
                return constant(PI)
            case Parameter() | Symbol():
                if expr not in self._names:
                    raise NoCompiledForm(f"{expr} is not known before the whole window has been read")
                return self._names[expr]
            case Apply("neg", (operand,)):
                high, low = self.pair(operand)
                return f"(-{high})", f"(-{low})"
            case Apply("^", (base, Number(value))) if value in _SMALL_POWERS:
                return self._power(self.pair(base), int(value))
            case Apply("where", (condition, yes, no)):
                return self._write_branches(self.pair(condition)[0], yes, no)
            case Apply(function, arguments):
                return self._write_function(function, [self.pair(argument) for argument in arguments])
        raise NoCompiledForm(f"{expr} cannot be compiled")

    def _power(self, of: Pair, exponent: int) -> Pair:
        """Write code that computes a power by repeated squaring."""
        if exponent == 1:
            return of
        half = self._power(self._call("multiply", of, of), exponent // 2)
        return half if exponent % 2 == 0 else self._call("multiply", of, half)

    def _write_function(self, function: str, operands: list[Pair]) -> Pair:
        if function in _ONE:
            return self._call(_ONE[function], *operands)
        if function in self._two:
            return self._call(self._two[function], *operands)
        first = operands[0]
        second = operands[-1]
        truth = {
            "<": f"dd.less({_flat(first, second)})",
            ">": f"dd.less({_flat(second, first)})",
            "<=": f"1.0 - dd.less({_flat(second, first)})",
            ">=": f"1.0 - dd.less({_flat(first, second)})",
            "=": f"dd.equal({_flat(first, second)})",
            "<>": f"1.0 - dd.equal({_flat(first, second)})",
            "not": f"1.0 - {first[0]}",
            "and": f"{first[0]} * {second[0]}",
            "or": f"{first[0]} + {second[0]} - {first[0]} * {second[0]}",
        }
        name = self._out.fresh("truth")
        self._out.line(f"{name} = {truth[function]}")
        return name, "0.0"

    def _call(self, function: str, *operands: Pair) -> Pair:
        name = self._out.fresh("v")
        self._out.line(f"{name}h, {name}l = dd.{function}({_flat(*operands)})")
        return f"{name}h", f"{name}l"

    def _write_branches(self, condition: str, yes: Expr, no: Expr) -> Pair:
        """Write code for `where(condition, yes, no)` that evaluates only the chosen branch."""
        name = self._out.fresh("chosen")
        self._out.line(f"{name}h, {name}l = np.nan, 0.0")
        for test, branch in (
            (f"{condition} == {condition} and {condition} != 0.0", yes),
            (f"{condition} == 0.0", no),
        ):
            with self._out.block(f"if {test}:"):
                known = dict(self._known)
                high, low = self.pair(branch)
                self._known = known
                self._out.line(f"{name}h, {name}l = {high}, {low}")
        return f"{name}h", f"{name}l"


def _flat(*pairs: Pair) -> str:
    return ", ".join(part for pair in pairs for part in pair)
