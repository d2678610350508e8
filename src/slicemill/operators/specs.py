"""The operators of a query graph: immutable data that says what to compute, not how.

Both engines take these: `reference` tuple at a time, `engine` set at a time.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, TypeAlias

from slicemill.aggregate.model_calls import Asked
from slicemill.esl.types.budget import Budget
from slicemill.esl.types.catalog import TimestampKind
from slicemill.esl.types.classifier import Classifier
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.load_budget import LoadBudget
from slicemill.esl.types.query import FrameUnit, Window, WindowCall
from slicemill.esl.types.relation import AggregateCall, SelectItem
from slicemill.esl.types.schema import Column
from slicemill.operators.join.slices.statistics import Statistics


@dataclass(frozen=True, slots=True)
class Source:
    """A declared stream: its tuples enter here, put in order if they come late by no more than the slack."""

    stream: str
    kind: TimestampKind
    slack_us: int = 0


@dataclass(frozen=True, slots=True)
class Scan:
    """A table or a view over tables: a finite relation that stays as it is."""

    relation: str


@dataclass(frozen=True, slots=True)
class Filter:
    condition: Expr


@dataclass(frozen=True, slots=True)
class Project:
    items: tuple[SelectItem, ...]


@dataclass(frozen=True, slots=True)
class Drop:
    """A drop box: under load, only a share of the tuples goes on (S54).

    `weight` is that of the queries behind it; `utility` says which tuples they would miss most; `range_us` is
    that of their windows, where whole windows go.
    """

    budget: LoadBudget
    weight: float
    utility: Expr | None = None
    range_us: int | None = None


@dataclass(frozen=True, slots=True)
class WholeWindows:
    """Lets pass the results of windows of which the drop box `box` has dropped nothing."""

    box: str


@dataclass(frozen=True, slots=True)
class Merge:
    """UNION: sort-merge of its inputs by timestamp (M14, M21)."""


@dataclass(frozen=True, slots=True)
class AgeLimit:
    """Under load, pairs of tuples that are far apart in time are not looked for (S55)."""

    budget: LoadBudget
    weight: float


@dataclass(frozen=True, slots=True)
class WindowJoin:
    """Joins two or more streams over a window each; output columns are `alias.column`.

    `member_times` adds a column `alias._ts` per input: a joined tuple carries its members' timestamps (S1)
    where an aggregate needs to know when it leaves the windows.
    """

    aliases: tuple[str, ...]
    windows: tuple[Window, ...]
    condition: Expr | None
    member_times: bool = False
    limit: AgeLimit | None = None


@dataclass(frozen=True, slots=True)
class JoinMember:
    """One of the joins that share a chain of state slices (S14, S19).

    `selections` are conditions on the inputs' own columns. `residual` is what remains of the condition beside
    equal keys; it calls the inputs' columns `0.column` and `1.column`. `columns` are what comes out: a name,
    the input and the column there, `_ts` for the tuple's timestamp, `_number` for its number in the stream.
    """

    name: str
    windows: tuple[Window, Window]
    selections: tuple[Expr | None, Expr | None]
    residual: Expr | None
    columns: tuple[tuple[str, int, str], ...]
    limit: AgeLimit | None = None


@dataclass(frozen=True, slots=True)
class SharedJoin:
    """Joins of the same two inputs on equal `keys`, which are in the inputs' own columns, run as one.

    `deadlines` are for tuples of input 0 that are joined themselves: columns with their members' timestamps,
    and for how long after it each member can be met (S2: windows are those of the streams).
    `measured` is for those who explain the plan.
    """

    keys: tuple[tuple[Expr, ...], tuple[Expr, ...]]
    members: tuple[JoinMember, ...]
    deadlines: tuple[tuple[str, int], ...] = ()
    measured: Statistics | None = field(default=None, compare=False)

    @property
    def counts_rows(self) -> bool:
        """Is there a window that holds so many rows, whatever their keys are?"""
        windows = (window for member in self.members for window in member.windows)
        return any(window.frame is FrameUnit.ROWS for window in windows)


@dataclass(frozen=True, slots=True)
class InOrder:
    """Joined tuples in the order in which one join of all streams gives them.

    `members` are columns, for each stream in the order of FROM: its timestamp, and its number in the stream.
    Tuples come by their latest member, then by the numbers of the others.
    """

    members: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Lookup:
    """Joins each tuple of a stream (input 0) with the matching rows of a finite relation (input 1).

    `stream_alias` is empty where the stream's columns are qualified already. With `left`, a tuple without a
    match goes on with NULLs.
    """

    stream_alias: str
    alias: str
    condition: Expr | None
    left: bool


@dataclass(frozen=True, slots=True)
class GroupAggregate:
    """Base aggregates over all history, hashed by group: a row whenever one of them returns (M30)."""

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]


@dataclass(frozen=True, slots=True)
class RelationAggregate:
    """Base aggregates over the windows of FROM: a row per group at each slide, or per arrival without one.

    `windows` belong to the inputs of the join below, in order, with the column of each member's timestamp;
    a single stream's own timestamp has no column. `where` selects from the content of a ROWS window: before
    it, a condition would change which rows are the last ones.
    """

    group_by: tuple[SelectItem, ...]
    calls: tuple[AggregateCall, ...]
    windows: tuple[tuple[str | None, Window], ...]
    slide: int | None
    where: Expr | None = None


@dataclass(frozen=True, slots=True)
class WindowAggregate:
    """Aggregates with OVER: a row per tuple, or per yield tuple of a slide, with a column per call (M37)."""

    calls: tuple[WindowCall, ...]


@dataclass(frozen=True, slots=True)
class WindowMember:
    """One of the aggregates that share panes (M35): what selects its tuples, and what it computes of them.

    `name` is the same as long as its query lives. `columns` are those of its output that somebody reads.
    `partial`: results are put together from partial results of panes; else from the values of their tuples.
    """

    name: str
    conditions: tuple[Expr, ...]
    operator: RelationAggregate | WindowAggregate
    columns: tuple[Column, ...]
    partial: bool

    @property
    def windows(self) -> tuple[tuple[int, int], ...]:
        """The lengths and slides of its windows, in microseconds."""
        if isinstance(self.operator, RelationAggregate):
            found = [(self.operator.windows[0][1].extent, self.operator.slide)]
        else:
            found = [(call.window.extent, call.window.slide) for call in self.operator.calls]
        return tuple((length, slide) for length, slide in found if length is not None and slide is not None)


@dataclass(frozen=True, slots=True)
class SharedWindows:
    """Aggregates over windows of time that slide, all of one input and by the same keys, run as one."""

    keys: tuple[Expr, ...]
    members: tuple[WindowMember, ...]


@dataclass(frozen=True, slots=True)
class ModelMember:
    """One of the window aggregates that share cores; `asked` are the models of its calls.

    `name` is the same as long as its query lives; `query` is what people call that.
    """

    name: str
    query: str
    operator: WindowAggregate
    asked: tuple[Asked, ...]
    columns: tuple[Column, ...]


@dataclass(frozen=True, slots=True)
class SharedModels:
    """Models with OVER of one input and by the same keys, run as one: equal cores are kept once (C14)."""

    keys: tuple[Expr, ...]
    members: tuple[ModelMember, ...]

    @property
    def calls(self) -> tuple[WindowCall, ...]:
        return tuple(call for member in self.members for call in member.operator.calls)


@dataclass(frozen=True, slots=True)
class Coalesce:
    """Maximal runs of equal attributes with their valid period, reported at each slide (L4-L8).

    `where` says which tuples make runs. It is no filter below: a tuple holds until the next one arrives (L3),
    whether or not that one is selected. With a `budget` tuples may be dropped; `wanted` says of which runs
    their accuracy is told.
    """

    attributes: tuple[str, ...]
    partition_by: tuple[SelectItem, ...]
    window: Window
    where: Expr | None = None
    budget: Budget | None = None
    wanted: Expr | None = None


@dataclass(frozen=True, slots=True)
class Classify:
    """Decides on every task in every time unit, and looks at few of its features (M49-M57).

    Its inputs are the streams of features, in order, and the table of examples.
    """

    classifier: Classifier


@dataclass(frozen=True, slots=True)
class Materialize:
    """A view over a stream: what its window holds, which other tuples look up at their own time (M40)."""

    view: str
    window: Window


@dataclass(frozen=True, slots=True)
class Part:
    """What a shared operator, its input, gives for the member of this name."""

    member: str


def member_of(shared: Shared, part: Part) -> JoinMember | WindowMember | ModelMember:
    """The member that a part is of."""
    return next(member for member in shared.members if member.name == part.member)


@dataclass(frozen=True, slots=True)
class Sink:
    query: str


Operator: TypeAlias = (
    Source
    | Scan
    | Filter
    | Drop
    | WholeWindows
    | Project
    | Merge
    | WindowJoin
    | SharedJoin
    | InOrder
    | Lookup
    | GroupAggregate
    | RelationAggregate
    | WindowAggregate
    | SharedWindows
    | SharedModels
    | Coalesce
    | Classify
    | Materialize
    | Part
    | Sink
)


Shared: TypeAlias = SharedJoin | SharedWindows | SharedModels


def with_members(shared: Shared, members: Iterable[Any]) -> Shared:
    """A shared operator with other members of its own kind."""
    if isinstance(shared, SharedJoin):
        return replace(shared, members=tuple(members))
    if isinstance(shared, SharedModels):
        return replace(shared, members=tuple(members))
    return replace(shared, members=tuple(members))


def waits_for_time(operator: Operator, kind: TimestampKind) -> bool:
    """Is the operator idle-waiting-prone (IWP, M21)? `kind` is that of its inputs together.

    It holds tuples back until all inputs are known complete up to some time. Latent tuples have no time to
    wait for: a union passes them on at once.
    """
    if isinstance(operator, (WindowJoin, SharedJoin, SharedWindows, Coalesce, Classify)):
        return True
    if isinstance(operator, Merge):
        return kind is not TimestampKind.LATENT
    if isinstance(operator, RelationAggregate):
        return operator.slide is not None and operator.windows[0][1].frame is FrameUnit.RANGE
    if isinstance(operator, (WindowAggregate, SharedModels)):
        windows = [call.window for call in operator.calls]
        return any(w.active or (w.slide is not None and w.frame is FrameUnit.RANGE) for w in windows)
    return False
