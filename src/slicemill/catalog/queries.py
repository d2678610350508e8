"""Continuous queries, bound and typed, which are the input of the planner.

The package `plan` translates queries into a query graph. A SELECT with one input reads columns by their own
names, a join reads them as `alias.column`. Results of aggregates are columns named after the call.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from slicemill.catalog.expressions import ColumnRef, Expr
from slicemill.time import UNITS_US, format_us, unit_name
from slicemill.types import Column, Schema


class FrameUnit(StrEnum):
    ROWS = "ROWS"
    RANGE = "RANGE"


@dataclass(frozen=True, slots=True)
class ExpiryColumn:
    """Expiry time of a tuple: a column of the tuple plus `after_us`.

    A tuple with NULL in the column has already expired.
    """

    column: str
    after_us: int = 0

    def __str__(self) -> str:
        return self.column if not self.after_us else f"{self.column} + {format_us(self.after_us)}"


@dataclass(frozen=True, slots=True)
class Window:
    """Window of tuples or of time that ends at the current tuple.

    `extent` is the length in tuples or microseconds, or None for an unbounded window. OVER follows SQL:2003:
    ROWS 9 PRECEDING holds ten rows, and RANGE includes a tuple exactly as old as the window. FROM excludes
    that tuple: a window of length w holds the tuples of age 0 <= age < w, and ROWS n holds the last n tuples.

    A window that `grows` begins at the last multiple of its extent (CUMULATE). In a join, a tuple with
    `expires` matches only tuples with a timestamp before its expiry time.
    """

    frame: FrameUnit
    extent: int | None
    slide: int | None = None
    active: bool = False
    grows: bool = False
    expires: ExpiryColumn | None = None

    @property
    def tumbles(self) -> bool:
        """Return True if successive windows of an OVER clause with SLIDE do not overlap."""
        if self.slide is None or self.extent is None:
            return False
        return self.slide >= self.extent + (1 if self.frame is FrameUnit.ROWS else 0)

    def __str__(self) -> str:
        show = format_us if self.frame is FrameUnit.RANGE else str
        words = [self.frame.value, "UNBOUNDED" if self.extent is None else show(self.extent)]
        if self.slide is not None:
            words += ["SLIDE", show(self.slide)]
        if self.active:
            words.append("ACTIVE EXPIRATION")
        if self.grows:
            words.append("CUMULATE")
        if self.expires is not None:
            words.append(f"EXPIRES AT {self.expires}")
        return " ".join(words)


class JoinKind(StrEnum):
    """Kind of a stream join.

    Outer joins emit unmatched rows when their window has passed. SEMI emits a row of the first stream once,
    at its first match. ANTI emits rows of the first stream without a match.
    """

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"

    @property
    def judged(self) -> tuple[int, ...]:
        """Return the inputs of a join whose rows need a flag for having matched."""
        return (0,) if self is JoinKind.SEMI else self.outer_inputs

    @property
    def outer_inputs(self) -> tuple[int, ...]:
        """Return the inputs whose unmatched rows are emitted when they expire."""
        return _UNMATCHED.get(self, ())


_UNMATCHED = {JoinKind.LEFT: (0,), JoinKind.RIGHT: (1,), JoinKind.FULL: (0, 1), JoinKind.ANTI: (0,)}


@dataclass(frozen=True, slots=True)
class AsOf:
    """ASOF join: each tuple matches the latest earlier row of this stream.

    The row is not later than the tuple, or strictly earlier with `strict`. With `left`, a tuple without a
    match is emitted with NULLs.
    """

    left: bool
    strict: bool


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Session window, which ends when no tuple arrives in time.

    Each tuple keeps its session open for `gap_us`, or `until` the time in a column, or without limit. The
    first tuple that fulfils `close` ends the session.
    """

    gap_us: int | None = None
    until: Expr | None = None
    close: Expr | None = None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return tuple(expr for expr in (self.until, self.close) if expr is not None)


@dataclass(frozen=True, slots=True)
class QueryInput:
    """Entry of FROM in a continuous query: a stream, table, view, sub-query or call.

    The entry is a stream, table or view of the catalog (`relation`), a sub-query (`query`), or `TABLE(f(…))`
    (`call`). Tables, views and calls are `finite`. A finite input has no window: each tuple of the streams
    looks up its rows. If `left_on` is set, a tuple without a match has NULLs in the columns of the finite
    input.

    `kind` is the kind of the join with the preceding streams. `on` is the condition of an outer join, or of
    any join in a chain of three or more streams. Other conditions are in WHERE. An ASOF join has `as_of`; its
    `on` has equalities and conditions on its own columns. A tuple that fulfils `closes` ends the window of
    its key (CLOSE WHEN).
    """

    alias: str
    schema: Schema
    relation: str | None = None
    query: Continuous | None = None
    window: Window | None = None
    finite: bool = False
    left_on: Expr | None = None
    call: RelationInput | None = None
    kind: JoinKind = JoinKind.INNER
    on: Expr | None = None
    as_of: AsOf | None = None
    closes: Expr | None = None


@dataclass(frozen=True, slots=True)
class WindowCall:
    """`aggregate(arguments) OVER (PARTITION BY … window)`."""

    name: str
    arguments: tuple[Expr, ...]
    distinct: bool
    partition_by: tuple[Expr, ...]
    window: Window
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class RankedBy:
    """Ranking call such as `rank() OVER (PARTITION BY … ORDER BY …)`.

    `order_by` has pairs of a sort key and its descending flag. Rows with equal keys are ranked in order of
    arrival, or in reverse order with `latest_first`.
    """

    function: str  # name of the ranking function: row_number, rank or dense_rank
    partition_by: tuple[Expr, ...]
    order_by: tuple[tuple[Expr, bool], ...]
    oldest_first: bool = False  # True for an order by time, in which no later row precedes an earlier row
    latest_first: bool = False
    of_one_time: bool = False  # True if all rows of a partition have the same timestamp

    @property
    def never_retracts(self) -> bool:
        """Return True if a row of insert-only input keeps its rank when later rows arrive."""
        return self.oldest_first or self.of_one_time

    def is_keyed_by_rank(self, limit: int | None, shown: str | None, below: Schema) -> bool:
        """Return True if a result row is identified by its rank.

        A new row with the same rank then updates the old row. Rows of a changelog keep their own identity if
        the partition is an expression, because then no result column identifies the partition.
        """
        if self.function != "row_number" or (shown is None and limit != 1):
            return False
        return not below.changelog or all(isinstance(expr, ColumnRef) for expr in self.partition_by)

    def key(self, limit: int | None, shown: str | None, below: Schema) -> tuple[str, ...] | None:
        """Return the key columns of result rows.

        `shown` is the name of the rank column, if the result has it.
        """
        if not self.is_keyed_by_rank(limit, shown, below):
            return below.key
        partition = tuple(expr.name for expr in self.partition_by if isinstance(expr, ColumnRef))
        if len(partition) < len(self.partition_by):
            return None
        return partition if shown is None or limit == 1 else (*partition, shown)


@dataclass(frozen=True, slots=True)
class Rank:
    """Rank column of a SELECT, such as row_number().

    `limit` is the highest rank that the query reads, or None while it is unknown. `shown` is set if the query
    reads the rank itself.
    """

    by: RankedBy
    column: Column
    limit: int | None = None
    shown: bool = True


@dataclass(frozen=True, slots=True)
class EmitClause:
    """EMIT EVERY with its interval in microseconds, or EMIT FINAL with the interval None."""

    every: int | None


@dataclass(frozen=True, slots=True)
class LateTuples:
    """Late tuples that correct the results of a temporal query (L5).

    `stream` is the name of the late log, and `column` is the column of their timestamps. A tuple is accepted
    if it arrives at most `within_us` after its timestamp.
    """

    stream: str
    column: str
    within_us: int


@dataclass(frozen=True, slots=True)
class Corrections:
    """EMIT EARLY … LATE …: early and corrected results of windows.

    Windows emit before they end, and again after late tuples. `every` is the interval between early results,
    in microseconds of event time.
    """

    every: int | None
    late: LateTuples | None


@dataclass(frozen=True, slots=True)
class TemporalQuery:
    """Temporal query, which merges successive tuples with equal values (L6).

    A run (value run) consists of successive tuples of a partition with equal `attributes`, and becomes one
    row with a valid period. `before` filters tuples, `after` filters runs. The window and its slide determine
    when runs are emitted. Without a `budget`, all tuples of the window are kept. `tells_open` is set if the
    query reads OPEN(S). With `changes`, a run is emitted when it begins and when it ends (L8). `late` tuples
    correct runs.
    """

    attributes: tuple[str, ...]
    partition_by: tuple[SelectItem, ...]
    window: Window
    before: Expr | None
    after: Expr | None
    schema: Schema
    budget: Budget | None = None
    tells_open: bool = False
    changes: bool = False
    late: LateTuples | None = None


@dataclass(frozen=True, slots=True)
class SelectQuery:
    """Continuous SELECT over streams.

    The clauses are evaluated in this order: the inputs are joined on `where`, then aggregates or window calls
    are computed, then `items`. Blocking aggregates cover the windows of the inputs. `running` aggregates emit
    at each tuple and cover all tuples so far. With `changing`, groups cover all tuples so far and emit a
    changelog. Then `rank` and `qualify` select the first rows, or `order` and `limit` select the first rows
    of each window. `distinct` and `emit` apply last.
    """

    inputs: tuple[QueryInput, ...]
    where: Expr | None
    group_by: tuple[SelectItem, ...]
    aggregates: tuple[AggregateCall, ...]
    running: bool
    having: Expr | None
    window_calls: tuple[WindowCall, ...]
    coalesce: TemporalQuery | None
    items: tuple[SelectItem, ...]
    schema: Schema
    session: SessionWindow | None = None
    changing: bool = False
    rank: Rank | None = None
    qualify: Expr | None = None
    order: RankedBy | None = None
    limit: int | None = None
    distinct: bool = False
    emit: EmitClause | None = None
    corrections: Corrections | None = None

    @property
    def early_result_key(self) -> tuple[str, ...] | None:
        """Return the key of window results that may be emitted early.

        The key consists of the group columns and the end of the window. For a session, the key has the start
        and not the end, which changes. A session with `close` has no key, because another session may follow
        at the same time.
        """
        if self.session is not None and self.session.close is not None:
            return None
        bound = "window_end" if self.session is None else "window_start"
        return (*(item.name for item in self.group_by), bound)

    @property
    def slide(self) -> int | None:
        """Return the slide of the windows in FROM, or None if aggregates emit at each tuple."""
        return next((i.window.slide for i in self.inputs if i.window and i.window.slide is not None), None)


@dataclass(frozen=True, slots=True)
class UnionQuery:
    """UNION ALL, which merges the rows of its branches by timestamp."""

    branches: tuple[Continuous, ...]
    schema: Schema


Continuous: TypeAlias = SelectQuery | UnionQuery


# Queries over finite relations: tables, views, and local tables of aggregates (M29, M40)
#
# These queries have the semantics of standard SQL: aggregates may block, and results may be sorted and
# limited.


@dataclass(frozen=True, slots=True)
class SelectItem:
    """Output column: its name and expression."""

    name: str
    expr: Expr


@dataclass(frozen=True, slots=True)
class AggregateCall:
    """Call of an aggregate over groups, whose results are columns.

    `name` is resolved in the catalog, where a user's definition takes precedence over a built-in aggregate.
    """

    name: str
    arguments: tuple[Expr, ...]
    distinct: bool
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class RelationInput:
    """Entry of FROM in a query over finite relations.

    Columns of the entry are read as `alias.column`, so that a correlated sub-query can read an outer row.
    With `arguments` the entry is `TABLE(f(…))`: `query` returns the rows, and reads the arguments by these
    names. The call is evaluated for each combination of rows of the preceding inputs. An entry with arguments
    but without `query` is `UNNEST(…)`, and its argument is the list. The rows of `more` follow the rows of
    `query`, as in UNION ALL.
    """

    relation: str
    alias: str
    schema: Schema
    query: RelationQuery | None = None  # sub-query in place of a table
    arguments: tuple[tuple[str, Expr], ...] | None = None
    more: tuple[RelationQuery, ...] = ()

    @property
    def queries(self) -> tuple[RelationQuery, ...]:
        """Return the queries that compute the rows, or () for a table."""
        return () if self.query is None else (self.query, *self.more)


@dataclass(frozen=True, slots=True)
class RelationQuery:
    inputs: tuple[RelationInput, ...]
    where: Expr | None
    group_by: tuple[SelectItem, ...]
    aggregates: tuple[AggregateCall, ...]
    having: Expr | None
    items: tuple[SelectItem, ...]
    distinct: bool
    order_by: tuple[tuple[Expr, bool], ...]  # sort expressions, each with its flag for descending order
    limit: int | None
    schema: Schema


# Service levels: bounds on a query's response times, as in `p99 < 2 s`


MEASURES = ("p50", "p95", "p99", "max", "mean")
_FORM = re.compile(r"\s*(\w+)\s*<\s*(\d+(?:\.\d+)?)\s*([a-z]+)\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class ServiceLevel:
    """Upper bound of a measure of response times, such as the 99th percentile."""

    measure: str
    bound_us: int

    @property
    def bound_s(self) -> float:
        return self.bound_us / 1_000_000

    def __str__(self) -> str:
        return f"{self.measure} < {format_us(self.bound_us).lower()}"


def service_level(text: str) -> ServiceLevel | None:
    """Parse a service level, or return None if the text is invalid.

    >>> str(service_level("P99<2 s")), str(service_level("mean < 1.5 ms")), service_level("p98 < 2 s")
    ('p99 < 2 seconds', 'mean < 1500 microseconds', None)
    """
    match = _FORM.fullmatch(text)
    unit = unit_name(match[3]) if match else None
    if match is None or match[1].lower() not in MEASURES or unit not in UNITS_US:
        return None
    bound_us = round(float(match[2]) * UNITS_US[unit])
    return ServiceLevel(match[1].lower(), bound_us) if bound_us > 0 else None


# Load-shedding budget of a query: limits on lag and memory
#
# This module does not import NumPy, because the binder checks budgets and must start fast.


RANDOM = "random"
UTILITY = "utility"
WINDOWS = "windows"
AGE = "age"
LOAD_SHEDDING_METHODS = {
    RANDOM: "tuples at random",
    UTILITY: "the tuples of least utility",
    WINDOWS: "whole windows, so that the others are exact",
    AGE: "pairs of a join, the oldest first",
}


@dataclass(frozen=True, slots=True)
class LoadBudget:
    """Bounds on lag and memory of a query that sheds load.

    At least the share `least` of the tuples is processed.
    """

    lag_us: int | None = None
    memory: int | None = None
    method: str = RANDOM
    least: float = 0.0


# Memory budget of a temporal query, and its shedding method


# Name of the default shedding method (`shedding.methods`).
DEFAULT = "lookahead"


class Slot(StrEnum):
    """Unit of a memory budget."""

    TUPLES = "tuples"
    RUNS = "runs"


# Names of shedding methods with a compiled implementation for time windows.
COMPILED = ("cals", "lookahead", "value", "threshold", "interval", "random")
# Bytes of state for each tuple or run of equal values.
# Compiled state is in columns, counted without values but with accuracy statistics.
# Other state consists of Python objects.
_IN_COLUMNS = 36 + 6
_AS_OBJECTS = {"random": 500}  # bytes by shedding method, if not _AS_OBJECT
_AS_OBJECT = 1000
_AS_RUN = 1300


@dataclass(frozen=True, slots=True)
class Budget:
    """Capacity of a temporal query's state, and its shedding method.

    `threshold` is the minimum duration of result rows that the query selects, in microseconds, if the method
    uses this duration. `by_rows` is set if the window counts tuples. `weights` are the costs of a false
    result and of lost time (L17), or None for the defaults of the method.
    """

    capacity: int
    slot: Slot = Slot.TUPLES
    method: str = DEFAULT
    threshold: int | None = None
    by_rows: bool = False
    weights: tuple[float, float] | None = None

    @property
    def compiled(self) -> bool:
        return self.slot is Slot.TUPLES and self.method in COMPILED and self._keeps_ends and not self.by_rows

    @property
    def _keeps_ends(self) -> bool:
        """Return True if splitting a result row costs at least as much as losing its time.

        Then only the first and the last tuple of a run of equal values are candidates for dropping.
        """
        return self.weights is None or self.weights[0] >= self.weights[1]

    def __str__(self) -> str:
        how = "the shortest run goes first" if self.slot is Slot.RUNS else f"shedding {self.method}"
        how += f"({self.weights[0]:g}, {self.weights[1]:g})" if self.weights is not None else ""
        return f"{self.capacity} {self.slot}, {how}"


def budget_bytes(budget: Budget) -> int:
    """Return the size in bytes of each tuple, or run of equal values, in the state.

    For columnar state, the size excludes the values.
    """
    if budget.compiled:
        return _IN_COLUMNS
    return _AS_RUN if budget.slot is Slot.RUNS else _AS_OBJECTS.get(budget.method, _AS_OBJECT)


# Changelog inputs of a SELECT, and the keys of their rows


def reads_changes(inputs: Sequence[QueryInput]) -> bool:
    return any(given.schema.changelog for given in inputs)


def joins_changes(inputs: Sequence[QueryInput]) -> bool:
    """Return True for a join with at least one changelog input."""
    return len(inputs) > 1 and reads_changes(inputs)


def schema_below(inputs: Sequence[QueryInput]) -> Schema:
    """Return the schema of the rows that a SELECT reads from FROM.

    For a join, only the changelog flag and the key are set. The key consists of the keys of both sides. A
    FULL JOIN has no key, because rows without a match have NULLs in the key columns of one side.
    """
    if not joins_changes(inputs):
        return inputs[0].schema
    key: list[str] = []
    for given in inputs:
        if given.schema.key is None or not given.schema.changelog or given.kind is JoinKind.FULL:
            return Schema((), True, None)
        key += [column.of(given.alias).name for column in given.schema.own if column.name in given.schema.key]
    return Schema((), True, tuple(key))
