"""Projection and selection at ingest: rows and columns of a stream that no query reads are not stored.

Only conditions that cannot fail are evaluated at the source: a query that divides by zero must stop alone,
and not take the stream with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from slicemill.esl.types.catalog import LATE
from slicemill.esl.types.expression import (
    Call,
    Case,
    Cast,
    ColumnRef,
    Expr,
    Literal,
    columns_of,
    walk,
)
from slicemill.esl.types.schema import BOOLEAN, Kind
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.registry import kind_of
from slicemill.plan.logs import log_of

_SAFE = {"=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "not", "in", "isnull", "isnotnull", "like"}
_OF_THE_ROW = (ColumnRef, Literal, Call, Cast, Case)


@dataclass(frozen=True, slots=True)
class Need:
    """Rows on which the condition holds (None: all rows), and columns."""

    condition: Expr | None
    columns: frozenset[str]

    @property
    def read(self) -> frozenset[str]:
        """The columns that the condition looks at."""
        return frozenset() if self.condition is None else columns_of(self.condition)


def needs_of(streams: Iterable[str], graph: QueryGraph) -> dict[str, Need]:
    """What all queries together need of each stream, and of its late tuples."""
    read = columns_read(graph)
    needs = {}
    for stream in streams:
        late = stream + LATE
        condition = None if late in graph.nodes else needed_rows(stream, graph)
        needs[stream] = Need(condition, read.get(stream, frozenset()) | read.get(late, frozenset()))
    return needs


def cannot_fail(expr: Expr) -> bool:
    return all(_is_safe(part) for part in walk(expr))


def _is_safe(part: Expr) -> bool:
    if isinstance(part, (ColumnRef, Literal)):
        return True
    if not isinstance(part, Call):
        return False
    if part.function == "%":
        divisor = part.arguments[1]
        return isinstance(divisor, Literal) and divisor.value not in (0, None)
    periods = any(argument.type.kind is Kind.PERIOD for argument in part.arguments)
    return part.function in _SAFE and not periods


def needed_rows(stream: str, graph: QueryGraph) -> Expr | None:
    """The condition that some query has on the stream's rows; None where all rows are needed."""
    conditions: dict[Expr, None] = {}
    for node in graph.consumers(stream):
        for condition in _selections(node, stream, graph):
            if condition is None or not cannot_fail(condition):
                return None
            conditions[condition] = None
    if not conditions:
        return Literal(False, BOOLEAN)
    return _disjunction(list(conditions))


def _disjunction(parts: Sequence[Expr]) -> Expr:
    """The condition that some part holds, as a balanced tree: thousands of queries must not make it deep."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return Call("or", (_disjunction(parts[:half]), _disjunction(parts[half:])), BOOLEAN)


def _selections(node: Node, stream: str, graph: QueryGraph) -> tuple[Expr | None, ...]:
    """The conditions of what reads a stream; None for a reader that has none."""
    kind = kind_of(node.operator)
    if not kind.computes:
        return tuple(c for reader in graph.consumers(node.id) for c in _selections(reader, node.id, graph))
    ports = [port for port, source in enumerate(node.inputs) if source == stream]
    return kind.selections(node.operator, ports)


def columns_read(graph: QueryGraph) -> dict[str, frozenset[str]]:
    """The columns of each node's output that something behind it reads."""
    read: dict[str, set[str]] = {node.id: set() for node in graph}
    for node in reversed(list(graph)):  # each after all that read it
        if node.inputs and log_of(node, graph) is not None:
            # A log may be read by anybody.
            read[node.id].update(node.schema.names)
        for port, given in enumerate(node.inputs):
            read[given] |= _columns_taken(node, port, graph[given], read[node.id])
    return {node_id: frozenset(names) for node_id, names in read.items()}


def _columns_taken(node: Node, port: int, given: Node, wanted: set[str]) -> set[str]:
    """What an operator reads of an input, if `wanted` is read of its output."""
    names = set(given.schema.names)
    operator, kind = node.operator, kind_of(node.operator)
    if kind.columns_read is None:
        return names
    read = kind.columns_read(operator, port, wanted)
    if not all(isinstance(part, _OF_THE_ROW) for expr in read.exprs for part in walk(expr)):
        return names
    taken = set(read.names).union(*(columns_of(expr) for expr in read.exprs))
    alias = kind.alias(operator, port)
    return names & {name.removeprefix(f"{alias}.") if alias else name for name in taken}
