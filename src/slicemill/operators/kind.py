"""The registration of an operator: all that planner, explain and engine ask about it, in one place.

Each operator's `spec.py` has its dataclass and, below it, its `OperatorKind`; `registry` lists them all, and
nobody else asks for the class of an operator. Functions are given the operator, and where they look around
also its node and the graph. What runs is named, and imported only where it runs: planning loads no kernel.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, StrEnum
from typing import TYPE_CHECKING, Any, Generic, TypeAlias, TypeVar

from slicemill.esl.types.catalog import Catalog, TimestampKind
from slicemill.esl.types.expression import Expr
from slicemill.esl.types.query import FrameUnit, Window
from slicemill.operators.description import Description
from slicemill.operators.operator import Operator

if TYPE_CHECKING:
    from slicemill.operators.graph import Node, QueryGraph

S = TypeVar("S", bound=Operator)
Keys: TypeAlias = tuple[Expr, ...]
KeysBelow: TypeAlias = "tuple[tuple[str, Keys], ...]"


class Role(StrEnum):
    """What kind of thing a node is to somebody who looks at the whole graph."""

    SOURCE = "source"
    TABLE = "table"
    STATELESS = "stateless"
    STATEFUL = "stateful"
    SINK = "sink"


class UnitOf(Enum):
    """Which queries run as one with that of a stateful operator."""

    QUERY = "none: it runs alone"
    KEYS = "all that keep something of the same log by the same keys"
    PARTS = "those that have a part of it"


@dataclass(frozen=True, slots=True)
class ColumnsRead:
    """What an operator reads of an input: expressions over it, and columns that it takes as they are."""

    exprs: Sequence[Expr]
    names: Collection[str]


@dataclass(frozen=True, slots=True)
class InnerJoin:
    """What a join does, to those who decide in which cells its rows meet.

    `windows` are by input, the longest of all members. What must be `equal` is an input and an expression
    over its columns each. `columns` says which column of which input a column of the results is.
    """

    windows: tuple[Window, ...]
    equal: tuple[tuple[tuple[int, Expr], ...], ...]
    columns: Mapping[str, tuple[int, str]]


@dataclass(frozen=True, slots=True)
class MemberKind:
    """What a shared operator's `Part` is asked, answered for one of its members."""

    words: Callable[[Any], Description]
    history_us: Callable[[Any], int | None]
    seq_bits: Callable[[Any, int, Catalog], int]
    keys_below: Callable[[Any, Any, Keys], tuple[Keys, ...] | None] = lambda *_: None
    """Keys over its output by input of the shared operator, which comes first."""
    holds: Callable[[Any, Any], bool] = lambda *_: False
    """Return True if the state of the first member has all that the second member needs."""


def same_keys(_: Operator, node: Node, __: QueryGraph, keys: Keys) -> KeysBelow:
    """`keys_below` of what lets the columns of its only input pass."""
    return ((node.inputs[0], keys),)


def _its_inputs(_: Operator, node: Node, __: QueryGraph) -> tuple[str, ...]:
    return node.inputs


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorKind(Generic[S]):
    """One operator to everybody else.

    | field | says |
    |---|---|
    | `role`, `words` | what people are shown of it |
    | `own_name` | its name, for the ends of the graph: of a stream, a query, a table |
    | `relation` | the finite relation that it is, if it is one: its output has no log |
    | `label`, `shared_label` | its name in node ids: of a query's own node, and of one for all |
    | `for_all` | does the same to a tuple whenever a query came, so that queries share the node |
    | `refer` | the operator with the ids of other nodes in it replaced |
    | `slack_us` | how far its output watermark stays behind that of its inputs |
    | `waits_for_time` | is idle-waiting-prone (IWP, M21), given the kind of its inputs' timestamps |
    | `fed_by` | the nodes whose tuples its step takes, in order |
    | `alias`, `looked_up` | what it calls an input; whether that brings rows to look up |
    | `selections` | its conditions on the rows of some inputs; None in it where all rows are wanted |
    | `columns_read` | what it reads of an input, where that much is read of its output; without it, all |
    | `keeps_state` | keeps something from run to run |
    | `by_position` | keeps rows by the positions of their columns: its inputs cannot get another one |
    | `computes` | is no drop box, which lets a share of all tuples pass |
    | `unit` | which queries run as one with it |
    | `keys` | by input, the expressions by whose values its work can be split; None if it cannot |
    | `split_by_any` | its work can be split by any keys, which those who read it have |
    | `joins` | what it joins, if each of its results has one row of each input |
    | `keys_below` | keys over its output, by the nodes below it as keys over theirs; None if they lack them |
    | `history_us` | how far back its results depend on tuples; None where no length of time says it |
    | `seq_bits`, `numbered_by` | how many bits its rows' numbers have, and whose they are (`columns.order`) |
    | `ties` | gives rows that several cells find together their ties, or hands them on (`storage.ties`) |
    | `redistribute` | the function that makes the state of a new cell from those of all cells before |
    | `last_words` | gives rows at the end of input, at the time of the last tuple |
    | `member` | what is asked about one of its members, if it is shared |
    | `stored` | its classes that states hold, by the names under which checkpoints know them |
    | `step` | the function that makes its step, as `module:name`; None if what reads it does its work |
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
    unit: UnitOf = UnitOf.QUERY
    keys: Callable[[S], tuple[Keys, ...] | None] = lambda _: None
    split_by_any: Callable[[S, Node, QueryGraph], bool] = lambda *_: False
    joins: Callable[[S], InnerJoin | None] = lambda _: None
    keys_below: Callable[[S, Node, QueryGraph, Keys], KeysBelow | None] = lambda *_: None
    history_us: Callable[[S, Node, QueryGraph], int | None] = lambda *_: 0
    seq_bits: Callable[[S, int, Catalog, Node, QueryGraph], int] = lambda _, bits, *__: bits
    numbered_by: Callable[[S, Node, QueryGraph], Iterable[str]] | None = None
    ties: bool = False
    redistribute: str | None = None
    last_words: bool = False
    member: MemberKind | None = None
    stored: Mapping[str, type] = field(default_factory=dict)
    step: str | None = None


def longest_us(windows: Iterable[Window]) -> int | None:
    """The longest of some windows; None where one never ends or counts rows."""
    lengths = [window.extent if window.frame is FrameUnit.RANGE else None for window in windows]
    known = [length for length in lengths if length is not None]
    return max(known) if len(known) == len(lengths) else None
