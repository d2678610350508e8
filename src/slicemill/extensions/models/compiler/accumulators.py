"""Generated accumulators of model cores, one class per method (C14, C17, C24).

`came` writes the code for an arriving element, `left` for an expiring one. Additions and removals accumulate
rounding errors in sums and products. Such an accumulator is rebuilt from the window's elements after as many
removals as there are elements (the rebase of C24, at n slides). It is rebuilt earlier if cancellation has
lost too many digits, which happens after a large number has expired. To detect the loss, a sum also
accumulates the absolute values of its elements, and the maximum of that total.

All fields are initially 0.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from slicemill.aggregates.udf.compiler.layout import NoCompiledForm, RecordColumns, Writer
from slicemill.extensions.models.compiler.expressions import Formulas, Pair
from slicemill.extensions.models.cores import Core
from slicemill.extensions.models.flow import Flow, FlowInput, FlowStep, flow
from slicemill.extensions.models.graph import Op
from slicemill.extensions.models.operators import ACCUMULATORS, SEARCHES
from slicemill.extensions.models.parse import parse
from slicemill.extensions.models.terms import (
    AGE,
    DIMENSION,
    FROM_NEWEST,
    POSITION,
    Expr,
    Parameter,
    Symbol,
    walk,
)
from slicemill.types import BIGINT, DOUBLE

# A sum is rebuilt when its absolute total is less than this share of its maximum; 64 of 104 bits then remain.
_LEFT_OF_SUM = 2.0**-40


@dataclass(frozen=True, slots=True)
class AccumulatorTarget:
    """Names that the code of an accumulator uses: writer, record, number and pools.

    `count` is the field with the number of elements.
    """

    out: Writer
    record: str
    number: int
    count: str
    make_room: Callable[[str], None]

    def field(self, name: str) -> str:
        return f"{self.record}.{self.name(name)}"

    def name(self, name: str) -> str:
        return f"{name}{self.number}"

    def row(self, pool: str, index: str) -> str:
        """Return a row of a pool, counted from its first remaining row."""
        return f"{self.record}_{pool}[{self.record}.{pool}_at + {index}]"


class AccumulatorCode(ABC):
    """Code generator for the accumulator of one core.

    An accumulator with rounding errors (`worn`) is rebuilt occasionally. The element counter is already
    incremented when `came` runs, and not yet decremented when `left` runs.
    """

    worn = False

    def __init__(self, core: Core, place: AccumulatorTarget) -> None:
        self.core, self.place = core, place

    @property
    def again(self) -> str:
        """Return the variable that is true while a worn accumulator is rebuilt."""
        return f"{self.place.record}_again{self.place.number}"

    def is_spent(self) -> str:
        """Return the source code of a test for lost digits, or an empty text."""
        return ""

    def fields(self) -> dict[str, str]:
        """Return the record fields with their types."""
        return {}

    def pools(self) -> dict[str, RecordColumns]:
        """Return the pools that store elements."""
        return {}

    @abstractmethod
    def came(self, image: Pair) -> None:
        """Write the code for an arriving element. `image` is its value under the core's transform."""

    @abstractmethod
    def left(self, image: Pair) -> None: ...

    def write_aging(self) -> None:  # noqa: B027
        """Write the passing of `passed` seconds."""

    @abstractmethod
    def value(self) -> Pair: ...


class ElementCount(AccumulatorCode):
    """Number of elements n. The loop counts the elements already."""

    def came(self, image: Pair) -> None:
        pass

    def left(self, image: Pair) -> None:
        pass

    def value(self) -> Pair:
        return f"float({self.place.count})", "0.0"


class PairSum(AccumulatorCode):
    """Sum as a pair of doubles.

    With `weighed`, elements expire, so that the sum of absolute values is accumulated too.
    """

    worn = True

    def __init__(self, core: Core, place: AccumulatorTarget, weighed: bool) -> None:
        super().__init__(core, place)
        self._weighed = weighed

    def fields(self) -> dict[str, str]:
        names = ("h", "l", "worth", "most") if self._weighed else ("h", "l")
        return {self.place.name(name): "f8" for name in names}

    def _changed(self, function: str, image: Pair) -> None:
        high, low = self.value()
        self.place.out.line(f"{high}, {low} = dd.{function}({high}, {low}, {image[0]}, {image[1]})")

    def came(self, image: Pair) -> None:
        self._changed("add", image)
        if self._weighed:
            worth, most = self.place.field("worth"), self.place.field("most")
            self.place.out.line(f"{worth} += abs({image[0]})")
            self.place.out.line(f"{most} = max({most}, {worth})")

    def left(self, image: Pair) -> None:
        self._changed("subtract", image)
        if self._weighed:
            self.place.out.line(f"{self.place.field('worth')} -= abs({image[0]})")

    def is_spent(self) -> str:
        if not self._weighed:
            return ""
        worth, most = self.place.field("worth"), self.place.field("most")
        return f"not {_LEFT_OF_SUM!r} * {most} <= {worth} < np.inf"

    def value(self) -> Pair:
        return self.place.field("h"), self.place.field("l")


class ScaledProduct(AccumulatorCode):
    """Product of nonzero elements, with a separate exponent, and a zero count.

    The exponent prevents overflow."""

    worn = True

    def fields(self) -> dict[str, str]:
        parts = {"h": "f8", "l": "f8", "e": "i8", "zeros": "i8"}
        return {self.place.name(part): kind for part, kind in parts.items()}

    @property
    def _parts(self) -> str:
        return ", ".join(self.place.field(part) for part in "hle")

    def came(self, image: Pair) -> None:
        self._changed(image, "+", inverse=False)

    def left(self, image: Pair) -> None:
        self._changed(image, "-", inverse=True)

    def _changed(self, image: Pair, sign: str, inverse: bool) -> None:
        out, parts = self.place.out, self._parts
        with out.block(f"if {image[0]} == 0.0:"):
            out.line(f"{self.place.field('zeros')} {sign}= 1")
        with out.block("else:"):
            out.line(f"{parts} = dd.scaled_product({parts}, {image[0]}, {image[1]}, {inverse})")

    def value(self) -> Pair:
        name = self.place.out.fresh("product")
        self.place.out.line(f"{name}h, {name}l = dd.unscaled({self._parts})")
        with self.place.out.block(f"if {self.place.field('zeros')} > 0:"):
            self.place.out.line(f"{name}h, {name}l = 0.0, 0.0")
        return f"{name}h", f"{name}l"


class TruthCount(AccumulatorCode):
    """all, any and xor: integers without rounding errors."""

    def fields(self) -> dict[str, str]:
        return {self.place.name("kept"): "i8"}

    def came(self, image: Pair) -> None:
        self._change(image, "+=")

    def left(self, image: Pair) -> None:
        self._change(image, "-=")

    def _change(self, image: Pair, operator: str) -> None:
        kept, out = self.place.field("kept"), self.place.out
        if self.core.aggregate == "xor":
            out.line(f"{kept} ^= np.int64({image[0]})")
            return
        with out.block(f"if {image[0]} {'==' if self.core.aggregate == 'all' else '!='} 0.0:"):
            out.line(f"{kept} {operator} 1")

    def value(self) -> Pair:
        kept = self.place.field("kept")
        texts = {
            "xor": f"float({kept})",
            "all": f"(1.0 if {kept} == 0 else 0.0)",
            "any": f"(1.0 if {kept} > 0 else 0.0)",
        }
        return texts[self.core.aggregate], "0.0"


class Candidates(AccumulatorCode):
    """max, min, argmax and argmin: a monotonic deque of candidate elements."""

    _pool = "deque"

    def fields(self) -> dict[str, str]:
        return {self.place.name("arrived"): "i8", self.place.name("gone"): "i8"}

    def pools(self) -> dict[str, RecordColumns]:
        return {self.place.name(self._pool): RecordColumns({"value": DOUBLE, "number": BIGINT})}

    def came(self, image: Pair) -> None:
        place, out = self.place, self.place.out
        pool = place.name(self._pool)
        rows = f"{place.record}.{pool}_rows"
        outdone = {"max": "<=", "min": ">=", "argmax": "<", "argmin": ">"}[self.core.aggregate]
        last = place.row(pool, f"{rows} - 1")
        with out.block(f"while {rows} > 0 and {last}.value {outdone} {image[0]}:"):
            out.line(f"{rows} -= 1")
        place.make_room(pool)
        new = place.row(pool, rows)
        out.line(f"{new}.value = {image[0]}")
        out.line(f"{new}.number = {place.field('arrived')}")
        out.line(f"{rows} += 1")
        out.line(f"{place.field('arrived')} += 1")

    def left(self, image: Pair) -> None:
        del image
        place, out = self.place, self.place.out
        pool = place.name(self._pool)
        out.line(f"{place.field('gone')} += 1")
        with out.block(f"if {place.row(pool, '0')}.number < {place.field('gone')}:"):
            drop_first(place, pool)

    def value(self) -> Pair:
        place = self.place
        pool = place.name(self._pool)
        first = place.row(pool, "0")
        found = f"{first}.value"
        if self.core.aggregate in ("argmax", "argmin"):
            found = f"float({first}.number - {place.field('gone')} + 1)"
        return _if_any(place, pool, found)


class ElementQueue(AccumulatorCode):
    """first, last and lag: a queue of the elements."""

    _pool = "queue"

    def pools(self) -> dict[str, RecordColumns]:
        return {self.place.name(self._pool): RecordColumns({"value": DOUBLE})}

    def came(self, image: Pair) -> None:
        _append(self.place, self.place.name(self._pool), image[0])

    def left(self, image: Pair) -> None:
        del image
        drop_first(self.place, self.place.name(self._pool))

    def value(self) -> Pair:
        pool = self.place.name(self._pool)
        if self.core.aggregate == "first":
            return _if_any(self.place, pool, f"{self.place.row(pool, '0')}.value")
        back = int(self.core.options[0]) if self.core.options else 0
        index = f"{self.place.record}.{pool}_rows - {back + 1}"
        return _if_any(self.place, pool, f"{self.place.row(pool, index)}.value", least=back)


class RankHeaps(AccumulatorCode):
    """median, quantile and topk: heaps below and above the rank.

    The lower heap includes the element at the rank.
    """

    _pools = ("below", "above")

    def fields(self) -> dict[str, str]:
        names = ("arrived", "gone", "live_below", "live_above")
        return {self.place.name(name): "i8" for name in names}

    def pools(self) -> dict[str, RecordColumns]:
        return {
            self.place.name(pool): RecordColumns({"value": DOUBLE, "number": BIGINT}) for pool in self._pools
        }

    def _share(self) -> tuple[int, int]:
        share = self.core.options[0] if self.core.options else None
        return (1, 2) if share is None else (share.numerator, share.denominator)

    def _target(self, count: str) -> str:
        """Return the size of the lower heap for `count` elements."""
        if self.core.aggregate == "topk":
            return f"max({count} - {int(self.core.options[0]) - 1}, 0)"
        above, below = self._share()
        return f"(({count} - 1) * {above} // {below} + 1 if {count} > 0 else 0)"

    def _call(self, function: str, arguments: str) -> None:
        place = self.place
        given = []
        for pool in map(place.name, self._pools):
            live = place.field(f"live_{pool.removesuffix(str(place.number))}")
            given += [
                f"{place.record}_{pool}",
                *(f"{place.record}.{pool}_{part}" for part in ("at", "rows")),
                live,
            ]
        kept = [given[2], given[3], given[6], given[7]]
        place.out.line(f"{', '.join(kept)} = heaps.{function}({', '.join(given)}, {arguments})")

    def _make_room(self) -> None:
        for pool in self._pools:
            self.place.make_room(self.place.name(pool))

    def came(self, image: Pair) -> None:
        self._make_room()
        arrived, gone = self.place.field("arrived"), self.place.field("gone")
        target = self._target(self.place.count)
        # Numbers start at 1, so that their sign identifies the heap.
        self.place.out.line(f"{arrived} += 1")
        self._call("came", f"{image[0]}, {arrived}, {gone} + 1, {target}")

    def left(self, image: Pair) -> None:
        self._make_room()
        gone, target = self.place.field("gone"), self._target(f"({self.place.count} - 1)")
        self._call("left", f"{image[0]}, {gone} + 1, {target}")
        self.place.out.line(f"{gone} += 1")

    def value(self) -> Pair:
        place, out = self.place, self.place.out
        below, above = (f"{place.row(place.name(pool), '0')}.value" for pool in self._pools)
        name = out.fresh("found")
        out.line(f"{name}h, {name}l = np.nan, 0.0")
        with out.block(f"if {place.field('live_below')} > 0:"):
            out.line(f"{name}h = -{below}")
            if self.core.aggregate != "topk":
                top, bottom = self._share()
                out.line(f"between = ({place.count} - 1) * {top} % {bottom}")
                with out.block("if between > 0:"):
                    out.line(f"{name}h, {name}l = dd.add({above}, 0.0, {below}, 0.0)")
                    out.line(f"{name}h, {name}l = dd.multiply({name}h, {name}l, float(between), 0.0)")
                    out.line(f"{name}h, {name}l = dd.divide({name}h, {name}l, {bottom}.0, 0.0)")
                    out.line(f"{name}h, {name}l = dd.subtract({name}h, {name}l, {below}, 0.0)")
        return f"{name}h", f"{name}l"


class CombiningStacks(AccumulatorCode):
    """Two-stack queue for an operator without an inverse, here gcd.

    Each older element stores the aggregate from itself to the border between older and newer elements. The
    newer elements have one aggregate. When no older elements are left, the newer elements become the older
    ones.
    """

    _pool = "stack"

    def fields(self) -> dict[str, str]:
        return {self.place.name("front"): "i8", self.place.name("back"): "i8"}

    def pools(self) -> dict[str, RecordColumns]:
        return {self.place.name(self._pool): RecordColumns({"value": BIGINT})}

    def came(self, image: Pair) -> None:
        _append(self.place, self.place.name(self._pool), f"np.int64({image[0]})")
        back = self.place.field("back")
        self.place.out.line(f"{back} = dd.greatest_common({back}, np.int64({image[0]}))")

    def left(self, image: Pair) -> None:
        del image
        place, out = self.place, self.place.out
        pool = place.name(self._pool)
        rows, front = f"{place.record}.{pool}_rows", place.field("front")
        with out.block(f"if {front} == 0:"):
            with out.block(f"for q in range({rows} - 2, -1, -1):"):
                older, newer = f"{place.row(pool, 'q')}.value", f"{place.row(pool, 'q + 1')}.value"
                out.line(f"{older} = dd.greatest_common({older}, {newer})")
            out.line(f"{front}, {place.field('back')} = {rows}, 0")
        drop_first(place, pool)
        out.line(f"{front} -= 1")

    def value(self) -> Pair:
        place, out = self.place, self.place.out
        name = out.fresh("common")
        out.line(f"{name} = {place.field('back')}")
        with out.block(f"if {place.field('front')} > 0:"):
            older = f"{place.row(place.name(self._pool), '0')}.value"
            out.line(f"{name} = dd.greatest_common({name}, {older})")
        return f"float(abs({name}))", "0.0"


def _append(place: AccumulatorTarget, pool: str, value: str) -> None:
    place.make_room(pool)
    rows = f"{place.record}.{pool}_rows"
    place.out.line(f"{place.row(pool, rows)}.value = {value}")
    place.out.line(f"{rows} += 1")


def drop_first(place: AccumulatorTarget, pool: str) -> None:
    place.out.line(f"{place.record}.{pool}_at += 1")
    place.out.line(f"{place.record}.{pool}_rows -= 1")


def _if_any(place: AccumulatorTarget, pool: str, found: str, least: int = 0) -> Pair:
    """Write a value, or NaN if there are not more than `least` elements."""
    name = place.out.fresh("found")
    place.out.line(f"{name} = np.nan")
    with place.out.block(f"if {place.record}.{pool}_rows > {least}:"):
        place.out.line(f"{name} = {found}")
    return name, "0.0"


_SIMPLE: dict[str, type[AccumulatorCode]] = {
    "prod": ScaledProduct,
    "xor": TruthCount,
    "all": TruthCount,
    "any": TruthCount,
    "max": Candidates,
    "min": Candidates,
    "argmax": Candidates,
    "argmin": Candidates,
    "first": ElementQueue,
    "last": ElementQueue,
    "lag": ElementQueue,
    "median": RankHeaps,
    "quantile": RankHeaps,
    "topk": RankHeaps,
    "gcd": CombiningStacks,
}


def simple_accumulator(core: Core, place: AccumulatorTarget, weighed: bool) -> AccumulatorCode:
    if core.counts:
        return ElementCount(core, place)
    if core.aggregate == "sum":
        return PairSum(core, place, weighed)
    if core.aggregate not in _SIMPLE:
        raise NoCompiledForm(f"{core} has no form in machine code")
    return _SIMPLE[core.aggregate](core, place)


# Code of cores that are recomputed from stored elements for each result.


_BEGIN = {"sum": "0.0", "prod": "1.0", "xor": "0.0", "gcd": "0.0", "all": "1.0", "any": "0.0"}
_WHOLE = ("xor", "gcd")  # of 64-bit integers
_SORTING = ("median", "quantile", "topk")


class RecomputedCore(AccumulatorCode):
    """Core that is recomputed by a loop over its elements.

    Set `names` to the window values that the core needs, before its loop is written.
    """

    _pool = "elements"

    def __init__(self, core: Core, place: AccumulatorTarget) -> None:
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
        """Write nothing, because `keep` stores the element.

        The image depends on other elements and cannot be computed on arrival.
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


# Code of cores in the paper's letters. Each letter maps an array to an array (C4-C9).


_ORDERED = {
    "reverse": "{0}[::-1].copy()",
    "sort": "np.sort({0})",
    "rotate": "np.concatenate(({0}[1:], {0}[:1]))",
}


class LetteredCore(RecomputedCore):
    """Core in the paper's letters.

    The core has no value if one of its functions has none, or if F selects more elements than exist.
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
                self._write_transform(of, first, name)
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

    def _write_transform(self, of: FlowStep, first: str, name: str) -> None:
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
