"""Built-in aggregates over local tables, as source: lines before the loop, in it, and the value after it."""

from __future__ import annotations

from contextlib import nullcontext

from slicemill.aggregate.compiler.layout import MACHINE, default_of
from slicemill.aggregate.compiler.source import Code, Unfit, Writer, any_null
from slicemill.esl.types.relation import AggregateCall
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.functions.comparison import less_source

_NUMBERS = (Kind.INT, Kind.BIGINT, Kind.DOUBLE)
_ORDERED = (*_NUMBERS, Kind.BOOLEAN, Kind.TIMESTAMP, Kind.DATE, Kind.INTERVAL)


class Accumulator:
    """One call; `step` is written where a row's arguments are at hand."""

    def __init__(self, call: AggregateCall, types: tuple[Type, ...], form: str, out: Writer) -> None:
        self._name = call.name.lower()
        self._types = types
        self._out = out
        self._in = out.fresh(f"{self._name}_")
        kind = types[0].kind if types else None
        of_numbers = self._name in ("sum", "avg") and kind in _NUMBERS
        ordered = self._name in ("min", "max") and (kind in _ORDERED or form != MACHINE)
        if call.distinct or not (of_numbers or ordered or self._name in ("count", "first", "last")):
            raise Unfit(f"{call.name} of {' and '.join(map(str, types))} has no form in generated code")
        self._exact = of_numbers and (self._name == "avg" or kind is Kind.DOUBLE)

    def begin(self) -> None:
        out, name = self._out, self._in
        if self._name == "count":
            out.line(f"{name} = 0")
        elif self._exact:
            out.line(f"{name}, {name}_count = np.zeros(exact.CELLS, np.int64), 0")
        elif self._name == "sum":
            out.line(f"{name}, {name}_count = 0, 0")
        else:
            flag = f", {name}_null" if self._name in ("first", "last") else ""
            value = ", True" if flag else ""
            out.line(f"{name}, {name}_count{flag} = {default_of(self._types[0])}, 0{value}")

    def step(self, arguments: list[Code]) -> str | None:
        """Gives the text of a condition under which the sum has left 64 bits, to be tested at once."""
        out, name = self._out, self._in
        if self._name in ("first", "last"):
            (code,) = arguments
            with out.block(f"if {name}_count == 0:") if self._name == "first" else nullcontext():
                out.line(f"{name}, {name}_null = {code.value}, {code.null}")
            out.line(f"{name}_count += 1")
            return None
        null = any_null(arguments)
        with out.block(f"if not {null}:") if null != "False" else nullcontext():
            if self._name == "count":
                out.line(f"{name} += 1")
                return None
            code = out.named(arguments[0])
            if self._exact:
                add = "add" if self._types[0].kind is Kind.DOUBLE else "add_whole"
                out.line(f"exact.{add}({name}, {code.value})")
            elif self._name == "sum":
                before = out.fresh()
                out.line(f"{before} = {name}")
                out.line(f"{name} = {before} + {code.value}")
            else:
                old, new = (name, code.value) if self._name == "max" else (code.value, name)
                with out.block(f"if {name}_count == 0 or {less_source(self._types[0].kind, old, new)}:"):
                    out.line(f"{name} = {code.value}")
            out.line(f"{name}_count += 1")
        if self._name == "sum" and not self._exact:
            return f"not {null} and (({before} ^ {name}) & ({code.value} ^ {name})) < 0"
        return None

    def value(self) -> Code:
        name = self._in
        if self._name == "count":
            return Code(name)
        if self._name in ("first", "last"):
            return Code(name, f"{name}_null")
        if self._exact:
            by = f"{name}_count" if self._name == "avg" else "1"
            return Code(f"exact.quotient({name}, max({by}, 1))", f"({name}_count == 0)")
        return Code(name, f"({name}_count == 0)")

    def type(self) -> Type:
        """What the value has without conversion."""
        if self._name == "count" or (self._name == "sum" and not self._exact):
            return Type(Kind.BIGINT)
        return Type(Kind.DOUBLE) if self._exact else self._types[0]
