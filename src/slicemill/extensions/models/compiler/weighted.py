"""Code generators for weighted sums of models and for pivots (C21, C24).

A weight depends on the position or age u of an element x. A mode is a factor e^(βu) of the weight, where β is
complex. For each mode and each power r, the sum Σ u^r e^(βu) x over the window is stored. When the oldest
element expires, the positions i of all other elements decrease by one. When an element arrives, the positions
j from the newest element and the ages of all other elements increase. Sums with higher powers are then
computed from sums with lower powers:

    (u + s)^r e^(β(u + s)) = e^(βs) Σ_k binomial(r, k) s^(r-k) u^k e^(βu)

A mode with complex β rotates its sums by an angle at each slide. Repeated rotation by a slightly rounded
angle would accumulate an error. So sums over positions are not rotated at each slide. Each element is added
with the angle of its sequence number in the stream, and only the result is rotated back.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from math import comb

from slicemill.aggregates.udf.compiler.layout import RecordColumns, Writer
from slicemill.extensions.models.compiler.accumulators import AccumulatorCode, AccumulatorTarget, drop_first
from slicemill.extensions.models.compiler.expressions import PI, Pair, constant
from slicemill.extensions.models.cores import Core
from slicemill.extensions.models.terms import AGE, POSITION
from slicemill.extensions.models.weights import Mode, Term
from slicemill.types import DOUBLE

_DIGITS = 50


def step_of(mode: Mode) -> Fraction:
    """Return |e^β|, the factor by which a weight e^(βu) grows when u grows by 1, with 50 digits."""
    if not mode.rate:
        return mode.base
    with localcontext() as context:
        context.prec = _DIGITS
        rate = Decimal(mode.rate.numerator) / Decimal(mode.rate.denominator)
        return mode.base * Fraction(rate.exp())


class ModeSums:
    """Code generator for the sums Σ u^r e^(βu) x of one factor e^(βu), for all powers r up to a degree.

    u is the position or age of an element x. A sum is a pair of doubles, or a complex number if β is complex.
    In the generated code, a `stem` is the common beginning of the names of these sums.
    """

    def __init__(self, mode: Mode, degree: int, out: Writer) -> None:
        self.mode, self.degree, self.out = mode, degree, out
        self.turning = mode.turning

    def names(self, stem: str, power: int) -> Pair:
        return (
            (f"{stem}{power}r", f"{stem}{power}i") if self.turning else (f"{stem}{power}h", f"{stem}{power}l")
        )

    def all_names(self, stem: str) -> list[str]:
        return [name for power in range(self.degree + 1) for name in self.names(stem, power)]

    def at(self, u: str, whole: bool) -> Pair:
        """Write code that computes e^(βu). With `whole`, u is an integer. Return the names of the value."""
        out, mode = self.out, self.mode
        name = out.fresh("mode")
        high, low = constant(step_of(mode))
        size = f"float({high}) ** {u}" if not whole else f"dd.whole_power({high}, {low}, {u})[0]"
        if not self.turning:
            if (high, low) == ("1.0", "0.0"):
                return "1.0", "0.0"
            out.line(
                f"{name}h, {name}l = {f'dd.whole_power({high}, {low}, {u})' if whole else f'{size}, 0.0'}"
            )
            return f"{name}h", f"{name}l"
        out.line(f"angle = {_angle(mode, u, whole)}")
        scale = "" if (high, low) == ("1.0", "0.0") else f"{size} * "
        out.line(f"{name}r, {name}i = {scale}math.cos(angle), {scale}math.sin(angle)")
        return f"{name}r", f"{name}i"

    def add(
        self,
        stem: str,
        u: str,
        image: Pair,
        *,
        whole: bool,
        sign: str = "+",
        zero: bool = False,
        number: str = "",
    ) -> None:
        """Write code that adds an element at position or age `u` to the sums, or subtracts it.

        With `zero`, u is 0, so only the sum of power 0 changes. `number` is the sequence number of the
        element in the stream, if its angle depends on this number.
        """
        out = self.out
        weight = ("1.0", "0.0") if zero else self.at(number or u, whole)
        for power in range(1 if zero else self.degree + 1):
            name = out.fresh("part")
            scaled = image
            if power:
                out.line(f"{name}h, {name}l = dd.whole_power(float({u}), 0.0, {power})")
                out.line(f"{name}h, {name}l = dd.multiply({name}h, {name}l, {image[0]}, {image[1]})")
                scaled = f"{name}h", f"{name}l"
            first, second = self.names(stem, power)
            if self.turning:
                out.line(f"{first} {sign}= {scaled[0]} * {weight[0]}")
                out.line(f"{second} {sign}= {scaled[0]} * {weight[1]}")
                continue
            if weight != ("1.0", "0.0"):
                out.line(f"{name}h, {name}l = dd.multiply({', '.join((*scaled, *weight))})")
                scaled = f"{name}h", f"{name}l"
            call = "add" if sign == "+" else "subtract"
            out.line(f"{first}, {second} = dd.{call}({first}, {second}, {scaled[0]}, {scaled[1]})")

    def shift(self, stem: str, into: str, by: str, *, whole: bool, turn: bool = True) -> None:
        """Write code that computes the sums after the positions of all elements change by `by`.

        The new sums have names that begin with `into`, which may equal `stem`.
        """
        out = self.out
        weight = self.at(by, whole) if turn else ("1.0", "0.0")
        # From the highest power down, because each power needs the old values of the lower ones.
        for power in range(self.degree, -1, -1):
            name = out.fresh("moved")
            pair = f"{name}a", f"{name}b"
            first, second = self.names(stem, power)
            out.line(f"{pair[0]}, {pair[1]} = {first}, {second}")
            for lower in range(power):
                factor = f"({by}) ** {power - lower} * {comb(power, lower)}.0"
                low = self.names(stem, lower)
                if self.turning:
                    out.line(f"{pair[0]} += {factor} * {low[0]}")
                    out.line(f"{pair[1]} += {factor} * {low[1]}")
                else:
                    out.line(f"{name}c, {name}d = dd.multiply({low[0]}, {low[1]}, {factor}, 0.0)")
                    out.line(f"{pair[0]}, {pair[1]} = dd.add({pair[0]}, {pair[1]}, {name}c, {name}d)")
            target = ", ".join(self.names(into, power))
            if weight == ("1.0", "0.0"):
                out.line(f"{target} = {pair[0]}, {pair[1]}")
            elif self.turning:
                r, i = weight
                turned = f"{pair[0]} * {r} - {pair[1]} * {i}, {pair[0]} * {i} + {pair[1]} * {r}"
                out.line(f"{target} = {turned}")
            else:
                out.line(f"{target} = dd.multiply({pair[0]}, {pair[1]}, {weight[0]}, {weight[1]})")


def mode_sums_of(core: Core, out: Writer) -> list[ModeSums]:
    """Return the code generators for the sums of a weighted sum, one per factor e^(βu) of its weight."""
    assert core.weight is not None
    return [ModeSums(mode, degree, out) for mode, degree in core.weight.modes.items()]


def _angle(mode: Mode, u: str, whole: bool) -> str:
    """Return a code expression for the angle of e^(βu).

    For integer u, full turns are removed before rounding.
    """
    if not whole:
        return f"{mode.angle!r} * {u}"
    if not mode.frequency and abs(mode.turns.numerator) * mode.turns.denominator < 2**62:
        return f"dd.turn({mode.turns.numerator}, {mode.turns.denominator}, {u})"
    high, low = constant(mode.turns + mode.frequency / (2 * PI))
    return f"dd.angle({high}, {low}, {u})"


def write_weighted_sum(core: Core, powers: list[ModeSums], stems: list[str], out: Writer) -> Pair:
    """Write code that computes a weighted sum from the stored sums of its factors e^(βu).

    `powers` are the code generators of the stored sums, and `stems` the beginnings of their names. Return the
    names of the result's two doubles.
    """
    assert core.weight is not None
    name = out.fresh("weighted")
    out.line(f"{name}h, {name}l = 0.0, 0.0")
    modes = [sums.mode for sums in powers]
    present = {term.mode for term in core.weight.terms}
    for term in core.weight.terms:
        if term.mode not in modes:
            continue  # only the sum of the complex conjugate term is stored
        sums, stem = powers[modes.index(term.mode)], stems[modes.index(term.mode)]
        part = _real_part(term, sums.names(stem, term.degree), term.mode.conjugate() in present)
        out.line(f"{name}h, {name}l = dd.add({name}h, {name}l, {part})")
    return f"{name}h", f"{name}l"


def _real_part(term: Term, names: Pair, paired: bool) -> str:
    if not term.mode.turning:
        return f"{names[0]}, {names[1]}" if term.factor == 1 else f"{term.factor.real!r} * {names[0]}, 0.0"
    double = 2.0 if paired else 1.0
    return f"{double * term.factor.real!r} * {names[0]} - {double * term.factor.imag!r} * {names[1]}, 0.0"


class ShiftedWeightedSum(AccumulatorCode):
    """Accumulator for a weighted sum whose stored sums are updated when positions or ages change.

    The stored sums accumulate rounding errors.
    """

    inexact = True

    def __init__(self, core: Core, target: AccumulatorTarget) -> None:
        super().__init__(core, target)
        assert core.weight is not None
        self.powers = mode_sums_of(core, target.out)
        self.variable = core.weight.variable
        # True if elements are added with the angle of their sequence number in the stream.
        self.numbered = self.variable == POSITION and core.weight.modes_turn

    @property
    def _expired_count(self) -> str:
        """Return the name of the field with the number of expired elements."""
        return self.target.field("gone")

    def _stem(self, mode: int) -> str:
        return self.target.field(f"v{mode}_") + "_"

    def fields(self) -> dict[str, str]:
        head = len(f"{self.target.record}.")
        sums = {
            name[head:]: "f8"
            for mode, powers in enumerate(self.powers)
            for name in powers.all_names(self._stem(mode))
        }
        return sums | ({self.target.name("gone"): "i8"} if self.numbered else {})

    def _each(self) -> list[tuple[ModeSums, str]]:
        return [(powers, self._stem(mode)) for mode, powers in enumerate(self.powers)]

    def add_element(self, image: Pair) -> None:
        for powers, stem in self._each():
            if self.variable == POSITION:
                count = self.target.count
                number = f"({self._expired_count} + {count})" if self.numbered else ""
                powers.add(stem, count, image, whole=True, number=number)
            else:
                if self.variable != AGE:
                    powers.shift(stem, stem, "1", whole=True)
                powers.add(stem, "0", image, whole=True, zero=True)

    def write_aging(self) -> None:
        if self.variable == AGE:
            for powers, stem in self._each():
                powers.shift(stem, stem, "passed", whole=False)

    def remove_element(self, image: Pair) -> None:
        for powers, stem in self._each():
            if self.variable == POSITION:
                number = f"({self._expired_count} + 1)" if self.numbered else ""
                powers.add(stem, "1", image, whole=True, sign="-", number=number)
            elif self.variable == AGE:
                powers.add(stem, "age", image, whole=False, sign="-")
            else:
                powers.add(stem, f"({self.target.count} - 1)", image, whole=True, sign="-")
        if self.variable == POSITION:
            for powers, stem in self._each():
                if powers.degree or not self.numbered:
                    powers.shift(stem, stem, "-1", whole=True, turn=not self.numbered)
            if self.numbered:
                self.target.out.line(f"{self._expired_count} += 1")

    def value(self) -> Pair:
        stems = [self._stem(mode) for mode in range(len(self.powers))]
        if self.numbered:
            stems = [self._rotate_back(powers, stem) for powers, stem in zip(self.powers, stems, strict=True)]
        return write_weighted_sum(self.core, self.powers, stems, self.target.out)

    def _rotate_back(self, powers: ModeSums, stem: str) -> str:
        """Write code that rotates sums from angles by sequence number to angles by position in the window.

        Return the beginning of the names of the rotated sums.
        """
        if not powers.turning:
            return stem
        out, back = self.target.out, self.target.out.fresh("back")
        cosine, sine = powers.at(self._expired_count, whole=True)
        for power in range(powers.degree + 1):
            (r, i), names = powers.names(stem, power), ", ".join(powers.names(back, power))
            out.line(f"{names} = {r} * {cosine} + {i} * {sine}, {i} * {cosine} - {r} * {sine}")
        return back


class WeightedStacks(AccumulatorCode):
    """Accumulator for a weighted sum with the greatest weights for the oldest elements: a two-stack queue.

    Removing such an element by subtraction would magnify rounding errors. Elements are divided into older and
    newer elements, each with own sums. Positions count from the start of each part.
    """

    _pool = "weights"

    def __init__(self, core: Core, target: AccumulatorTarget) -> None:
        super().__init__(core, target)
        self.powers = mode_sums_of(core, target.out)

    def _stem(self, mode: int) -> str:
        return self.target.field(f"v{mode}_") + "_"

    def fields(self) -> dict[str, str]:
        head = len(f"{self.target.record}.")
        back = {
            name[head:]: "f8"
            for mode, powers in enumerate(self.powers)
            for name in powers.all_names(self._stem(mode))
        }
        return {**back, self.target.name("front"): "i8", self.target.name("behind"): "i8"}

    def pools(self) -> dict[str, RecordColumns]:
        names = [name for mode, powers in enumerate(self.powers) for name in powers.all_names(f"m{mode}_")]
        return {self.target.name(self._pool): RecordColumns(dict.fromkeys(names, DOUBLE))}

    def _row(self, index: str, mode: int) -> str:
        return f"{self.target.row(self.target.name(self._pool), index)}.m{mode}_"

    def add_element(self, image: Pair) -> None:
        target, out = self.target, self.target.out
        pool = target.name(self._pool)
        out.line(f"{target.field('behind')} += 1")
        target.make_room(pool)
        rows = f"{target.record}.{pool}_rows"
        for mode, powers in enumerate(self.powers):
            powers.add(self._stem(mode), target.field("behind"), image, whole=True)
            for name in powers.all_names(self._row(rows, mode)):
                out.line(f"{name} = 0.0")
            powers.add(self._row(rows, mode), "1", image, whole=True)
        out.line(f"{rows} += 1")

    def remove_element(self, image: Pair) -> None:
        del image
        target, out = self.target, self.target.out
        pool = target.name(self._pool)
        rows, front = f"{target.record}.{pool}_rows", target.field("front")
        with out.block(f"if {front} == 0:"):
            with out.block(f"for q in range({rows} - 2, -1, -1):"):
                for mode, powers in enumerate(self.powers):
                    powers.shift(self._row("q + 1", mode), f"local{mode}_", "1", whole=True)
                    self._add_to(powers, self._row("q", mode), f"local{mode}_")
            out.line(f"{front}, {target.field('behind')} = {rows}, 0")
            for mode, powers in enumerate(self.powers):
                for name in powers.all_names(self._stem(mode)):
                    out.line(f"{name} = 0.0")
        drop_first(target, pool)
        out.line(f"{front} -= 1")

    def _add_to(self, powers: ModeSums, stem: str, other: str) -> None:
        for power in range(powers.degree + 1):
            (h, low), more = powers.names(stem, power), powers.names(other, power)
            self.target.out.line(f"{h}, {low} = dd.add({h}, {low}, {more[0]}, {more[1]})")

    def value(self) -> Pair:
        target, out = self.target, self.target.out
        front = target.field("front")
        stems = []
        for mode, powers in enumerate(self.powers):
            stem = f"all{target.number}_{mode}_"
            stems.append(stem)
            powers.shift(self._stem(mode), stem, front, whole=True)
            with out.block(f"if {front} > 0:"):
                self._add_to(powers, stem, self._row("0", mode))
        return write_weighted_sum(self.core, self.powers, stems, out)


# Pivots of centred sums (C24)
#
# A pivot is a number close to the elements. A centred sum adds powers of distances from the pivot. The pivot
# is the oldest element at the time when it is chosen. The sums are rebuilt with a new pivot in two cases: the
# mean is far from the pivot compared to the deviation of the elements, or expired elements were much further
# from the pivot than the remaining elements.

# The pivot is replaced if the variance is below this fraction of the mean squared distance from the pivot.
# The mean is then about 2^12 standard deviations from the pivot.
_FAR = 2.0**-24

# The pivot is also replaced if the sum of squared distances falls below this fraction of its former maximum.
# A sum of fourth powers then has about 72 of 104 correct bits.
_LEFT_OF_SQUARES = 2.0**-16

# Greatest absolute value of a pivot. Twice this number is a finite double.
_GREATEST = "1e300"

# Limit of distances in the statistics of a pivot. Its square is a finite double.
_ENOUGH = "1e150"


class PivotCode:
    """Code generator for one pivot: a number close to the elements, from which centred sums use distances.

    With `moving`, elements expire, and the pivot may have to be replaced.
    """

    def __init__(self, out: Writer, record: str, end: str, count: str, moving: bool) -> None:
        self._out, self._record, self._end, self._count = out, record, end, count
        self._moving = moving

    @property
    def replacing(self) -> str:
        """Return the name of the variable that is true while sums are rebuilt with a new pivot."""
        return f"{self._record}_pivot{self._end}_again"

    def _field(self, name: str) -> str:
        return f"{self._record}.{name}{self._end}"

    def fields(self) -> dict[str, str]:
        names = ("pivot", "away", "squares", "furthest") if self._moving else ("pivot",)
        return {f"{name}{self._end}": "f8" for name in names}

    def replacement_test(self) -> str:
        away, squares, furthest = self._field("away"), self._field("squares"), self._field("furthest")
        together = f"{self._count} * {squares}"
        return (
            f"{squares} < {_LEFT_OF_SQUARES!r} * {furthest}"
            f" or {together} - {away} * {away} < {_FAR!r} * ({together})"
        )

    def choose(self, image: Pair) -> None:
        """Write code that makes the first element the pivot. The element has already been counted."""
        first = f"{self._count} == 1"
        with self._out.block(f"if {self.replacing} and {first}:" if self._moving else f"if {first}:"):
            self._out.line(f"{self._field('pivot')} = {image[0]} if abs({image[0]}) < {_GREATEST} else 0.0")

    def distance(self, image: Pair) -> Pair:
        name = self._out.fresh("u")
        self._out.line(f"{name}h, {name}l = dd.subtract({image[0]}, {image[1]}, {self._field('pivot')}, 0.0)")
        return f"{name}h", f"{name}l"

    def add_element(self, distance: Pair) -> None:
        if self._moving:
            squares, furthest = self._field("squares"), self._field("furthest")
            self._write_change("+", distance)
            self._out.line(f"{furthest} = max({furthest}, {squares})")

    def remove_element(self, distance: Pair) -> None:
        self._write_change("-", distance)

    def _write_change(self, sign: str, distance: Pair) -> None:
        name = self._out.fresh("far")
        self._out.line(f"{name} = min(max({distance[0]}, -{_ENOUGH}), {_ENOUGH})")
        self._out.line(f"{self._field('away')} {sign}= {name}")
        self._out.line(f"{self._field('squares')} {sign}= {name} * {name}")

    def sum_of_distances(self, total: Pair) -> Pair:
        """Write code that computes the sum of distances from the pivot p, Σ(x - p), from the sum Σx."""
        name = self._out.fresh("near")
        pivot = self._field("pivot")
        self._out.line(f"{name}h, {name}l = dd.multiply({pivot}, 0.0, float({self._count}), 0.0)")
        self._out.line(f"{name}h, {name}l = dd.subtract({total[0]}, {total[1]}, {name}h, {name}l)")
        return f"{name}h", f"{name}l"
