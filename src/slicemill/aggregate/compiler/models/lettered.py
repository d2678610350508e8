"""Source of cores in letter form.

Each letter maps an array to an array (C4-C9).
"""

from __future__ import annotations

from slicemill.aggregate.compiler.models.expressions import Formulas, Pair
from slicemill.aggregate.compiler.models.recomputed import RecomputedCore
from slicemill.model.flow import Flow, FlowInput, FlowStep, flow
from slicemill.model.graphs.graph import Op
from slicemill.model.operators import ACCUMULATORS, SEARCHES
from slicemill.model.parse import parse
from slicemill.model.terms import Expr, Parameter

_ORDERED = {
    "reverse": "{0}[::-1].copy()",
    "sort": "np.sort({0})",
    "rotate": "np.concatenate(({0}[1:], {0}[:1]))",
}


class LetteredCore(RecomputedCore):
    """Core in letter form.

    It has no value if a function has none, or if F takes more elements than there are.
    """

    def value(self) -> Pair:
        out, pool = self.place.out, self.place.name(self._pool)
        name, rows = out.fresh("letters"), f"{self.place.record}.{pool}_rows"
        self._missing = f"{name}_missing"
        out.line(f"{self._missing} = False")
        out.line(f"{name} = np.empty({rows})")
        with out.block(f"for q in range({rows}):"):
            high, _ = self._image_of(self.core.transform, f"{self.place.row(pool, 'q')}.x0")
            out.line(f"{name}[q] = {high}")
        found = self._written(flow(self.core.aggregate), name)
        out.line(f"{name}_value = {found}[0] if len({found}) > 0 and not {self._missing} else np.nan")
        return f"{name}_value", "0.0"

    def _image_of(self, function: Expr, x: str) -> Pair:
        element = Parameter(self.core.columns[0])
        return Formulas(self.place.out, {element: (x, "0.0"), Parameter("x"): (x, "0.0")}).pair(function)

    def _written(self, of: Flow, window: str) -> str:
        """Write a letter and its inputs.

        Return the name of the resulting array.
        """
        if isinstance(of, FlowInput):
            return window
        given = [self._written(inner, window) for inner in of.inputs]
        out, first = self.place.out, given[0]
        name = out.fresh("vector")
        word, _, argument = of.text.partition(" ")
        match of.op:
            case Op.M:
                out.line(f"{name} = np.concatenate(({first}, {given[1]}))")
            case Op.P:
                out.line(f"{name} = {_ORDERED[of.text].format(first)}")
            case Op.T:
                self._transformed(of, first, name)
            case Op.F if word != "where":
                out.line(f"{self._missing} = {self._missing} or len({first}) < {argument}")
                part = f":{argument}" if word == "oldest" else f"{argument}:"
                out.line(f"{name} = {first}[{part}].copy()")
            case Op.AC:
                known = next(key for key, found in ACCUMULATORS.items() if found.symbol == of.text)
                self._folded(known, first, name, f"np.full(1, {name}_h)")
            case Op.A if of.text in SEARCHES:
                self._folded(of.text, first, name, f"np.full(min(len({first}), 1), {name}_h)")
            case _:  # A or F by a condition
                self._chosen(parse(argument), first, name, only_first=word == "first")
        return name

    def _transformed(self, of: FlowStep, first: str, name: str) -> None:
        out, last = self.place.out, len(of.functions) - 1
        out.line(f"{name} = np.empty(len({first}))")
        with out.block(f"for q in range(len({first})):"):
            for place, function in enumerate(of.functions):
                test = f"q == {place}" if place < last else f"q >= {place}"
                with out.block(f"if {test}:"):
                    high, _ = self._image_of(function, f"{first}[q]")
                    out.line(f"{name}[q] = {high}")
            out.line(f"{self._missing} = {self._missing} or not abs({name}[q]) < np.inf")

    def _chosen(self, condition: Expr, first: str, name: str, *, only_first: bool) -> None:
        out = self.place.out
        out.line(f"{name} = np.empty(len({first}))")
        out.line(f"{name}_count = 0")
        with out.block(f"for q in range(len({first})):"):
            truth, _ = self._image_of(condition, f"{first}[q]")
            only = f" and {name}_count == 0" if only_first else ""
            with out.block(f"if {truth} == {truth} and {truth} != 0.0{only}:"):
                out.line(f"{name}[{name}_count] = {first}[q]")
                out.line(f"{name}_count += 1")
        out.line(f"{name} = {name}[:{name}_count].copy()")

    def _folded(self, aggregate: str, first: str, name: str, given: str) -> None:
        """Write Ac or A over an array.

        The result has at most one element.
        """
        high, low = self.folded(aggregate, f"len({first})", lambda: (f"{first}[q]", "0.0"))
        self.place.out.line(f"{name}_h = {high} + {low}")
        self.place.out.line(f"{name} = {given}")
