"""Interface of an aggregate for the operators that run it (M29-M32, M35).

An aggregate has up to two independent versions. The *base* version receives tuples one by one, and may
return values at each tuple and at the end (TERMINATE). The *window* version can also read the window, and
is called for each tuple that expires (EXPIRE). Both versions return values by inserting into RETURN. A
call returns the list of these values, which may be empty. If RETURN has several columns, a value is a
tuple.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from itertools import chain, zip_longest
from typing import Any, Protocol, cast

from slicemill import types as t
from slicemill.aggregates.frames import Args, Inwindow, WindowFrame
from slicemill.codec.registry import stored_as
from slicemill.errors import SlicemillError
from slicemill.functions.casts import converter
from slicemill.functions.values import check_bigint
from slicemill.types import Kind, Row, Type

Returned = list[object]


@stored_as("special", version=1)
class NanKey(Enum):
    """Key that stands for NaN in groups.

    NaN does not equal itself. This key equals itself, also after a restore.
    """

    NAN = "NaN"


def comparable(values: Row) -> Row:
    """Return values as GROUP BY, PARTITION BY and DISTINCT compare them.

    As in Spark, NaN equals NaN and -0.0 is 0.0.
    """
    return tuple(NanKey.NAN if value != value else value for value in values)


def normalize_zeros(values: Row) -> Row:
    """Return group keys as Spark prints them, without negative zero."""
    return tuple(0.0 if value == 0 and isinstance(value, float) else value for value in values)


class RowAccumulator(Protocol):
    """Interface that base and window accumulators share.

    The stored state consists of plain values.
    """

    def state(self) -> object: ...

    def restore(self, state: Any) -> None:
        """Load a stored state into a fresh accumulator."""
        ...

    def initialize(self, args: Args) -> Returned:
        """Process the first tuple of the group or partition."""
        ...

    def iterate(self, args: Args) -> Returned:
        """Process a later tuple."""
        ...


class BaseAccumulator(RowAccumulator, Protocol):
    """Running state of a base aggregate for one group."""

    def terminate(self) -> Returned:
        """Return the result so far.

        A fresh accumulator returns the result of an empty input.

        The state is unchanged, because cumulative windows call `terminate` after every tuple (M31).
        """
        ...


class WindowAccumulator(RowAccumulator, Protocol):
    """Running state of a window aggregate for one partition.

    An accumulator is created with a reference to the window. When `initialize` or `iterate` runs, the window
    already contains the new tuple (X6).
    """

    def expire(self, args: Args) -> Returned:
        """Process the expiry of the oldest tuple, still in the window.

        The returned values are emitted only under ACTIVE EXPIRATION.
        """
        ...


BaseFactory = Callable[[], BaseAccumulator]
WindowFactory = Callable[[Inwindow], WindowAccumulator]


@dataclass(frozen=True, slots=True)
class Panes:
    """Aggregate of a pane, and aggregate that combines panes.

    `pane` computes one value per pane. The window version of `combine` receives these values as its
    arguments. An aggregate without `Panes` combines its own results.
    """

    pane: BaseFactory
    combine: RowAggregate


@dataclass(frozen=True, slots=True)
class RowAggregate:
    """Aggregate function: its base version, its window version and its properties.

    - `algebraic` aggregates can be evaluated by panes. Without `panes`, such an aggregate combines its own
      results, as sum, min and max do.
    - `columns` is the number of columns of RETURN. Unless it is 1, each value is a tuple.
    - `forgets`: the window version deletes tuples that no longer matter, so EXPIRE is not called for them.
    - `numbered`: in a window, a tuple's arrival number in its partition follows the arguments.
    - `finish` converts a value to the declared type of the column.
    - `statistic` makes the state that both versions share, if the aggregate is a statistic.
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
        """Convert a returned value to a row."""
        if self.columns != 1:
            return cast(Row, value)
        return (value if self.finish is None or value is None else self.finish(value),)


@dataclass(frozen=True, slots=True)
class RowCall:
    """Call in a select list: the aggregate, and its arguments by row."""

    definition: RowAggregate
    arguments: Callable[[Row], Args]


class Stepper:
    """Calls INITIALIZE for the first tuple and ITERATE for later tuples (M30)."""

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
        """Return the accumulator's state, and a flag that a tuple has arrived."""
        return self._accumulator.state(), self._started

    def restore(self, state: tuple[Any, bool]) -> None:
        kept, self._started = state
        self._accumulator.restore(kept)


class BaseRun:
    """Running base aggregate of one group.

    Its value *at* a tuple is what the routines returned for the tuple, followed by what TERMINATE returns. So
    cumulative windows, tumbles, panes and recomputed windows treat blocking aggregates, which return only in
    TERMINATE, like non-blocking aggregates, which return only at tuples.
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
    """Return the base version; raise if the aggregate has none."""
    if definition.base is None:
        raise SlicemillError(
            f"aggregate {definition.name} has only a WINDOW version; GROUP BY, UNBOUNDED PRECEDING, a tumble "
            f"and panes run the base version: add CREATE AGGREGATE {definition.name}"
        )
    return definition.base


def evaluate(base: BaseFactory, tuples: Iterable[Args]) -> Returned:
    """Evaluate an aggregate over a finite list of tuples."""
    run = BaseRun(base)
    for args in tuples:
        run.step(args)
    return run.value()


def align(definitions: Sequence[RowAggregate], returned: Sequence[Returned]) -> list[Row]:
    """Combine the values of several calls into rows.

    The i-th row has the i-th value of each call, or NULLs.
    """
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
    """Derived window version: the base version over the whole window (N1)."""

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
        """Return no state, because the window has all of it."""
        return None

    def restore(self, state: Any) -> None:
        pass


def window_version(definition: RowAggregate) -> WindowFactory:
    """Return the aggregate's own window version, or else the derived one."""
    if definition.window is not None:
        return definition.window
    return partial(RecomputedWindow, base_of(definition))


def result_converter(type_: Type) -> Callable[[Any], object] | None:
    """Return a conversion of non-NULL results to the declared type.

    Return None if no conversion is needed. As in Spark, a BIGINT sum that needs more than 64 bits is an
    error, and a DECIMAL is rounded to the scale of its column, halves away from zero.
    """
    if type_.kind is Kind.DECIMAL:
        return converter(t.ANY, type_)
    if type_.kind is Kind.DOUBLE:
        return _as_double
    return check_bigint if type_.kind is Kind.BIGINT else None


def _as_double(value: object) -> object:
    return float(value) if isinstance(value, int) else value


# Evaluation strategies of window calls: the dispatch table of M37.
#
# | window | aggregate | strategy |
# |---|---|---|
# | UNBOUNDED PRECEDING | any | UNBOUNDED |
# | without slide | any | FINITE |
# | slide as long as the window, or longer | any | TUMBLE |
# | shorter slide | ALGEBRAIC | PANES |
# | shorter slide | any other | SLIDING |
# | ACTIVE EXPIRATION | any | ACTIVE |


class Strategy(Enum):
    """Entries of the dispatch table; the values describe the evaluation."""

    UNBOUNDED = "base, TERMINATE after each tuple"
    FINITE = "window version"
    TUMBLE = "base restarted in each slot"
    PANES = "base per pane, then window version"
    SLIDING = "window version, output on yield tuples only"
    ACTIVE = "window version and negative tuples"


def strategy_of(definition: RowAggregate, frame: WindowFrame) -> Strategy:
    if frame.active:
        return Strategy.ACTIVE
    if frame.length is None:
        return Strategy.UNBOUNDED
    if frame.slide is None:
        return Strategy.FINITE
    if frame.slide >= frame.length:
        return Strategy.TUMBLE
    return Strategy.PANES if definition.algebraic else Strategy.SLIDING
