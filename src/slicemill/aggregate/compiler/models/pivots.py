"""Pivots of centred sums: numbers near the elements (C24).

A centred sum adds distances from the pivot. The pivot is the oldest element at the time of its choice. The
sums are rebuilt with a new pivot in two cases: the mean is far from the pivot compared to the deviation of
the elements, or expired elements were far greater than the remaining ones.
"""

from __future__ import annotations

from slicemill.aggregate.compiler.models.expressions import Pair
from slicemill.aggregate.compiler.source import Writer

# Squared: the mean is further from the pivot than 2^12 standard deviations.
_FAR = 2.0**-24
# Share of the squares; a fourth power then has 72 of 104 bits left.
_LEFT_OF_SQUARES = 2.0**-16
# Twice the first is still a double, and so is the square of the second.
_GREATEST = "1e300"
_ENOUGH = "1e150"


class PivotCode:
    """Writes the state of one pivot; with `moving`, elements expire.

    A pivot with expiring elements may have to be replaced.
    """

    def __init__(self, out: Writer, record: str, end: str, count: str, moving: bool) -> None:
        self._out, self._record, self._end, self._count = out, record, end, count
        self._moving = moving

    @property
    def again(self) -> str:
        """Return the variable that is true while the pivot is replaced."""
        return f"{self._record}_pivot{self._end}_again"

    def _field(self, name: str) -> str:
        return f"{self._record}.{name}{self._end}"

    def fields(self) -> dict[str, str]:
        names = ("pivot", "away", "squares", "furthest") if self._moving else ("pivot",)
        return {f"{name}{self._end}": "f8" for name in names}

    def is_spent(self) -> str:
        away, squares, furthest = self._field("away"), self._field("squares"), self._field("furthest")
        together = f"{self._count} * {squares}"
        return (
            f"{squares} < {_LEFT_OF_SQUARES!r} * {furthest}"
            f" or {together} - {away} * {away} < {_FAR!r} * ({together})"
        )

    def choose(self, image: Pair) -> None:
        """Write the choice of the first element as pivot.

        It is already counted.
        """
        first = f"{self._count} == 1"
        with self._out.block(f"if {self.again} and {first}:" if self._moving else f"if {first}:"):
            self._out.line(f"{self._field('pivot')} = {image[0]} if abs({image[0]}) < {_GREATEST} else 0.0")

    def distance(self, image: Pair) -> Pair:
        name = self._out.fresh("u")
        self._out.line(f"{name}h, {name}l = dd.subtract({image[0]}, {image[1]}, {self._field('pivot')}, 0.0)")
        return f"{name}h", f"{name}l"

    def came(self, distance: Pair) -> None:
        if self._moving:
            squares, furthest = self._field("squares"), self._field("furthest")
            self._changed("+", distance)
            self._out.line(f"{furthest} = max({furthest}, {squares})")

    def left(self, distance: Pair) -> None:
        self._changed("-", distance)

    def _changed(self, sign: str, distance: Pair) -> None:
        name = self._out.fresh("far")
        self._out.line(f"{name} = min(max({distance[0]}, -{_ENOUGH}), {_ENOUGH})")
        self._out.line(f"{self._field('away')} {sign}= {name}")
        self._out.line(f"{self._field('squares')} {sign}= {name} * {name}")

    def sum_of_distances(self, total: Pair) -> Pair:
        """Return Σ(x - p), computed from Σx."""
        name = self._out.fresh("near")
        pivot = self._field("pivot")
        self._out.line(f"{name}h, {name}l = dd.multiply({pivot}, 0.0, float({self._count}), 0.0)")
        self._out.line(f"{name}h, {name}l = dd.subtract({total[0]}, {total[1]}, {name}h, {name}l)")
        return f"{name}h", f"{name}l"
