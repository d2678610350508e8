"""Registration of operators for the planner, EXPLAIN and the engine.

The `spec.py` of each operator has its dataclass, followed by its `OperatorKind`. `registry` lists all kinds.
No other module tests the class of an operator. The functions of a kind take the operator, and where needed
its node and the graph. Execution steps are named by strings and imported on execution, so that planning loads
no kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import AggregateCall, FrameUnit, SelectItem, Window, WindowCall
from slicemill.functions.render import render
from slicemill.types import Column

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph

# Base classes of operators, which are immutable specifications of what to compute.


class Operator:
    """Specification of a node: a frozen dataclass that `operators.registry` lists."""

    __slots__ = ()


class SharedOperator(Operator):
    """One operator for several queries. Each query has a member.

    A `Part` node that reads this operator provides the result of one member.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def members(self) -> tuple[Any, ...]: ...


def with_members(shared: SharedOperator, members: Iterable[Any]) -> SharedOperator:
    """Return the shared operator with other members."""
    return cast(SharedOperator, replace(cast(Any, shared), members=tuple(members)))


S = TypeVar("S", bound=Operator)
Keys: TypeAlias = tuple[Expr, ...]
KeysBelow: TypeAlias = "tuple[tuple[str, Keys], ...]"


class Role(StrEnum):
    """Role of a node in the graph."""

    SOURCE = "source"
    TABLE = "table"
    STATELESS = "stateless"
    STATEFUL = "stateful"
    SINK = "sink"


class TaskOf(Enum):
    """Rule for which queries share a task with a stateful operator."""

    QUERY = "none: it runs alone"
    KEYS = "all that keep something of the same log by the same keys"
    PARTS = "those that have a part of it"


@dataclass(frozen=True, slots=True)
class ColumnsRead:
    """Expressions over an input, and columns that are passed through."""

    exprs: Sequence[Expr]
    names: Collection[str]


@dataclass(frozen=True, slots=True)
class InnerJoin:
    """Description of a join for partitioning.

    `windows` has for each input the longest window of all members. `equal` are sets of expressions with equal
    values, as (input, expression over the input's columns). `columns` maps a result column to an input and
    its column.
    """

    windows: tuple[Window, ...]
    equal: tuple[tuple[tuple[int, Expr], ...], ...]
    columns: Mapping[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class MemberKind:
    """Properties of a member of a shared operator, for its `Part`."""

    words: Callable[[Any], Description]
    history_us: Callable[[Any], int | None]
    seq_bits: Callable[[Any, int, Catalog], int]
    keys_below: Callable[[Any, Any, Keys], tuple[Keys, ...] | None] = lambda *_: None
    """Maps keys over the output to keys of each input of the shared operator, which is the first argument."""
    holds: Callable[[Any, Any], bool] = lambda *_: False
    """Returns True if the state of the first member has all that the second member needs."""
    columns_stored: Callable[[Any], Iterable[Column]] | None = None
    """Returns the columns that the state stores of a row; None if they do not depend on consumers."""


def same_keys(_: Operator, node: Node, __: QueryGraph, keys: Keys) -> KeysBelow:
    """Return the same keys, for operators that keep input columns.

    These operators have one input.
    """
    return ((node.inputs[0], keys),)


def _its_inputs(_: Operator, node: Node, __: QueryGraph) -> tuple[str, ...]:
    return node.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorKind(Generic[S]):
    """Registration of one operator.

    | field | meaning |
    |---|---|
    | `role`, `words` | role of the operator, and its description in EXPLAIN |
    | `own_name` | name of the stream, query or table, for a source, sink or table |
    | `relation` | name of the finite relation, for a table or view; its output has no log |
    | `label`, `shared_label` | name in node ids, for a node of one query and for a shared node |
    | `for_all` | True if the output does not depend on the start of a query, so that queries share the node |
    | `refer` | returns the operator with ids of other nodes replaced |
    | `slack_us` | how far the output watermark is behind the input watermarks |
    | `waits_for_time` | True if idle-waiting-prone (IWP, M21), given the timestamp kind of the inputs |
    | `fed_by` | nodes whose rows the step reads, in order |
    | `alias`, `looked_up` | alias of an input; True if the input provides rows for lookups |
    | `selections` | conditions on the rows of some inputs; None among them if all rows are needed |
    | `columns_read` | columns that are read of an input, given the output columns; None: all columns |
    | `keeps_state` | True if the operator has state between runs |
    | `by_position` | True if the state has rows by column position, so that inputs cannot get new columns |
    | `computes` | False for a drop box, which only passes a share of the rows |
    | `task` | which queries share a task with the operator |
    | `keys` | by input, the expressions by which the work can be partitioned; None if it cannot be |
    | `split_by_any` | True if the work can be partitioned by any keys of the consumers |
    | `joins` | description of the join, if each result has one row of each input |
    | `keys_below` | maps keys over the output to keys over the nodes below; None if a node lacks the keys |
    | `history_us` | age up to which input rows affect results; None if unlimited |
    | `seq_bits`, `numbered_by` | bits of sequence numbers, and the nodes that assign them (`columns.order`) |
    | `ties` | True if it adds or passes on ties to rows that several subtasks find (`columns.merge`) |
    | `takes` | calls or columns of a former operator that provide the state; None if they do not suffice |
    | `taken_over` | function that builds the state from that of a former operator, as `module:name` |
    | `redistribute` | function that builds a new subtask's state from all old subtasks, as `module:name` |
    | `last_words` | True if rows are emitted at the end of input, at the time of the last row |
    | `member` | properties of a member, for a shared operator |
    | `stored` | classes in the state, by their names in checkpoints |
    | `over_windows` | True if results are wrong when rows of a window are missing |
    | `lag_us` | latency bound that the operator meets by processing fewer values under load, or None |
    | `details` | additional keys of the node in the JSON of EXPLAIN |
    | `step` | function that creates the step, as `module:name`; None if consumers do the work |
    """

    spec: type[S]
    words: Callable[[S, Node, QueryGraph], Description]
    role: Role = Role.STATELESS
    own_name: Callable[[S], str] | None = None
    relation: Callable[[S], str] | None = None
    label: Callable[[S], str] | None = None
    shared_label: Callable[[S], str] | None = None
    for_all: Callable[[S, Node, QueryGraph], bool] = lambda *_: False
    refer: Callable[[S, Callable[[str], str]], S] | None = None
    slack_us: Callable[[S], int] = lambda _: 0
    waits_for_time: Callable[[S, TimestampKind], bool] = lambda *_: False
    fed_by: Callable[[S, Node, QueryGraph], tuple[str, ...]] = _its_inputs
    alias: Callable[[S, int], str] = lambda *_: ""
    looked_up: Callable[[S, int], bool] = lambda *_: False
    selections: Callable[[S, Sequence[int]], tuple[Expr | None, ...]] = lambda *_: (None,)
    columns_read: Callable[[S, int, Collection[str]], ColumnsRead] | None = None
    keeps_state: bool = True
    by_position: Callable[[S], bool] = lambda _: False
    computes: bool = True
    task: TaskOf = TaskOf.QUERY
    keys: Callable[[S], tuple[Keys, ...] | None] = lambda _: None
    split_by_any: Callable[[S, Node, QueryGraph], bool] = lambda *_: False
    joins: Callable[[S], InnerJoin | None] = lambda _: None
    keys_below: Callable[[S, Node, QueryGraph, Keys], KeysBelow | None] = lambda *_: None
    history_us: Callable[[S, Node, QueryGraph], int | None] = lambda *_: 0
    seq_bits: Callable[[S, int, Catalog, Node, QueryGraph], int] = lambda _, bits, *__: bits
    numbered_by: Callable[[S, Node, QueryGraph], Iterable[str]] | None = None
    ties: bool = False
    takes: Callable[[S, S], Sequence[int] | None] = lambda *_: None
    taken_over: str | None = None
    redistribute: str | None = None
    last_words: bool = False
    member: MemberKind | None = None
    stored: Mapping[str, type] = field(default_factory=dict)
    over_windows: bool = False
    lag_us: Callable[[S], int | None] = lambda _: None
    details: Callable[[S], Mapping[str, Any]] = lambda _: {}
    step: str | None = None


def longest_us(windows: Iterable[Window]) -> int | None:
    """Return the longest window.

    None if a window is unbounded or counts rows.
    """
    lengths = [window.extent if window.frame is FrameUnit.RANGE else None for window in windows]
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None


# Descriptions of operators in plans, in terms of SQL and relational algebra.


Fact: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Description:
    """Description of an operator: symbol, title and facts.

    A fact is (what, text). The symbol may be empty. The most important fact is first.
    """

    symbol: str
    title: str
    facts: tuple[Fact, ...] = ()

    @property
    def headline(self) -> str:
        return f"{self.symbol} {self.title}" if self.symbol else self.title


def pluralize(number: int, word: str) -> str:
    """Return a number with a noun in singular or plural.

    >>> pluralize(1, "join"), pluralize(2, "join")
    ('1 join', '2 joins')
    """
    return f"{number} {word}" if number == 1 else f"{number} {word}s"


def each(aliases: Sequence[str], windows: Sequence[str]) -> str:
    """Return the window of each input, or the common window."""
    if len(windows) > 1 and len(set(windows)) == 1:
        return f"{windows[0]} each"
    return ", ".join(f"{alias} {window}".strip() for alias, window in zip(aliases, windows, strict=True))


def partition(exprs: Sequence[Expr]) -> tuple[Fact, ...]:
    return (("partition by", ", ".join(render(expr) for expr in exprs)),) if exprs else ()


def grouping_facts(calls: Sequence[AggregateCall], group_by: Sequence[SelectItem]) -> tuple[Fact, ...]:
    facts = [("compute", ", ".join(call_text(call) for call in calls))] if calls else []
    if group_by:
        facts.append(("group by", ", ".join(render(item.expr) for item in group_by)))
    return tuple(facts)


def call_text(call: AggregateCall | WindowCall) -> str:
    arguments = ", ".join(render(argument) for argument in call.arguments) or "*"
    return f"{call.name}({'DISTINCT ' if call.distinct else ''}{arguments})"


def window_calls(calls: Sequence[WindowCall]) -> tuple[Fact, ...]:
    """Return the calls and their windows. A common window is shown once."""
    if len({(call.window, call.partition_by) for call in calls}) > 1:
        return tuple(("compute", f"{call_text(call)} OVER ({_over(call)})") for call in calls)
    computed = ", ".join(call_text(call) for call in calls)
    window = ("window", preceding(calls[0].window))
    return (("compute", computed), *partition(calls[0].partition_by), window)


def length_of(window: Window) -> str:
    """Return a window without its slide, as text."""
    return str(Window(window.frame, window.extent))


def preceding(window: Window) -> str:
    length = length_of(window)
    return f"{length} PRECEDING{str(window).removeprefix(length)}"


def _over(call: WindowCall) -> str:
    parts = [f"PARTITION BY {text}" for _, text in partition(call.partition_by)]
    return " ".join([*parts, preceding(call.window)])
