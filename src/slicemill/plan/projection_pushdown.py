"""Projection and predicate push-down: sources store only the rows and columns that queries read.

Only conditions that cannot fail are evaluated at the source. A division by zero, for example, must fail one
query without stopping the stream.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from slicemill.catalog.catalog import LATE
from slicemill.catalog.expressions import Call, Case, Cast, ColumnRef, Expr, Literal, columns_of, walk
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.registry import kind_of
from slicemill.plan.tasks import log_of
from slicemill.types import BOOLEAN, Kind

_SAFE = {"=", "<>", "<", "<=", ">", ">=", "<=>", "and", "or", "not", "in", "isnull", "isnotnull", "like"}
_REMEMBERED = 1 << 14  # size of the cache of required columns, by node; enough for some thousand queries
_MOST_CONDITIONS = 64  # maximum number of conditions that are evaluated on each row before it is stored
_OF_THE_ROW = (ColumnRef, Literal, Call, Cast, Case)


@dataclass(frozen=True, slots=True)
class SourceProjection:
    """Required rows (a condition) and columns of a source.

    A condition of None means all rows.
    """

    condition: Expr | None
    columns: frozenset[str]

    def with_columns(self, names: Iterable[str]) -> SourceProjection:
        return SourceProjection(self.condition, self.columns.union(names))

    @property
    def read(self) -> frozenset[str]:
        """Return the columns that the condition reads."""
        return frozenset() if self.condition is None else columns_of(self.condition)


def source_projections(graph: QueryGraph) -> dict[str, SourceProjection]:
    """Return the required rows and columns of each source of a query graph."""
    read = columns_read(graph)
    return {
        node.id: SourceProjection(_row_condition(node.id, graph), read[node.id]) for node in graph.sources
    }


def merge_projections(
    streams: Iterable[str],
    needs: Iterable[Mapping[str, SourceProjection]],
    whole: Mapping[str, Iterable[str]] | None = None,
) -> dict[str, SourceProjection]:
    """Combine the required rows and columns of all statements, for each stream.

    Late rows of the stream are included. Streams in `whole` are stored with all rows and the given columns,
    because later queries may read any of them.
    """
    wanted: dict[str, list[SourceProjection]] = {}
    for one in needs:
        for source, need in one.items():
            wanted.setdefault(source, []).append(need)
    found = {}
    for stream in streams:
        if whole is not None and stream in whole:
            found[stream] = SourceProjection(None, frozenset(whole[stream]))
            continue
        own, late = wanted.get(stream, []), wanted.get(stream + LATE, [])
        columns = frozenset[str]().union(*(need.columns for need in (*own, *late)))
        found[stream] = SourceProjection(None if late else _either(need.condition for need in own), columns)
    return found


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


def _row_condition(source: str, graph: QueryGraph) -> Expr | None:
    """Return one condition for the rows that any consumer of a source reads.

    None means that some consumer needs all rows.
    """
    found = [c for node in graph.consumers(source) for c in _selections(node, source, graph)]
    return _either(c if c is not None and cannot_fail(c) else None for c in found)


def _either(conditions: Iterable[Expr | None]) -> Expr | None:
    """Return the conditions joined by OR, or None if all rows are needed.

    The result is None, for all rows, if a condition is None or if there are too many conditions.
    """
    distinct: dict[Expr, None] = {}
    for condition in conditions:
        if condition is None or len(distinct) == _MOST_CONDITIONS:
            return None
        distinct[condition] = None
    return _disjunction(list(distinct)) if distinct else Literal(False, BOOLEAN)


def _disjunction(parts: Sequence[Expr]) -> Expr:
    """Join conditions by OR in a balanced tree, which limits the depth of the expression."""
    if len(parts) == 1:
        return parts[0]
    half = len(parts) // 2
    return Call("or", (_disjunction(parts[:half]), _disjunction(parts[half:])), BOOLEAN)


def _selections(node: Node, stream: str, graph: QueryGraph) -> tuple[Expr | None, ...]:
    """Return the condition by which each consumer of a stream selects rows, or None for all rows."""
    kind = kind_of(node.operator)
    if not kind.computes:
        return tuple(c for reader in graph.consumers(node.id) for c in _selections(reader, node.id, graph))
    ports = [port for port, source in enumerate(node.inputs) if source == stream]
    return kind.selections(node.operator, ports)


def columns_read(graph: QueryGraph) -> dict[str, frozenset[str]]:
    """Return the columns of each source that some operator reads."""
    read: dict[str, set[str]] = {node.id: set() for node in graph}
    for node in reversed(list(graph)):  # each node is visited after all its consumers
        if node.inputs and log_of(node, graph) is not None:
            # A query that is created later may read any column of a log, so all columns stay.
            read[node.id].update(node.schema.names)
        for port, given in enumerate(node.inputs):
            taken = _input_columns(node, port, frozenset(read[node.id]))
            names = graph[given].schema.names
            read[given].update(names if taken is None else taken.intersection(names))
    return {node.id: frozenset(read[node.id]) for node in graph.sources}


@lru_cache(_REMEMBERED)
def _input_columns(node: Node, port: int, wanted: frozenset[str]) -> frozenset[str] | None:
    """Return the input columns from which the output columns in `wanted` are computed.

    None means all columns.
    """
    operator, kind = node.operator, kind_of(node.operator)
    read = kind.columns_read(operator, port, wanted)
    if read is None or not all(isinstance(part, _OF_THE_ROW) for expr in read.exprs for part in walk(expr)):
        return None
    taken = set(read.names).union(*(columns_of(expr) for expr in read.exprs))
    alias = kind.alias(operator, port)
    return frozenset(name.removeprefix(f"{alias}.") if alias else name for name in taken)
