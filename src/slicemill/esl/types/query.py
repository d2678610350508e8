"""Continuous queries, bound and typed: what `plan` turns into a query graph.

Within a Select, columns of a single input are read by their own name; where several inputs are joined, as
`alias.column`. Values of aggregates are read as columns named after the call.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias

from slicemill.esl.types.budget import Budget
from slicemill.esl.types.expression import ColumnRef, Expr
from slicemill.esl.types.relation import AggregateCall, RelationInput, SelectItem
from slicemill.esl.types.schema import Column, Schema
from slicemill.time import format_us


class FrameUnit(StrEnum):
    ROWS = "ROWS"
    RANGE = "RANGE"


@dataclass(frozen=True, slots=True)
class ExpiryColumn:
    """A time in a tuple's own column, and so much later: from then on it is met no more. NULL is long ago."""

    column: str
    after_us: int = 0

    def __str__(self) -> str:
        return self.column if not self.after_us else f"{self.column} + {format_us(self.after_us)}"


@dataclass(frozen=True, slots=True)
class Window:
    """A window that ends now: `extent` tuples or microseconds long, or unbounded where that is None.

    For OVER, `extent` is what is written: ROWS 9 PRECEDING holds ten rows, RANGE is inclusive (SQL:2003).
    For FROM, a window of w holds the tuples of age 0 <= age < w, and ROWS n the last n. One that `grows`
    begins at the last multiple of its extent, and is as long as that when it begins anew. Of a join's, tuples
    that have `expires` meet only what has an earlier timestamp than that.
    """

    frame: FrameUnit
    extent: int | None
    slide: int | None = None
    active: bool = False
    grows: bool = False
    expires: ExpiryColumn | None = None

    @property
    def tumbles(self) -> bool:
        """Of an OVER window: does it slide by at least its own length, so that no tuple is seen twice?"""
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
    """What a join of two streams gives: pairs, and rows without a partner when their window has passed.

    SEMI gives rows of the first stream, once, at their first match; ANTI those that have none.
    """

    INNER = "INNER"
    LEFT = "LEFT"
    RIGHT = "RIGHT"
    FULL = "FULL"
    SEMI = "SEMI"
    ANTI = "ANTI"

    @property
    def judged(self) -> tuple[int, ...]:
        """The inputs of whose rows it must be known whether they have been matched."""
        return (0,) if self is JoinKind.SEMI else self.unmatched

    @property
    def unmatched(self) -> tuple[int, ...]:
        """The inputs whose rows come out when they can no longer be matched."""
        return _UNMATCHED.get(self, ())


_UNMATCHED = {JoinKind.LEFT: (0,), JoinKind.RIGHT: (1,), JoinKind.FULL: (0, 1), JoinKind.ANTI: (0,)}


@dataclass(frozen=True, slots=True)
class AsOf:
    """A stream of which each tuple of another meets the latest row: no later than it, or earlier (`strict`).

    With `left`, a tuple that finds none comes out with NULLs.
    """

    left: bool
    strict: bool


@dataclass(frozen=True, slots=True)
class SessionWindow:
    """Tuples of a group that hang together: each holds its session open, and the next one comes in time.

    A tuple holds it open for `gap_us`, or `until` the time that a column says, or for ever. The first
    tuple for which `close` is true is its last.
    """

    gap_us: int | None = None
    until: Expr | None = None
    close: Expr | None = None

    @property
    def exprs(self) -> tuple[Expr, ...]:
        return tuple(expr for expr in (self.until, self.close) if expr is not None)


@dataclass(frozen=True, slots=True)
class QueryInput:
    """One entry of FROM.

    `relation` names a stream, table or view of the catalog; or `query` is a sub-query in its place. Tables
    and views (`finite`) are looked up by the streams' tuples and have no window here. `left_on` makes a
    finite input optional: without a match its columns are NULL. `call` is `TABLE(f(…))`, finite too. `kind`
    is how a stream is joined with those before it; where that is no inner join, or one of three and more
    streams that are joined in turn, `on` is its condition, apart from WHERE. Of one `as_of` another, that
    has equalities, and conditions on its own columns. A tuple that `closes` ends the window that its key
    has in a join (CLOSE WHEN).
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
    """`function() OVER (PARTITION BY … ORDER BY …)`: order is by expressions, each descending or not.

    Rows that are equal in all of them come as they arrived, or the latest one first.
    """

    function: str  # row_number, rank or dense_rank
    partition_by: tuple[Expr, ...]
    order_by: tuple[tuple[Expr, bool], ...]
    oldest_first: bool = False  # the order is that of time, so that no later row comes before another
    latest_first: bool = False
    of_one_time: bool = False  # all rows of a partition have one timestamp: it is whole when that has passed

    @property
    def stays(self) -> bool:
        """Are the first rows of rows that only come told once, and never taken back?"""
        return self.oldest_first or self.of_one_time

    def keyed_by_place(self, limit: int | None, shown: str | None, below: Schema) -> bool:
        """Return True if a result row stands for a place in its partition, so that another row updates it.

        A changelog's rows keep their own identity where the partition is an expression: no column of the
        result says then which place of which partition a row has.
        """
        if self.function != "row_number" or (shown is None and limit != 1):
            return False
        return not below.changelog or all(isinstance(expr, ColumnRef) for expr in self.partition_by)

    def key(self, limit: int | None, shown: str | None, below: Schema) -> tuple[str, ...] | None:
        """Return the columns that identify a result row; `shown` is the rank's, if the result has one."""
        if not self.keyed_by_place(limit, shown, below):
            return below.key
        partition = tuple(expr.name for expr in self.partition_by if isinstance(expr, ColumnRef))
        if len(partition) < len(self.partition_by):
            return None
        return partition if shown is None or limit == 1 else (*partition, shown)


@dataclass(frozen=True, slots=True)
class Rank:
    """A rank among the columns of a SELECT; `limit` is the last one that is asked for, None if none is yet.

    `shown`: its column is read by somebody.
    """

    by: RankedBy
    column: Column
    limit: int | None = None
    shown: bool = True


@dataclass(frozen=True, slots=True)
class EmitClause:
    """When changes are told: every so many microseconds, or once, at the end."""

    every: int | None


@dataclass(frozen=True, slots=True)
class LateTuples:
    """Tuples of a stream's late log that a temporal query takes in (L5): `stream` is that log's.

    They hold from the time in `column` on, and may arrive up to `within_us` after it.
    """

    stream: str
    column: str
    within_us: int


@dataclass(frozen=True, slots=True)
class Corrections:
    """Windows tell results before they end, every so many microseconds of the watermark, and take in `late`
    tuples after it."""

    every: int | None
    late: LateTuples | None


@dataclass(frozen=True, slots=True)
class TemporalQuery:
    """A temporal query (L6): runs of equal `attributes` per partition become (attributes, valid period).

    `before` selects the tuples that make runs, `after` selects runs; the window and its slide say when runs
    are reported. Without a budget all tuples of the window are kept. `tells_open`: OPEN(S) is asked for.
    `changes`: a run is told when it begins and when it ends (L8). `late`: tuples that come late correct runs.
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
    """Inputs are joined on `where`; then aggregates or window calls; then `items` are computed.

    Aggregates that answer at the end of their input range over the windows of the inputs; those that answer
    at each tuple (`running`) go on over all history. `changing`: groups are over all history, and what is
    computed is told whenever it changes. Then come the first rows by `rank` and `qualify`, or the first
    `limit` ones of each window by `order`; at last `distinct` and `emit`.
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
    def corrected_key(self) -> tuple[str, ...] | None:
        """By what rows of windows are told apart that are told early; sessions end later than they say.

        A session that is closed may be followed by another at the same time.
        """
        if self.session is not None and self.session.close is not None:
            return None
        bound = "window_end" if self.session is None else "window_start"
        return (*(item.name for item in self.group_by), bound)

    @property
    def slide(self) -> int | None:
        """How often an aggregate over the windows of FROM reports; None for at each arrival."""
        return next((i.window.slide for i in self.inputs if i.window and i.window.slide is not None), None)


@dataclass(frozen=True, slots=True)
class UnionQuery:
    """Sort-merge of the branches by timestamp; every tuple is kept."""

    branches: tuple[Continuous, ...]
    schema: Schema


Continuous: TypeAlias = SelectQuery | UnionQuery
