"""Interface of an aggregate for the operators that run it (M29-M32, M35).

An aggregate has up to two independent variants, declared by CREATE AGGREGATE and CREATE WINDOW AGGREGATE. The
variant for unbounded streams (`base`) receives tuples one by one, and may return values at each tuple and at
the end (TERMINATE). The variant for windows (`window`) can also read the window, and is called for each tuple
that expires (EXPIRE). The routines INITIALIZE, ITERATE, EXPIRE and TERMINATE return values by inserting into
RETURN. A call of a routine returns the list of these values, which may be empty. If RETURN has several
columns, a value is a tuple.
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
    """Key that stands for NaN in group keys, because NaN does not equal itself.

    This key equals itself, also after a restart.
    """

    NAN = "NaN"


def comparable(values: Row) -> Row:
    """Convert values to a key that compares as in GROUP BY, PARTITION BY and DISTINCT.

    As in Spark, NaN equals NaN and -0.0 equals 0.0.
    """
    return tuple(NanKey.NAN if value != value else value for value in values)


def normalize_zeros(values: Row) -> Row:
    """Convert negative zeros in group keys to zeros, as Spark does."""
    return tuple(0.0 if value == 0 and isinstance(value, float) else value for value in values)


class RowAccumulator(Protocol):
    """Common interface of accumulators for unbounded streams and for windows.

    An accumulator is the running state of an aggregate for one group or partition. Checkpoints store it as
    plain values.
    """

    def state(self) -> object: ...

    def restore(self, state: Any) -> None:
        """Load a stored state into a fresh accumulator."""
        ...

    def initialize(self, args: Args) -> Returned:
        """Process the first tuple of the group or partition."""
        ...

    def iterate(self, args: Args) -> Returned:
        """Process a tuple that is not the first of its group or partition."""
        ...


class BaseAccumulator(RowAccumulator, Protocol):
    """Accumulator of an aggregate without a window: its running state for one group."""

    def terminate(self) -> Returned:
        """Return the result over all tuples so far, without changing the state.

        UNBOUNDED PRECEDING calls `terminate` after every tuple (M31). An accumulator without tuples returns
        the result of an empty input.
        """
        ...


class WindowAccumulator(RowAccumulator, Protocol):
    """Accumulator of an aggregate over a window: its running state for one partition.

    An accumulator is created with a reference to the window. When `initialize` or `iterate` runs, the window
    already contains the new tuple (X6).
    """

    def expire(self, args: Args) -> Returned:
        """Process the expiry of the oldest tuple, which is removed from the window afterwards.

        The returned values are emitted only under ACTIVE EXPIRATION.
        """
        ...


BaseFactory = Callable[[], BaseAccumulator]
WindowFactory = Callable[[Inwindow], WindowAccumulator]


@dataclass(frozen=True, slots=True)
class Panes:
    """Evaluation by panes: an aggregate of one pane, and an aggregate that combines the panes of a window.

    A pane is an interval between two window borders. `pane` computes one value per pane, and `combine`
    receives these values as its arguments. An aggregate without `Panes` combines its own results.
    """

    pane: BaseFactory
    combine: RowAggregate


@dataclass(frozen=True, slots=True)
class RowAggregate:
    """Aggregate function: its variants for unbounded streams and for windows, and its properties.

    - `base` creates an accumulator for unbounded streams, `window` an accumulator for a window.
    - `algebraic` aggregates can be evaluated by panes, the intervals between window borders. Without `panes`,
      such an aggregate combines its own results, as sum, min and max do.
    - `columns` is the number of columns of RETURN. Unless it is 1, each value is a tuple.
    - `forgets`: the variant for windows deletes tuples that cannot affect later results. EXPIRE is not called
      for deleted tuples.
    - `numbered`: in a window, a tuple's arrival number in its partition follows the arguments.
    - `finish` converts a value to the declared type of the column.
    - `statistic` creates the state that both variants share, if the aggregate is a `Statistic`.
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
        """Convert a value that the aggregate returned to a row with the declared column types."""
        if self.columns != 1:
            return cast(Row, value)
        return (value if self.finish is None or value is None else self.finish(value),)


@dataclass(frozen=True, slots=True)
class RowCall:
    """Call of an aggregate in a SELECT list: the aggregate, and the function from a row to its arguments."""

    definition: RowAggregate
    arguments: Callable[[Row], Args]


class Stepper:
    """Calls INITIALIZE of an accumulator for the first tuple, and ITERATE for all other tuples (M30)."""

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
        """Return the accumulator's state, and True if a tuple has arrived."""
        return self._accumulator.state(), self._started

    def restore(self, state: tuple[Any, bool]) -> None:
        accumulator_state, self._started = state
        self._accumulator.restore(accumulator_state)


class BaseRun:
    """Accumulator of one group, without a window, together with what it returned for the latest tuple.

    Its value is what the routines returned for the latest tuple, followed by what TERMINATE returns. So
    UNBOUNDED PRECEDING, tumbling windows, panes and recomputed windows treat aggregates that return only in
    TERMINATE (blocking) like aggregates that return only at tuples (non-blocking).
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
    """Return the aggregate's variant for unbounded streams, or raise an error if there is none."""
    if definition.base is None:
        raise SlicemillError(
            f"aggregate {definition.name} has only a WINDOW version; GROUP BY, UNBOUNDED PRECEDING, a tumble "
            f"and panes run the base version: add CREATE AGGREGATE {definition.name}"
        )
    return definition.base


def evaluate(base: BaseFactory, tuples: Iterable[Args]) -> Returned:
    """Evaluate an aggregate over a finite list of tuples, and return its values after the last tuple."""
    run = BaseRun(base)
    for args in tuples:
        run.step(args)
    return run.value()


def align(definitions: Sequence[RowAggregate], returned: Sequence[Returned]) -> list[Row]:
    """Combine the values that several aggregate calls returned into rows.

    The i-th row has the i-th value of each call, or NULL for a call with fewer values.
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
    """Accumulator for a window that evaluates the whole window again at each tuple (N1).

    It serves aggregates that have only a variant for unbounded streams.
    """

    __slots__ = ("_base", "_inwindow")

    def __init__(self, base: BaseFactory, inwindow: Inwindow) -> None:
        self._base = base
        self._inwindow = inwindow

    def initialize(self, args: Args) -> Returned:  # noqa: ARG002
        return evaluate(self._base, self._inwindow)

    iterate = initialize

    def expire(self, args: Args) -> Returned:  # noqa: ARG002
        remaining = list(self._inwindow)[1:]
        return evaluate(self._base, remaining) if remaining else []

    def state(self) -> object:
        """Return None, because the window is stored separately and there is no other state."""
        return None

    def restore(self, state: Any) -> None:
        pass


def window_version(definition: RowAggregate) -> WindowFactory:
    """Return the aggregate's variant for windows.

    If it is not declared, each result is computed from the whole window by the variant for unbounded streams.
    """
    if definition.window is not None:
        return definition.window
    return partial(RecomputedWindow, base_of(definition))


def result_converter(type_: Type) -> Callable[[Any], object] | None:
    """Return a function that converts non-NULL results of an aggregate to the declared type.

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


# Evaluation strategies of window calls (M37)
#
# The strategy depends on the window and on the declaration of the aggregate:
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
    """How a window call is evaluated. The values are descriptions for people."""

    UNBOUNDED = "without a window, TERMINATE after each tuple"
    FINITE = "over the window, output at each tuple"
    TUMBLE = "without a window, restarted in each slide interval"
    PANES = "one value per pane, combined over the window"
    SLIDING = "over the window, output at the last tuple of each slide interval"
    ACTIVE = "over the window, output at arrivals and expiries"


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
