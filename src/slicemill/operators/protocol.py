"""Interface by which an operator describes itself to the planner, EXPLAIN and the engine.

The `spec.py` of each operator has its dataclass, followed by its `OperatorKind`. `registry` lists all kinds.
No other module tests the class of an operator. Execution steps are named by strings and imported on
execution, so that planning loads no kernels.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
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
    """Specification of a graph node: a frozen dataclass whose class is listed in `operators.registry`."""

    __slots__ = ()


class SharedOperator(Operator):
    """One operator that serves several queries.

    A member is one query's use of the shared operator. A `Part` node reads the shared operator and provides
    the result of one member.
    """

    __slots__ = ()

    if TYPE_CHECKING:

        @property
        def members(self) -> tuple[Any, ...]: ...


def with_members(shared: SharedOperator, members: Iterable[Any]) -> SharedOperator:
    """Return a copy of the shared operator that serves other members (one member per query)."""
    return cast(SharedOperator, replace(cast(Any, shared), members=tuple(members)))


S = TypeVar("S", bound=Operator)
M = TypeVar("M")
Keys: TypeAlias = tuple[Expr, ...]
KeysBelow: TypeAlias = "tuple[tuple[str, Keys], ...]"


class Role(StrEnum):
    """Role of a node in the query graph."""

    SOURCE = "source"
    TABLE = "table"
    STATELESS = "stateless"
    STATEFUL = "stateful"
    SINK = "sink"


class TaskOf(Enum):
    """Rule that selects the queries whose operators run in the same task as a stateful operator."""

    QUERY = "none: it runs alone"
    KEYS = "all that keep something of the same log by the same keys"
    PARTS = "those that have a part of it"


@dataclass(frozen=True, slots=True)
class ColumnsRead:
    """Columns that an operator reads of one input.

    The operator evaluates `exprs` over the input columns, and passes the columns `names` to its output.
    """

    exprs: Sequence[Expr]
    names: Collection[str]


@dataclass(frozen=True, slots=True)
class InnerJoin:
    """Properties of a join from which the planner chooses how to partition its rows.

    `windows` has for each input the longest window of all queries that share the join. Each element of
    `equal` is a set of expressions that have equal values in a result row. An expression is given as (input,
    expression over the columns of the input). `columns` maps a result column to an input and its column.
    """

    windows: tuple[Window, ...]
    equal: tuple[tuple[tuple[int, Expr], ...], ...]
    columns: Mapping[str, tuple[int, str]]


class MemberKind(ABC, Generic[M]):
    """Planning properties of a member: one query's use of a shared operator.

    The `Part` node, which provides the result of one member, reads these properties.
    """

    @abstractmethod
    def words(self, member: M) -> Description:
        """Return the description of a member for EXPLAIN, as if its query did not share the operator."""

    @abstractmethod
    def history_us(self, member: M) -> int | None:
        """Return the age up to which input rows affect the results of a member; None if unlimited."""

    @abstractmethod
    def seq_bits(self, member: M, bits: int, catalog: Catalog) -> int:
        """Return the bit width of the sequence numbers of results.

        The sequence numbers of the input rows are `bits` wide.
        """

    def keys_below(self, shared: Any, member: M, keys: Keys) -> tuple[Keys, ...] | None:
        """Rewrite expressions over the output columns as expressions over the columns of each input.

        Return None if an input lacks columns for an expression.
        """
        return None

    def holds(self, kept: M, member: M) -> bool:
        """Return True if the state of a running query (`kept`) suffices for a new query (`member`)."""
        return False

    def columns_stored(self, member: M) -> Iterable[object] | None:
        """Return the columns of input rows that the state of the shared operator stores for one query.

        Return None if the stored columns do not depend on the consumers of the query's results.
        """
        return None


class OperatorKind(ABC, Generic[S]):
    """Planning properties of one operator class, with defaults for a stateless operator.

    Each operator has a subclass, of which `registry` lists one instance. The methods take the operator, and
    where needed its node and the graph.
    """

    spec: type[S]
    role: Role = Role.STATELESS
    step: str | None = None  # `module:name` of the step's constructor; None if consumers do the work
    keeps_state: bool = True  # False if the operator has no state between micro-batches
    computes: bool = True  # False for a drop box, which only removes rows under load
    task: TaskOf = TaskOf.QUERY  # rule that selects the queries whose operators share a task
    keeps_keys: bool = False  # True if the output has all columns of the only input
    ties: bool = False  # True if tie columns, which order equal rows, are added or kept (`columns.merge`)
    last_words: bool = False  # True if rows are emitted at the end of input, at the time of the last row
    over_windows: bool = False  # True if results are wrong when rows of a window are missing
    member: MemberKind[Any] | None = None  # properties of one query's use of a shared operator
    taken_over: str | None = None  # `module:name` of the function that converts a replaced operator's state
    redistribute: str | None = None  # `module:name` of the function that builds the state of a new subtask

    # -- names and description -------------------------------------------------------------------------

    @abstractmethod
    def words(self, operator: S, node: Node, graph: QueryGraph) -> Description:
        """Return the description of the operator for EXPLAIN."""

    def own_name(self, operator: S) -> str | None:
        """Return the catalog name of a source (stream), sink (query) or table; None for other operators."""
        return None

    def relation(self, operator: S) -> str | None:
        """Return the name of the table or view that the operator provides; None for other operators.

        A table or view has no output log.
        """
        return None

    def label(self, operator: S) -> str | None:
        """Return the operator name in the ids of nodes that belong to one query."""
        return None

    def shared_label(self, operator: S) -> str | None:
        """Return the operator name in the ids of nodes that several queries share.

        Return None if such nodes have the same name as nodes of one query (`label`).
        """
        return None

    def details(self, operator: S) -> Mapping[str, Any]:
        """Return operator-specific entries for the node in the JSON output of EXPLAIN."""
        return {}

    def stored(self) -> Mapping[str, type]:
        """Map names in checkpoints to the classes whose instances the operator state stores."""
        return {}

    # -- inputs ----------------------------------------------------------------------------------------

    def refer(self, operator: S, renamed: Callable[[str], str]) -> S:
        """Return the operator after nodes were renamed, with the new ids of the nodes it refers to."""
        return operator

    def fed_by(self, operator: S, node: Node, graph: QueryGraph) -> tuple[str, ...]:
        """Return the ids of the nodes whose rows the execution step reads, in the order of its inputs."""
        return node.inputs

    def alias(self, operator: S, port: int) -> str:
        """Return the FROM alias of an input, or "" if its columns are not qualified."""
        return ""

    def looked_up(self, operator: S, port: int) -> bool:
        """Return True if input `port` is the table or view that a lookup join searches for matches."""
        return False

    def selections(self, operator: S, ports: Sequence[int]) -> tuple[Expr | None, ...]:
        """Return the conditions that select the rows which the operator needs of the inputs `ports`.

        An element is None if the operator needs all rows.
        """
        return (None,)

    def columns_read(self, operator: S, port: int, wanted: Collection[str]) -> ColumnsRead | None:
        """Return the columns that the operator reads of an input to compute the `wanted` output columns.

        Return None if the operator reads all columns.
        """
        return None

    def by_position(self, operator: S) -> bool:
        """Return True if the state identifies columns of stored rows by position.

        The planner then adds no columns to the inputs of a running operator.
        """
        return False

    # -- time and order --------------------------------------------------------------------------------

    def slack_us(self, operator: S) -> int:
        """Return the time in microseconds by which the output watermark lags the input watermarks."""
        return 0

    def waits_for_time(self, operator: S, kind: TimestampKind) -> bool:
        """Return True if an input without rows can block the operator (idle-waiting-prone, M21).

        `kind` is the timestamp kind of the inputs.
        """
        return False

    def history_us(self, operator: S, node: Node, graph: QueryGraph) -> int | None:
        """Return the age in microseconds up to which input rows affect results; None if unlimited."""
        return 0

    def lag_us(self, operator: S) -> int | None:
        """Return the latency bound that the operator meets by processing fewer values under load.

        Return None if the operator always processes all values.
        """
        return None

    def seq_bits(self, operator: S, bits: int, catalog: Catalog, node: Node, graph: QueryGraph) -> int:
        """Return the bit width of the sequence numbers of results (`columns.order`).

        The sequence numbers of the input rows are `bits` wide.
        """
        return bits

    def numbered_by(self, operator: S, node: Node, graph: QueryGraph) -> Iterable[str]:
        """Return the ids of the nodes from whose rows the results take their sequence numbers."""
        return self.fed_by(operator, node, graph)

    # -- sharing and partitions ------------------------------------------------------------------------

    def for_all(self, operator: S, node: Node, graph: QueryGraph) -> bool:
        """Return True if queries that start at different times can share the node.

        The output of such a node does not depend on the start of a query.
        """
        return False

    def keys(self, operator: S) -> tuple[Keys, ...] | None:
        """Return for each input the expressions by whose values its rows can be partitioned.

        Return None if the operator cannot be partitioned by expressions.
        """
        return None

    def split_by_any(self, operator: S, node: Node, graph: QueryGraph) -> bool:
        """Return True if the input rows can be partitioned by any keys of the consumers."""
        return False

    def joins(self, operator: S) -> InnerJoin | None:
        """Return the properties of a join in which each result row combines one row of each input.

        Return None for other operators.
        """
        return None

    def keys_below(self, operator: S, node: Node, graph: QueryGraph, keys: Keys) -> KeysBelow | None:
        """Rewrite keys over the output columns as keys over the columns of the input nodes.

        Return None if an input node lacks columns for a key.
        """
        return ((node.inputs[0], keys),) if self.keeps_keys else None

    def takes(self, before: S, operator: S) -> Sequence[int] | None:
        """Return the calls or columns of a replaced operator from which a new operator takes its state.

        `before` is the replaced operator. Return None if its state does not suffice.
        """
        return None


def longest_us(windows: Iterable[Window]) -> int | None:
    """Return the length of the longest window in microseconds.

    Return None if a window is unbounded or counts rows.
    """
    lengths = [window.extent if window.frame is FrameUnit.RANGE else None for window in windows]
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None


# Descriptions of operators in plans, in terms of SQL and relational algebra.


Fact: TypeAlias = tuple[str, str]


@dataclass(frozen=True, slots=True)
class Description:
    """Description of an operator in EXPLAIN: symbol, title and facts.

    A fact is a label and its text. The symbol may be empty. The most important fact is first.
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
    """Return the windows of the inputs as text.

    If all inputs have the same window, the text has the window once, followed by "each".
    """
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
    """Return the facts that describe OVER calls in EXPLAIN.

    If all calls have the same window and PARTITION BY, one fact has all calls, and one fact the window.
    """
    if len({(call.window, call.partition_by) for call in calls}) > 1:
        return tuple(("compute", f"{call_text(call)} OVER ({_over(call)})") for call in calls)
    computed = ", ".join(call_text(call) for call in calls)
    window = ("window", preceding(calls[0].window))
    return (("compute", computed), *partition(calls[0].partition_by), window)


def length_of(window: Window) -> str:
    """Return the length of a window as text, without the slide (distance of two windows)."""
    return str(Window(window.frame, window.extent))


def preceding(window: Window) -> str:
    length = length_of(window)
    return f"{length} PRECEDING{str(window).removeprefix(length)}"


def _over(call: WindowCall) -> str:
    parts = [f"PARTITION BY {text}" for _, text in partition(call.partition_by)]
    return " ".join([*parts, preceding(call.window)])
