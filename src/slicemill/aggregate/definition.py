"""What an aggregate is to the operators that run it (M29-M32, M35).

An aggregate has up to two independent versions. The *base* version sees tuples one by one and may return at
each of them and at the end (TERMINATE). The *window* version also sees the window's content and is told about
every tuple that leaves it (EXPIRE). Both return through RETURN: a call gives the list of what it inserted
there, often nothing, often one value, possibly several. Where RETURN has several columns, a value is a tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain, zip_longest
from typing import Any, Protocol, cast

from slicemill.aggregate.inwindow import Args, Inwindow
from slicemill.errors import SlicemillError
from slicemill.esl.types import schema as t
from slicemill.esl.types.schema import Kind, Type
from slicemill.rows import Row
from slicemill.scalar.functions.casts import converter
from slicemill.scalar.values import bigint_checked
from slicemill.storage.codec import stored_as

Returned = list[object]


@stored_as("special", version=1)
class Special(Enum):
    """A stand-in for NaN, which differs from itself, that is found again in a stored dictionary too."""

    NAN = "NaN"


def comparable(values: Row) -> Row:
    """Values as GROUP BY, PARTITION BY and DISTINCT compare them: NaN equals NaN, -0.0 is 0.0 (Spark)."""
    return tuple(Special.NAN if value != value else value for value in values)


def shown(values: Row) -> Row:
    """The values of a group as Spark shows them: it has one zero."""
    return tuple(0.0 if value == 0 and isinstance(value, float) else value for value in values)


class RowAccumulator(Protocol):
    """The two routines that both versions have, and what is stored of them: plain values, no code."""

    def state(self) -> object: ...

    def restore(self, state: Any) -> None:
        """Go on, in place of a fresh one, from what was stored."""
        ...

    def initialize(self, args: Args) -> Returned:
        """The first tuple of the group or partition."""
        ...

    def iterate(self, args: Args) -> Returned:
        """Every later tuple."""
        ...


class BaseAccumulator(RowAccumulator, Protocol):
    """The running state of a base aggregate for one group."""

    def terminate(self) -> Returned:
        """The result so far; asked of a fresh accumulator, the result over no tuple at all.

        It leaves the state as it is: cumulative windows ask after every tuple (M31).
        """
        ...


class WindowAccumulator(RowAccumulator, Protocol):
    """The running state of a window aggregate for one partition, made with the window it may look at.

    When `initialize` or `iterate` runs, the new tuple is already in the window (X6).
    """

    def expire(self, args: Args) -> Returned:
        """The oldest tuple of the window, still in it, is about to leave.

        What this returns is output only under ACTIVE EXPIRATION.
        """
        ...


BaseFactory = Callable[[], BaseAccumulator]
WindowFactory = Callable[[Inwindow], WindowAccumulator]


@dataclass(frozen=True, slots=True)
class Panes:
    """How the results of panes combine, for an aggregate that is not its own combiner.

    `pane` computes one value per pane; the window version of `combine` takes those values as its arguments.
    """

    pane: BaseFactory
    combine: RowAggregate


@dataclass(frozen=True, slots=True)
class RowAggregate:
    """One aggregate name: its base version, its window version, and whether panes may be used (ALGEBRAIC).

    An ALGEBRAIC aggregate without `panes` combines its own results, as sum, min and max do. `columns` counts
    the columns of RETURN; unless it is 1, every value returned is a tuple of as many. `forgets` says that the
    window version deletes tuples that no longer matter to it: their expiry would then go unreported.
    `numbered`: in a window, a tuple's arrival number in its partition follows its arguments. `finish` takes a
    value to the declared type of the column. `statistic` makes what both versions are made of, if it is one.
    """

    name: str
    base: BaseFactory | None
    window: WindowFactory | None = None
    algebraic: bool = False
    panes: Panes | None = None
    columns: int = 1
    forgets: bool = False
    numbered: bool = False
    finish: Callable[[object], object] | None = None
    statistic: Callable[[], Any] | None = None

    def row_of(self, value: object) -> Row:
        """A value that this aggregate returned, as columns."""
        if self.columns != 1:
            return cast(Row, value)
        return (value if self.finish is None or value is None else self.finish(value),)


@dataclass(frozen=True, slots=True)
class RowCall:
    """A call in a select list: the aggregate, and its arguments as a function of the input row."""

    definition: RowAggregate
    arguments: Callable[[Row], Args]


class Stepper:
    """Sends the first tuple to INITIALIZE and the others to ITERATE (M30)."""

    __slots__ = ("_accumulator", "_started")

    def __init__(self, accumulator: RowAccumulator) -> None:
        self._accumulator = accumulator
        self._started = False

    def step(self, args: Args) -> Returned:
        if self._started:
            return self._accumulator.iterate(args)
        self._started = True
        return self._accumulator.initialize(args)

    def state(self) -> tuple[object, bool]:
        """That of the accumulator, and whether it has had a tuple."""
        return self._accumulator.state(), self._started

    def restore(self, state: tuple[Any, bool]) -> None:
        kept, self._started = state
        self._accumulator.restore(kept)


class BaseRun:
    """A base aggregate in progress: what the latest tuple returned, followed by TERMINATE.

    This pair is the value of the aggregate *at* that tuple. It covers blocking aggregates (which return in
    TERMINATE only) and non-blocking ones (which return at the tuple only) alike, so that cumulative windows,
    tumbles, panes and recomputed windows agree.
    """

    __slots__ = ("_accumulator", "_latest", "_stepper")

    def __init__(self, base: BaseFactory) -> None:
        self._accumulator = base()
        self._stepper = Stepper(self._accumulator)
        self._latest: Returned = []

    def step(self, args: Args) -> None:
        self._latest = self._stepper.step(args)

    def value(self) -> Returned:
        return [*self._latest, *self._accumulator.terminate()]

    def state(self) -> object:
        return self._stepper.state(), self._latest

    def restore(self, state: Any) -> None:
        stepped, self._latest = state
        self._stepper.restore(stepped)


def base_of(definition: RowAggregate) -> BaseFactory:
    """The base version, which this use of the aggregate cannot do without."""
    if definition.base is None:
        raise SlicemillError(
            f"aggregate {definition.name} has only a WINDOW version; GROUP BY, UNBOUNDED PRECEDING, a tumble "
            f"and panes run the base version: add CREATE AGGREGATE {definition.name}"
        )
    return definition.base


def evaluate(base: BaseFactory, tuples: Iterable[Args]) -> Returned:
    """The aggregate over a finite list of tuples."""
    run = BaseRun(base)
    for args in tuples:
        run.step(args)
    return run.value()


def align(definitions: Sequence[RowAggregate], returned: Sequence[Returned]) -> list[Row]:
    """The rows that several calls give together: the i-th takes each call's i-th value, or NULLs."""
    columns = [
        [definition.row_of(value) for value in values]
        for definition, values in zip(definitions, returned, strict=True)
    ]
    nothing = [(None,) * definition.columns for definition in definitions]
    return [
        tuple(chain.from_iterable(row or nulls for row, nulls in zip(rows, nothing, strict=True)))
        for rows in zip_longest(*columns)
    ]


class RecomputedWindow:
    """The window version derived for an aggregate that has none (N1): the base over the whole window."""

    __slots__ = ("_base", "_inwindow")

    def __init__(self, base: BaseFactory, inwindow: Inwindow) -> None:
        self._base = base
        self._inwindow = inwindow

    def initialize(self, args: Args) -> Returned:  # noqa: ARG002
        return evaluate(self._base, self._inwindow)

    iterate = initialize

    def expire(self, args: Args) -> Returned:  # noqa: ARG002
        left = list(self._inwindow)[1:]
        return evaluate(self._base, left) if left else []

    def state(self) -> object:
        """All that it knows is in the window."""
        return None

    def restore(self, state: Any) -> None:
        pass


def window_version(definition: RowAggregate) -> WindowFactory:
    """The aggregate's own window version, or else the derived one."""
    if definition.window is not None:
        return definition.window
    return partial(RecomputedWindow, base_of(definition))


def declared(type_: Type) -> Callable[[Any], object] | None:
    """Takes what an aggregate returned, if not NULL, to a type; None where values are as declared anyway.

    As in Spark, a sum of BIGINTs that needs more than 64 bits is an error, and a DECIMAL is rounded to the
    scale of its column, half away from zero.
    """
    if type_.kind is Kind.DECIMAL:
        return converter(t.ANY, type_)
    if type_.kind is Kind.DOUBLE:
        return _as_double
    return bigint_checked if type_.kind is Kind.BIGINT else None


def _as_double(value: object) -> object:
    return float(value) if isinstance(value, int) else value
