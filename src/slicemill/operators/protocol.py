"""Registration of operators for the planner, EXPLAIN and the engine.

The `spec.py` of each operator has its dataclass, followed by its `OperatorKind`. `registry` lists all kinds.
No other module tests the class of an operator. Execution steps are named by strings and imported on
execution, so that planning loads no kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar, cast

from slicemill.catalog.catalog import Catalog, TimestampKind
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import AggregateCall, FrameUnit, SelectItem, Window, WindowCall
from slicemill.functions.render import render

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
M = TypeVar("M")
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


class MemberKind(Generic[M]):
    """Properties of the members of a shared operator, for their `Part` nodes."""

    def words(self, member: M) -> Description:
        """Describe a member in EXPLAIN, like an operator that is not shared."""
        raise NotImplementedError

    def history_us(self, member: M) -> int | None:
        """Return the age up to which input rows affect the member's results; None if unlimited."""
        raise NotImplementedError

    def seq_bits(self, member: M, bits: int, catalog: Catalog) -> int:
        """Return the bits of the results' sequence numbers, given those of the input."""
        raise NotImplementedError

    def keys_below(self, shared: Any, member: M, keys: Keys) -> tuple[Keys, ...] | None:
        """Map keys over the output to keys of each input of the shared operator, or None."""
        return None

    def holds(self, kept: M, member: M) -> bool:
        """Return True if the state of `kept` has all that `member` needs."""
        return False

    def columns_stored(self, member: M) -> Iterable[object] | None:
        """Return the columns that the state stores of a row; None if consumers do not matter."""
        return None


class OperatorKind(Generic[S]):
    """Planning properties of one operator class, with defaults for a stateless operator.

    Each operator has a subclass, of which `registry` lists one instance. The methods take the operator, and
    where needed its node and the graph.
    """

    spec: type[S]
    role: Role = Role.STATELESS
    step: str | None = None  # creates the step, as `module:name`; None if consumers do the work
    keeps_state: bool = True  # False if the operator has no state between runs
    computes: bool = True  # False for a drop box, which only passes a share of the rows
    task: TaskOf = TaskOf.QUERY  # queries that share a task with the operator
    keeps_keys: bool = False  # the output has the columns of the only input, so keys stay the same
    ties: bool = False  # adds or passes on ties to rows that several subtasks find (`columns.merge`)
    last_words: bool = False  # emits rows at the end of input, at the time of the last row
    over_windows: bool = False  # results are wrong when rows of a window are missing
    member: MemberKind[Any] | None = None  # for a shared operator
    taken_over: str | None = None  # builds the state from that of a former operator, as `module:name`
    redistribute: str | None = None  # builds a subtask's state from all old subtasks, as `module:name`

    # -- names and description -------------------------------------------------------------------------

    def words(self, operator: S, node: Node, graph: QueryGraph) -> Description:
        """Describe the operator in EXPLAIN."""
        raise NotImplementedError

    def own_name(self, operator: S) -> str | None:
        """Return the name of the stream, query or table, for a source, sink or table."""
        return None

    def relation(self, operator: S) -> str | None:
        """Return the name of the finite relation, for a table or view. Its output has no log."""
        return None

    def label(self, operator: S) -> str | None:
        """Return the name in node ids, for a node of one query."""
        return None

    def shared_label(self, operator: S) -> str | None:
        """Return the name in node ids, for a node that queries share; None if it is `label`."""
        return None

    def details(self, operator: S) -> Mapping[str, Any]:
        """Return additional keys of the node in the JSON of EXPLAIN."""
        return {}

    def stored(self) -> Mapping[str, type]:
        """Return the classes in the state, by their names in checkpoints."""
        return {}

    # -- inputs ----------------------------------------------------------------------------------------

    def refer(self, operator: S, renamed: Callable[[str], str]) -> S:
        """Return the operator with the ids of other nodes replaced."""
        return operator

    def fed_by(self, operator: S, node: Node, graph: QueryGraph) -> tuple[str, ...]:
        """Return the nodes whose rows the step reads, in order."""
        return node.inputs

    def alias(self, operator: S, port: int) -> str:
        """Return the alias of an input, or ""."""
        return ""

    def looked_up(self, operator: S, port: int) -> bool:
        """Return True if an input provides rows for lookups."""
        return False

    def selections(self, operator: S, ports: Sequence[int]) -> tuple[Expr | None, ...]:
        """Return conditions on the rows of some inputs; None among them if all rows are needed."""
        return (None,)

    def columns_read(self, operator: S, port: int, wanted: Collection[str]) -> ColumnsRead | None:
        """Return the columns read of an input, given the wanted output columns; None for all columns."""
        return None

    def by_position(self, operator: S) -> bool:
        """Return True if the state has rows by column position, so that inputs cannot get columns."""
        return False

    # -- time and order --------------------------------------------------------------------------------

    def slack_us(self, operator: S) -> int:
        """Return how far the output watermark is behind the input watermarks."""
        return 0

    def waits_for_time(self, operator: S, kind: TimestampKind) -> bool:
        """Return True if idle-waiting-prone (IWP, M21), given the timestamp kind of the inputs."""
        return False

    def history_us(self, operator: S, node: Node, graph: QueryGraph) -> int | None:
        """Return the age up to which input rows affect results; None if unlimited."""
        return 0

    def lag_us(self, operator: S) -> int | None:
        """Return the latency that the operator keeps by processing fewer values under load, or None."""
        return None

    def seq_bits(self, operator: S, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        """Return the bits of the results' sequence numbers, given those of the input (`columns.order`)."""
        return bits

    def numbered_by(self, operator: S, node: Node, graph: QueryGraph) -> Iterable[str]:
        """Return the nodes that assign the sequence numbers."""
        return self.fed_by(operator, node, graph)

    # -- sharing and partitions ------------------------------------------------------------------------

    def for_all(self, operator: S, node: Node, graph: QueryGraph) -> bool:
        """Return True if the output does not depend on the start of a query, so queries share the node."""
        return False

    def keys(self, operator: S) -> tuple[Keys, ...] | None:
        """Return by input the expressions that can partition the work, or None."""
        return None

    def split_by_any(self, operator: S, node: Node, graph: QueryGraph) -> bool:
        """Return True if any keys of the consumers can partition the work."""
        return False

    def joins(self, operator: S) -> InnerJoin | None:
        """Return the description of a join whose results have one row of each input."""
        return None

    def keys_below(self, operator: S, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        """Map keys over the output to keys over the nodes below; None if a node lacks the keys."""
        return ((node.inputs[0], keys),) if self.keeps_keys else None

    def takes(self, before: S, operator: S) -> Sequence[int] | None:
        """Return the calls or columns of a former operator that provide the state, if they suffice."""
        return None


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
