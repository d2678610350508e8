"""Cores: parts of a model that read the window (Ac·T, A·T)."""

from __future__ import annotations

from dataclasses import dataclass, field
from fractions import Fraction

from slicemill.model.flow import in_letters
from slicemill.model.operators import ACCUMULATORS, SEARCHES, Accumulation, Search
from slicemill.model.terms import ONE, Apply, Expr, Parameter, WindowAggregation, shown, walk
from slicemill.model.weights import Weight


@dataclass(frozen=True, slots=True)
class Core:
    """An aggregate over the window, `aggregate(weight·transform)`.

    `blocked` is the reason why the core cannot be updated from slide to slide. The transform of a blocked
    core includes positions and the names in `scalars`, which are values of the whole window.
    """

    aggregate: str
    transform: Expr
    options: tuple[Fraction, ...] = ()
    weight_expr: Expr = ONE
    weight: Weight | None = field(default=None, compare=False)
    blocked: str = ""
    scalars: tuple[str, ...] = ()

    @property
    def accumulator(self) -> Accumulation | None:
        """Return the accumulator, or None if the core is a search."""
        return ACCUMULATORS.get(self.aggregate)

    @property
    def search(self) -> Search | None:
        return SEARCHES.get(self.aggregate)

    @property
    def argument(self) -> Expr:
        """Return the aggregated expression, including weights."""
        return self.transform if self.weight_expr == ONE else Apply("*", (self.weight_expr, self.transform))

    @property
    def columns(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(p.name for p in walk(self.transform) if isinstance(p, Parameter)))

    @property
    def counts(self) -> bool:
        """Return True if the core is n."""
        return self.aggregate == "sum" and self.transform == ONE and self.weight is None and not self.blocked

    @property
    def symbol(self) -> str:
        """Return the core in the paper's notation: Ac[+]·T[x^2], A[max]·T[x]."""
        if in_letters(self.aggregate):
            return str(self)
        accumulator = self.accumulator
        head = f"A[{self.aggregate}]" if accumulator is None else f"Ac[{accumulator.symbol}]"
        return f"{head}·T[{shown(self.argument)}]"

    def __str__(self) -> str:
        return shown(WindowAggregation(self.aggregate, self.argument, self.options))
