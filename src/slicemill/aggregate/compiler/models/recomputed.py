"""Source of cores that are recomputed from stored elements per result."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from slicemill.aggregate.compiler.layout import RecordColumns
from slicemill.aggregate.compiler.models.accumulators import AccumulatorCode, AccumulatorPlace, drop_first
from slicemill.aggregate.compiler.models.expressions import Formulas, Pair
from slicemill.esl.types.schema import BIGINT, DOUBLE
from slicemill.model.core import Core
from slicemill.model.terms import AGE, DIMENSION, FROM_NEWEST, POSITION, Expr, Parameter, Symbol, walk

_BEGIN = {"sum": "0.0", "prod": "1.0", "xor": "0.0", "gcd": "0.0", "all": "1.0", "any": "0.0"}
_WHOLE = ("xor", "gcd")  # of 64-bit integers
_SORTING = ("median", "quantile", "topk")


class RecomputedCore(AccumulatorCode):
    """Core that is recomputed by a loop over its elements.

    Set `names` to the window values that the core needs, before its loop is written.
    """

    _pool = "elements"

    def __init__(self, core: Core, place: AccumulatorPlace) -> None:
        super().__init__(core, place)
        self.names: Mapping[Expr, Pair] = {}
        self._aged = AGE in walk(core.argument)

    def pools(self) -> dict[str, RecordColumns]:
        types = {f"x{number}": DOUBLE for number in range(len(self.core.columns))}
        types |= {"at": BIGINT} if self._aged or not types else {}
        return {self.place.name(self._pool): RecordColumns(types)}

    def keep(self, columns: Mapping[Expr, Pair], at: str) -> None:
        """Write the storage of an arriving element with these columns."""
        place, out = self.place, self.place.out
        pool = place.name(self._pool)
        place.make_room(pool)
        rows = f"{place.record}.{pool}_rows"
        for number, column in enumerate(self.core.columns):
            out.line(f"{place.row(pool, rows)}.x{number} = {columns[Parameter(column)][0]}")
        if self._aged:
            out.line(f"{place.row(pool, rows)}.at = {at}")
        out.line(f"{rows} += 1")

    def came(self, image: Pair) -> None:
        """Write nothing.

        The image depends on other elements, so `keep` stores the element.
        """

    def left(self, image: Pair) -> None:
        del image
        drop_first(self.place, self.place.name(self._pool))

    def value(self) -> Pair:
        pool = self.place.name(self._pool)
        rows = f"{self.place.record}.{pool}_rows"
        h, low = self.folded(self.core.aggregate, rows, lambda: self._image(pool, rows))
        for scalar in self.core.scalars:
            known = self.names[Symbol(scalar)][0]
            with self.place.out.block(f"if {known} != {known}:"):
                self.place.out.line(f"{h} = np.nan")
        return h, low

    def folded(self, aggregate: str, rows: str, image: Callable[[], Pair]) -> Pair:
        """Write an aggregate's loop over `rows` values.

        `image` writes the value with index q.
        """
        out = self.place.out
        name = out.fresh("again")
        h, low = f"{name}h", f"{name}l"
        out.line(f"{h}, {low} = {_BEGIN.get(aggregate, 'np.nan')}, 0.0")
        if aggregate in ("argmax", "argmin"):
            out.line(f"{name}best = np.nan")
        if aggregate in _WHOLE:
            out.line(f"{name}whole = np.int64(0)")
        if aggregate in _SORTING:
            out.line(f"{name} = np.empty({rows})")
        with out.block(f"for q in range({rows}):"):
            self._accumulate(aggregate, name, image(), rows)
        if aggregate in _SORTING:
            self._ranked(aggregate, name, rows)
        if aggregate in _WHOLE:
            out.line(f"{h} += float({name}whole)")
        return h, low

    def _image(self, pool: str, rows: str) -> Pair:
        place, out = self.place, self.place.out
        row = place.row(pool, "q")
        names: dict[Expr, Pair] = {
            Parameter(column): (f"{row}.x{number}", "0.0") for number, column in enumerate(self.core.columns)
        }
        names |= {
            POSITION: ("float(q + 1)", "0.0"),
            FROM_NEWEST: (f"float({rows} - 1 - q)", "0.0"),
            DIMENSION: (f"float({rows})", "0.0"),
        }
        if self._aged:
            out.line(f"age = ({place.record}.now - {row}.at) * 1e-6")
            names[AGE] = "age", "0.0"
        return Formulas(out, {**self.names, **names}).pair(self.core.argument)

    def _accumulate(self, aggregate: str, name: str, image: Pair, rows: str) -> None:
        out = self.place.out
        h, low = f"{name}h", f"{name}l"
        x, rest = image
        match aggregate:
            case "sum":
                out.line(f"{h}, {low} = dd.add({h}, {low}, {x}, {rest})")
            case "prod":
                out.line(f"{h}, {low} = dd.multiply({h}, {low}, {x}, {rest})")
            case "all":
                out.line(f"{h} *= (1.0 if {x} != 0.0 else 0.0) + 0.0 * {x}")
            case "any":
                out.line(f"{h} = max({h}, 1.0 if {x} != 0.0 else 0.0) + 0.0 * {x}")
            case "xor" | "gcd" as which:
                with out.block(f"if abs({x}) < 9.2e18:"):
                    whole, new = f"{name}whole", f"np.int64({x})"
                    changed = f"{whole} ^ {new}" if which == "xor" else f"dd.greatest_common({whole}, {new})"
                    out.line(f"{whole} = {changed}")
                with out.block("else:"):
                    out.line(f"{h} = np.nan")
            case "max" | "min" as which:
                better = ">" if which == "max" else "<"
                with out.block(f"if q == 0 or {x} {better} {h} or {x} != {x}:"):
                    out.line(f"{h}, {low} = {x}, {rest}")
            case "argmax" | "argmin" as which:
                with out.block(f"if q == 0 or {x} {'>' if which == 'argmax' else '<'} {name}best:"):
                    out.line(f"{h}, {name}best = float(q + 1), {x}")
            case "first":
                with out.block("if q == 0:"):
                    out.line(f"{h}, {low} = {x}, {rest}")
            case "last":
                out.line(f"{h}, {low} = {x}, {rest}")
            case "lag":
                with out.block(f"if q == {rows} - {int(self.core.options[0]) + 1}:"):
                    out.line(f"{h}, {low} = {x}, {rest}")
            case _:
                out.line(f"{name}[q] = {x}")

    def _ranked(self, aggregate: str, name: str, rows: str) -> None:
        out, h, low = self.place.out, f"{name}h", f"{name}l"
        out.line(f"{name}.sort()")
        if aggregate == "topk":
            wanted = int(self.core.options[0])
            with out.block(f"if {wanted} >= 1 and {rows} >= {wanted}:"):
                out.line(f"{h} = {name}[{rows} - {wanted}]")
            return
        share = self.core.options[0] if self.core.options else None
        above, below = (1, 2) if share is None else (share.numerator, share.denominator)
        with out.block(f"if {rows} > 0:"):
            out.line(f"place = ({rows} - 1) * {above}")
            out.line(f"{low} = {name}[place // {below}]")
            out.line(f"{h} = {name}[min(place // {below} + 1, {rows} - 1)] - {low}")
            out.line(f"{h}, {low} = {low} + {h} * ((place % {below}) / {below}), 0.0")
