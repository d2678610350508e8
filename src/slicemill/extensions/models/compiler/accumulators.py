"""Code generators for the accumulators of a model, one class per method (C14, C17, C24).

A core statistic (`Core`) is a sum, count or extreme over the window from which a model's result is computed.
An accumulator is the stored state of one core statistic in one partition. An element is a row of the window.
A pool is an array with rows of a table for all partitions. Methods named `write_…`, and other methods that
return names of values, append lines of Python code to a `Writer`. This code runs in the compiled loop over
rows.

`add_element` writes the code for an arriving element, `remove_element` for an expiring one. Additions and
removals accumulate rounding errors in sums and products. Such an accumulator is rebuilt from the window's
elements after as many removals as there are elements (the rebase of C24, at n slides). It is rebuilt earlier
if cancellation has lost too many digits, which happens after a large number has expired. To detect the loss,
a sum also accumulates the absolute values of its elements, and the maximum of that total.

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

# A sum is rebuilt when the total of its absolute values falls below this fraction of its former maximum.
# About 64 of the 104 bits of the sum are then still correct.
_LEFT_OF_SUM = 2.0**-40


@dataclass(frozen=True, slots=True)
class AccumulatorTarget:
    """Names in the generated code of one accumulator, and the writer to which code is appended.

    `record` is the variable of the partition's record, and `number` the suffix of the accumulator's fields.
    `count` is the expression for the number of elements. `make_room` writes code that enlarges a pool.
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
        """Return code for a row of a pool (an array of table rows). Index 0 is the oldest row."""
        return f"{self.record}_{pool}[{self.record}.{pool}_at + {index}]"


class AccumulatorCode(ABC):
    """Code generator for the accumulator of one core statistic: a sum, count or extreme over a window.

    An accumulator with rounding errors (`inexact`) is rebuilt occasionally. `image` is the element's value
    under the transform of the core statistic, such as x^2. The element counter is already incremented when
    the code of `add_element` runs, and not yet decremented when the code of `remove_element` runs.
    """

    inexact = False

    def __init__(self, core: Core, target: AccumulatorTarget) -> None:
        self.core, self.target = core, target

    @property
    def rebuilding(self) -> str:
        """Return the name of the variable that is true while this accumulator is rebuilt."""
        return f"{self.target.record}_again{self.target.number}"

    def rebuild_test(self) -> str:
        """Return a code expression that is true if the accumulator has lost too many digits, or no text."""
        return ""

    def fields(self) -> dict[str, str]:
        """Return the names of this accumulator's record fields, with their types."""
        return {}

    def pools(self) -> dict[str, RecordColumns]:
        """Return the pools (arrays of table rows) in which this accumulator stores elements."""
        return {}

    @abstractmethod
    def add_element(self, image: Pair) -> None:
        """Write code that adds an arriving element, whose transformed value is `image`."""

    @abstractmethod
    def remove_element(self, image: Pair) -> None:
        """Write code that removes the expiring oldest element, whose transformed value is `image`."""

    def write_aging(self) -> None:  # noqa: B027
        """Write code that increases the age of all elements by `passed` seconds."""

    @abstractmethod
    def value(self) -> Pair:
        """Write code that computes the value of the core statistic. Return the names of its two doubles."""


class ElementCount(AccumulatorCode):
    """Accumulator for the number of elements n. It has no state, because the loop counts elements."""

    def add_element(self, image: Pair) -> None:
        pass

    def remove_element(self, image: Pair) -> None:
        pass

    def value(self) -> Pair:
        return f"float({self.target.count})", "0.0"


class PairSum(AccumulatorCode):
    """Accumulator for a sum, stored as a pair of doubles.

    With `weighed`, elements expire. The sum of absolute values is then accumulated too, to detect lost
    digits.
    """

    inexact = True

    def __init__(self, core: Core, target: AccumulatorTarget, weighed: bool) -> None:
        super().__init__(core, target)
        self._weighed = weighed

    def fields(self) -> dict[str, str]:
        names = ("h", "l", "worth", "most") if self._weighed else ("h", "l")
        return {self.target.name(name): "f8" for name in names}

    def _write_change(self, function: str, image: Pair) -> None:
        high, low = self.value()
        self.target.out.line(f"{high}, {low} = dd.{function}({high}, {low}, {image[0]}, {image[1]})")

    def add_element(self, image: Pair) -> None:
        self._write_change("add", image)
        if self._weighed:
            worth, most = self.target.field("worth"), self.target.field("most")
            self.target.out.line(f"{worth} += abs({image[0]})")
            self.target.out.line(f"{most} = max({most}, {worth})")

    def remove_element(self, image: Pair) -> None:
        self._write_change("subtract", image)
        if self._weighed:
            self.target.out.line(f"{self.target.field('worth')} -= abs({image[0]})")

    def rebuild_test(self) -> str:
        if not self._weighed:
            return ""
        worth, most = self.target.field("worth"), self.target.field("most")
        return f"not {_LEFT_OF_SUM!r} * {most} <= {worth} < np.inf"

    def value(self) -> Pair:
        return self.target.field("h"), self.target.field("l")


class ScaledProduct(AccumulatorCode):
    """Accumulator for a product: the product of the nonzero elements, and the number of zeros.

    A separate exponent prevents overflow.
    """

    inexact = True

    def fields(self) -> dict[str, str]:
        parts = {"h": "f8", "l": "f8", "e": "i8", "zeros": "i8"}
        return {self.target.name(part): kind for part, kind in parts.items()}

    @property
    def _parts(self) -> str:
        return ", ".join(self.target.field(part) for part in "hle")

    def add_element(self, image: Pair) -> None:
        self._write_change(image, "+", inverse=False)

    def remove_element(self, image: Pair) -> None:
        self._write_change(image, "-", inverse=True)

    def _write_change(self, image: Pair, sign: str, inverse: bool) -> None:
        out, parts = self.target.out, self._parts
        with out.block(f"if {image[0]} == 0.0:"):
            out.line(f"{self.target.field('zeros')} {sign}= 1")
        with out.block("else:"):
            out.line(f"{parts} = dd.scaled_product({parts}, {image[0]}, {image[1]}, {inverse})")

    def value(self) -> Pair:
        name = self.target.out.fresh("product")
        self.target.out.line(f"{name}h, {name}l = dd.unscaled({self._parts})")
        with self.target.out.block(f"if {self.target.field('zeros')} > 0:"):
            self.target.out.line(f"{name}h, {name}l = 0.0, 0.0")
        return f"{name}h", f"{name}l"


class TruthCount(AccumulatorCode):
    """Accumulator for all, any and xor: one integer, without rounding errors."""

    def fields(self) -> dict[str, str]:
        return {self.target.name("kept"): "i8"}

    def add_element(self, image: Pair) -> None:
        self._write_change(image, "+=")

    def remove_element(self, image: Pair) -> None:
        self._write_change(image, "-=")

    def _write_change(self, image: Pair, operator: str) -> None:
        counter, out = self.target.field("kept"), self.target.out
        if self.core.aggregate == "xor":
            out.line(f"{counter} ^= np.int64({image[0]})")
            return
        with out.block(f"if {image[0]} {'==' if self.core.aggregate == 'all' else '!='} 0.0:"):
            out.line(f"{counter} {operator} 1")

    def value(self) -> Pair:
        counter = self.target.field("kept")
        texts = {
            "xor": f"float({counter})",
            "all": f"(1.0 if {counter} == 0 else 0.0)",
            "any": f"(1.0 if {counter} > 0 else 0.0)",
        }
        return texts[self.core.aggregate], "0.0"


class Candidates(AccumulatorCode):
    """Accumulator for max, min, argmax and argmin: a monotonic deque of candidate elements."""

    _pool = "deque"

    def fields(self) -> dict[str, str]:
        return {self.target.name("arrived"): "i8", self.target.name("gone"): "i8"}

    def pools(self) -> dict[str, RecordColumns]:
        return {self.target.name(self._pool): RecordColumns({"value": DOUBLE, "number": BIGINT})}

    def add_element(self, image: Pair) -> None:
        target, out = self.target, self.target.out
        pool = target.name(self._pool)
        rows = f"{target.record}.{pool}_rows"
        worse = {"max": "<=", "min": ">=", "argmax": "<", "argmin": ">"}[self.core.aggregate]
        last = target.row(pool, f"{rows} - 1")
        with out.block(f"while {rows} > 0 and {last}.value {worse} {image[0]}:"):
            out.line(f"{rows} -= 1")
        target.make_room(pool)
        new = target.row(pool, rows)
        out.line(f"{new}.value = {image[0]}")
        out.line(f"{new}.number = {target.field('arrived')}")
        out.line(f"{rows} += 1")
        out.line(f"{target.field('arrived')} += 1")

    def remove_element(self, image: Pair) -> None:
        del image
        target, out = self.target, self.target.out
        pool = target.name(self._pool)
        out.line(f"{target.field('gone')} += 1")
        with out.block(f"if {target.row(pool, '0')}.number < {target.field('gone')}:"):
            drop_first(target, pool)

    def value(self) -> Pair:
        target = self.target
        pool = target.name(self._pool)
        first = target.row(pool, "0")
        value = f"{first}.value"
        if self.core.aggregate in ("argmax", "argmin"):
            value = f"float({first}.number - {target.field('gone')} + 1)"
        return _if_any(target, pool, value)


class ElementQueue(AccumulatorCode):
    """Accumulator for first, last and lag: a queue of the elements."""

    _pool = "queue"

    def pools(self) -> dict[str, RecordColumns]:
        return {self.target.name(self._pool): RecordColumns({"value": DOUBLE})}

    def add_element(self, image: Pair) -> None:
        _append(self.target, self.target.name(self._pool), image[0])

    def remove_element(self, image: Pair) -> None:
        del image
        drop_first(self.target, self.target.name(self._pool))

    def value(self) -> Pair:
        pool = self.target.name(self._pool)
        if self.core.aggregate == "first":
            return _if_any(self.target, pool, f"{self.target.row(pool, '0')}.value")
        back = int(self.core.options[0]) if self.core.options else 0
        target = f"{self.target.record}.{pool}_rows - {back + 1}"
        return _if_any(self.target, pool, f"{self.target.row(pool, target)}.value", least=back)


class RankHeaps(AccumulatorCode):
    """Accumulator for median, quantile and topk: one heap below the wanted rank, and one heap above.

    The lower heap includes the element at the wanted rank.
    """

    _pools = ("below", "above")

    def fields(self) -> dict[str, str]:
        names = ("arrived", "gone", "live_below", "live_above")
        return {self.target.name(name): "i8" for name in names}

    def pools(self) -> dict[str, RecordColumns]:
        return {
            self.target.name(pool): RecordColumns({"value": DOUBLE, "number": BIGINT}) for pool in self._pools
        }

    def _share(self) -> tuple[int, int]:
        share = self.core.options[0] if self.core.options else None
        return (1, 2) if share is None else (share.numerator, share.denominator)

    def _target(self, count: str) -> str:
        """Return a code expression for the size of the lower heap if there are `count` elements."""
        if self.core.aggregate == "topk":
            return f"max({count} - {int(self.core.options[0]) - 1}, 0)"
        above, below = self._share()
        return f"(({count} - 1) * {above} // {below} + 1 if {count} > 0 else 0)"

    def _call(self, function: str, arguments: str) -> None:
        target = self.target
        heaps = []
        for pool in map(target.name, self._pools):
            live = target.field(f"live_{pool.removesuffix(str(target.number))}")
            heaps += [
                f"{target.record}_{pool}",
                *(f"{target.record}.{pool}_{part}" for part in ("at", "rows")),
                live,
            ]
        sizes = [heaps[2], heaps[3], heaps[6], heaps[7]]
        target.out.line(f"{', '.join(sizes)} = heaps.{function}({', '.join(heaps)}, {arguments})")

    def _make_room(self) -> None:
        for pool in self._pools:
            self.target.make_room(self.target.name(pool))

    def add_element(self, image: Pair) -> None:
        self._make_room()
        arrived, gone = self.target.field("arrived"), self.target.field("gone")
        target = self._target(self.target.count)
        # The numbers of elements start at 1, because the lower heap stores them negated.
        self.target.out.line(f"{arrived} += 1")
        self._call("insert", f"{image[0]}, {arrived}, {gone} + 1, {target}")

    def remove_element(self, image: Pair) -> None:
        self._make_room()
        gone, target = self.target.field("gone"), self._target(f"({self.target.count} - 1)")
        self._call("remove_oldest", f"{image[0]}, {gone} + 1, {target}")
        self.target.out.line(f"{gone} += 1")

    def value(self) -> Pair:
        target, out = self.target, self.target.out
        below, above = (f"{target.row(target.name(pool), '0')}.value" for pool in self._pools)
        name = out.fresh("found")
        out.line(f"{name}h, {name}l = np.nan, 0.0")
        with out.block(f"if {target.field('live_below')} > 0:"):
            out.line(f"{name}h = -{below}")
            if self.core.aggregate != "topk":
                top, bottom = self._share()
                out.line(f"between = ({target.count} - 1) * {top} % {bottom}")
                with out.block("if between > 0:"):
                    out.line(f"{name}h, {name}l = dd.add({above}, 0.0, {below}, 0.0)")
                    out.line(f"{name}h, {name}l = dd.multiply({name}h, {name}l, float(between), 0.0)")
                    out.line(f"{name}h, {name}l = dd.divide({name}h, {name}l, {bottom}.0, 0.0)")
                    out.line(f"{name}h, {name}l = dd.subtract({name}h, {name}l, {below}, 0.0)")
        return f"{name}h", f"{name}l"


class CombiningStacks(AccumulatorCode):
    """Accumulator for gcd, an operator without an inverse: a two-stack queue.

    Elements are divided into older and newer elements. Each older element stores the aggregate of all older
    elements from itself on. The newer elements have one common aggregate. When all older elements have
    expired, the newer elements become the older elements.
    """

    _pool = "stack"

    def fields(self) -> dict[str, str]:
        return {self.target.name("front"): "i8", self.target.name("back"): "i8"}

    def pools(self) -> dict[str, RecordColumns]:
        return {self.target.name(self._pool): RecordColumns({"value": BIGINT})}

    def add_element(self, image: Pair) -> None:
        _append(self.target, self.target.name(self._pool), f"np.int64({image[0]})")
        back = self.target.field("back")
        self.target.out.line(f"{back} = dd.greatest_common({back}, np.int64({image[0]}))")

    def remove_element(self, image: Pair) -> None:
        del image
        target, out = self.target, self.target.out
        pool = target.name(self._pool)
        rows, front = f"{target.record}.{pool}_rows", target.field("front")
        with out.block(f"if {front} == 0:"):
            with out.block(f"for q in range({rows} - 2, -1, -1):"):
                older, newer = f"{target.row(pool, 'q')}.value", f"{target.row(pool, 'q + 1')}.value"
                out.line(f"{older} = dd.greatest_common({older}, {newer})")
            out.line(f"{front}, {target.field('back')} = {rows}, 0")
        drop_first(target, pool)
        out.line(f"{front} -= 1")

    def value(self) -> Pair:
        target, out = self.target, self.target.out
        name = out.fresh("common")
        out.line(f"{name} = {target.field('back')}")
        with out.block(f"if {target.field('front')} > 0:"):
            older = f"{target.row(target.name(self._pool), '0')}.value"
            out.line(f"{name} = dd.greatest_common({name}, {older})")
        return f"float(abs({name}))", "0.0"


def _append(target: AccumulatorTarget, pool: str, value: str) -> None:
    target.make_room(pool)
    rows = f"{target.record}.{pool}_rows"
    target.out.line(f"{target.row(pool, rows)}.value = {value}")
    target.out.line(f"{rows} += 1")


def drop_first(target: AccumulatorTarget, pool: str) -> None:
    target.out.line(f"{target.record}.{pool}_at += 1")
    target.out.line(f"{target.record}.{pool}_rows -= 1")


def _if_any(target: AccumulatorTarget, pool: str, value: str, least: int = 0) -> Pair:
    """Write code for the value `value`, or NaN if a pool does not have more than `least` elements."""
    name = target.out.fresh("found")
    target.out.line(f"{name} = np.nan")
    with target.out.block(f"if {target.record}.{pool}_rows > {least}:"):
        target.out.line(f"{name} = {value}")
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


def simple_accumulator(core: Core, target: AccumulatorTarget, weighed: bool) -> AccumulatorCode:
    if core.counts:
        return ElementCount(core, target)
    if core.aggregate == "sum":
        return PairSum(core, target, weighed)
    if core.aggregate not in _SIMPLE:
        raise NoCompiledForm(f"{core} cannot be compiled")
    return _SIMPLE[core.aggregate](core, target)


# Core statistics that are recomputed from stored elements for each result


_BEGIN = {"sum": "0.0", "prod": "1.0", "xor": "0.0", "gcd": "0.0", "all": "1.0", "any": "0.0"}
_WHOLE = ("xor", "gcd")  # aggregates of 64-bit integers
_SORTING = ("median", "quantile", "topk")


class RecomputedCore(AccumulatorCode):
    """Code generator for a core statistic that a loop over all stored elements recomputes for each result.

    `names` must have the values of the window that the core statistic needs, before `value` is called.
    """

    _pool = "elements"

    def __init__(self, core: Core, target: AccumulatorTarget) -> None:
        super().__init__(core, target)
        self.names: Mapping[Expr, Pair] = {}
        self._aged = AGE in walk(core.argument)

    def pools(self) -> dict[str, RecordColumns]:
        types = {f"x{number}": DOUBLE for number in range(len(self.core.columns))}
        types |= {"at": BIGINT} if self._aged or not types else {}
        return {self.target.name(self._pool): RecordColumns(types)}

    def store_element(self, columns: Mapping[Expr, Pair], at: str) -> None:
        """Write code that stores the columns of an arriving element, and its time `at` if necessary."""
        target, out = self.target, self.target.out
        pool = target.name(self._pool)
        target.make_room(pool)
        rows = f"{target.record}.{pool}_rows"
        for number, column in enumerate(self.core.columns):
            out.line(f"{target.row(pool, rows)}.x{number} = {columns[Parameter(column)][0]}")
        if self._aged:
            out.line(f"{target.row(pool, rows)}.at = {at}")
        out.line(f"{rows} += 1")

    def add_element(self, image: Pair) -> None:
        """Write no code on arrival, because the transformed value of an element may depend on later elements.

        `store_element` writes the code that stores the element.
        """

    def remove_element(self, image: Pair) -> None:
        del image
        drop_first(self.target, self.target.name(self._pool))

    def value(self) -> Pair:
        pool = self.target.name(self._pool)
        rows = f"{self.target.record}.{pool}_rows"
        h, low = self.write_loop(self.core.aggregate, rows, lambda: self._image(pool, rows))
        for scalar in self.core.scalars:
            known = self.names[Symbol(scalar)][0]
            with self.target.out.block(f"if {known} != {known}:"):
                self.target.out.line(f"{h} = np.nan")
        return h, low

    def write_loop(self, aggregate: str, rows: str, image: Callable[[], Pair]) -> Pair:
        """Write a loop that computes an aggregate of `rows` values. Return the names of the result's doubles.

        `image` writes code for the value at index q.
        """
        out = self.target.out
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
        target, out = self.target, self.target.out
        row = target.row(pool, "q")
        names: dict[Expr, Pair] = {
            Parameter(column): (f"{row}.x{number}", "0.0") for number, column in enumerate(self.core.columns)
        }
        names |= {
            POSITION: ("float(q + 1)", "0.0"),
            FROM_NEWEST: (f"float({rows} - 1 - q)", "0.0"),
            DIMENSION: (f"float({rows})", "0.0"),
        }
        if self._aged:
            out.line(f"age = ({target.record}.now - {row}.at) * 1e-6")
            names[AGE] = "age", "0.0"
        return Formulas(out, {**self.names, **names}).pair(self.core.argument)

    def _accumulate(self, aggregate: str, name: str, image: Pair, rows: str) -> None:
        out = self.target.out
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
        out, h, low = self.target.out, f"{name}h", f"{name}l"
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


# Core statistics in operator letters, such as Ac[+] · T[x^2] (C4-C9)


_ORDERED = {
    "reverse": "{0}[::-1].copy()",
    "sort": "np.sort({0})",
    "rotate": "np.concatenate(({0}[1:], {0}[:1]))",
}


class LetteredCore(RecomputedCore):
    """Code generator for a core statistic in operator letters, a chain of operators over arrays.

    The result is NULL if a function has no value for an element, or if F[oldest 3] is applied to fewer than 3
    elements.
    """

    def value(self) -> Pair:
        out, pool = self.target.out, self.target.name(self._pool)
        name, rows = out.fresh("letters"), f"{self.target.record}.{pool}_rows"
        self._missing = f"{name}_missing"
        out.line(f"{self._missing} = False")
        out.line(f"{name} = np.empty({rows})")
        with out.block(f"for q in range({rows}):"):
            high, _ = self._image_of(self.core.transform, f"{self.target.row(pool, 'q')}.x0")
            out.line(f"{name}[q] = {high}")
        result = self._write_chain(flow(self.core.aggregate), name)
        out.line(f"{name}_value = {result}[0] if len({result}) > 0 and not {self._missing} else np.nan")
        return f"{name}_value", "0.0"

    def _image_of(self, function: Expr, x: str) -> Pair:
        element = Parameter(self.core.columns[0])
        return Formulas(self.target.out, {element: (x, "0.0"), Parameter("x"): (x, "0.0")}).pair(function)

    def _write_chain(self, of: Flow, window: str) -> str:
        """Write code for a chain of operator letters, the innermost operator first.

        `window` is the name of the array with the window. Return the name of the resulting array.
        """
        if isinstance(of, FlowInput):
            return window
        inputs = [self._write_chain(inner, window) for inner in of.inputs]
        out, first = self.target.out, inputs[0]
        name = out.fresh("vector")
        word, _, argument = of.text.partition(" ")
        match of.op:
            case Op.M:
                out.line(f"{name} = np.concatenate(({first}, {inputs[1]}))")
            case Op.P:
                out.line(f"{name} = {_ORDERED[of.text].format(first)}")
            case Op.T:
                self._write_transform(of, first, name)
            case Op.F if word != "where":
                out.line(f"{self._missing} = {self._missing} or len({first}) < {argument}")
                part = f":{argument}" if word == "oldest" else f"{argument}:"
                out.line(f"{name} = {first}[{part}].copy()")
            case Op.AC:
                aggregate = next(key for key, each in ACCUMULATORS.items() if each.symbol == of.text)
                self._write_aggregate(aggregate, first, name, f"np.full(1, {name}_h)")
            case Op.A if of.text in SEARCHES:
                self._write_aggregate(of.text, first, name, f"np.full(min(len({first}), 1), {name}_h)")
            case _:  # a search (A) or filter (F) by a condition
                self._write_selection(parse(argument), first, name, only_first=word == "first")
        return name

    def _write_transform(self, of: FlowStep, first: str, name: str) -> None:
        out, last = self.target.out, len(of.functions) - 1
        out.line(f"{name} = np.empty(len({first}))")
        with out.block(f"for q in range(len({first})):"):
            for target, function in enumerate(of.functions):
                test = f"q == {target}" if target < last else f"q >= {target}"
                with out.block(f"if {test}:"):
                    high, _ = self._image_of(function, f"{first}[q]")
                    out.line(f"{name}[q] = {high}")
            out.line(f"{self._missing} = {self._missing} or not abs({name}[q]) < np.inf")

    def _write_selection(self, condition: Expr, first: str, name: str, *, only_first: bool) -> None:
        out = self.target.out
        out.line(f"{name} = np.empty(len({first}))")
        out.line(f"{name}_count = 0")
        with out.block(f"for q in range(len({first})):"):
            truth, _ = self._image_of(condition, f"{first}[q]")
            only = f" and {name}_count == 0" if only_first else ""
            with out.block(f"if {truth} == {truth} and {truth} != 0.0{only}:"):
                out.line(f"{name}[{name}_count] = {first}[q]")
                out.line(f"{name}_count += 1")
        out.line(f"{name} = {name}[:{name}_count].copy()")

    def _write_aggregate(self, aggregate: str, first: str, name: str, result: str) -> None:
        """Write code that aggregates the array `first` into the array `name` of at most one element.

        `result` is the code expression for the array `name`, in which `name_h` is the aggregate's value.
        """
        high, low = self.write_loop(aggregate, f"len({first})", lambda: (f"{first}[q]", "0.0"))
        self.target.out.line(f"{name}_h = {high} + {low}")
        self.target.out.line(f"{name} = {result}")
