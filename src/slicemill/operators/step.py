"""Interfaces of steps: executions of an operator over micro-batches.

A step reads new rows and watermarks, and returns output rows. A shared step returns a result for each of its
*members*, which are the queries or calls that share the operator. An error of one member does not affect
other members.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias, runtime_checkable

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregates.definition import RowAggregate, result_converter
from slicemill.aggregates.udf.lookup import aggregate_lookup, evaluate_relation
from slicemill.catalog.catalog import Catalog, View
from slicemill.catalog.expressions import Expr
from slicemill.catalog.queries import AggregateCall, FrameUnit, RelationQuery, SelectQuery, WindowCall
from slicemill.columns.keys import Keys, distinct_keys, to_array
from slicemill.columns.sequence_bits import SEQ_BITS
from slicemill.errors import SlicemillError
from slicemill.extension import load
from slicemill.functions.evaluate import compile_many
from slicemill.functions.values import ExpressionError
from slicemill.operators.alignment import Due
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.heavy_keys import KeyWork
from slicemill.operators.join.slices.coverage import Covers
from slicemill.operators.registry import kind_of
from slicemill.operators.subtask import WHOLE, HeavyKey, Subtask
from slicemill.shedding.accuracy import AccuracyReport
from slicemill.shedding.load import Comparisons, SheddingDecision
from slicemill.types import Row, Schema, Timed

# (rows, output watermark) of one member of a shared step, or the member's error.
StepResult: TypeAlias = tuple[pa.Table, int] | SlicemillError


class Step(Protocol):
    """Execution of an operator over the rows of a micro-batch.

    `complete` are the input watermarks: no later row of input i has a timestamp below `complete[i]`. `run`
    returns the output rows and the output watermark.
    """

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]: ...


@runtime_checkable
class Stateful(Protocol):
    """Step with a state that checkpoints store.

    The state has plain values, arrays, tables and registered classes (`codec`). A `Slice` in the state is
    written once, and later checkpoints reference it. Large states therefore consist of slices, so that the
    cost of a checkpoint depends only on the changes.
    """

    @property
    def state(self) -> object: ...

    def due(self) -> Due | None:
        """Return the input watermarks that release held rows.

        Return None if no rows are held. A number applies to all inputs. A tuple has a watermark for each
        input, and all of them must be reached. A list of tuples has alternatives.
        """
        ...


class StatefulStep(Step, Stateful, Protocol):
    """Execution of one operator with state over the rows of a micro-batch."""


class SharedStep(Stateful, Protocol):
    """Execution of a shared operator, with one result for each query or call."""

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> Sequence[StepResult]: ...


@runtime_checkable
class SheddingStep(Protocol):
    """Step that may drop rows because of load or memory limits.

    Shed rows are reported by node: the node of the step, or the nodes of its members.
    """

    def sheds(self, node_id: str) -> Mapping[str, AccuracyReport]: ...


@runtime_checkable
class MemoryReporter(Protocol):
    """Step that uses memory in addition to its stored state."""

    def bytes_kept(self) -> int: ...


@runtime_checkable
class ComparisonCounter(Protocol):
    """Join step that counts comparisons of rows, grouped by the age of the stored row."""

    @property
    def compared(self) -> Comparisons: ...


@runtime_checkable
class KeyPartitionedStep(Protocol):
    """Step of a task that is partitioned by key.

    The step reports its work by key. Before each micro-batch, the heavy keys are set, whose rows all subtasks
    read.
    """

    @property
    def key_work(self) -> KeyWork: ...

    def set_heavy(self, heavy: tuple[HeavyKey, ...]) -> None: ...


@runtime_checkable
class LoadControlledStep(Protocol):
    """Step that drops rows under load.

    Before each micro-batch, the share of rows or pairs to drop is set for each node.
    """

    def set_load(self, node_id: str, dropping: Mapping[str, SheddingDecision]) -> None: ...


@runtime_checkable
class InitialRowStep(Protocol):
    """Step that may emit a row before its first input row.

    An example is a global aggregate. `emits_first_row` is set before each micro-batch. It is False in a
    replay of micro-batches that did not emit the row.
    """

    emits_first_row: bool


@runtime_checkable
class FinalOutputStep(Protocol):
    """Step that emits rows at the end of input.

    The emitted rows have the timestamp of the last input row. `latest_elsewhere` is the time of the last row
    in other subtasks, which is set before each micro-batch.
    """

    latest_elsewhere: int

    @property
    def latest_ts(self) -> int: ...


# Context of a step


@dataclass(frozen=True, slots=True, kw_only=True)
class StepContext:
    """Inputs for creating a step: its node, graph, catalog, tables and last state."""

    node: Node
    graph: QueryGraph
    catalog: Catalog
    tables: Mapping[str, Sequence[Row]]
    state: object | None
    # New members of shared operators, which have no state yet.
    newcomers: Covers = field(default_factory=dict)
    subtask: Subtask = WHOLE
    # Replaced member of a shared operator, whose state a new member takes over, by new member.
    successors: Mapping[str, str] = field(default_factory=dict)

    @property
    def schemas(self) -> list[Schema]:
        """Return the schemas of the inputs that the step reads."""
        return [self.graph[source].schema for source in input_nodes(self.node, self.graph)]

    @property
    def seq_bits(self) -> int:
        """Return the maximum bit width of the sequence numbers of the inputs."""
        return input_bits(self.node, self.graph, self.catalog)

    def rows_of(self, relation: str) -> Sequence[Row]:
        return relation_rows(relation, self.catalog, self.tables)

    def definition(self, call: AggregateCall | WindowCall) -> RowAggregate:
        """Return the row-by-row definition of an aggregate, with the result type of a call."""
        definition = aggregate_lookup(self.catalog, self.rows_of)(call.name, call.distinct)
        if definition.columns == 1:
            definition = replace(definition, finish=result_converter(call.columns[0].type))
        return definition


def step_of(context: StepContext) -> Step | StatefulStep | SharedStep | None:
    """Create the step of a node; return None for nodes that are not executed.

    These are tables, views, and parts of shared operators. Operators that look up a table or view read it
    directly.
    """
    operator = context.node.operator
    name = kind_of(operator).step
    if name is None:
        return None
    step: Step | StatefulStep | SharedStep = load(name)(operator, context)
    return step


def input_nodes(node: Node, graph: QueryGraph) -> tuple[str, ...]:
    """Return the nodes whose rows an operator reads, in input order."""
    return kind_of(node.operator).fed_by(node.operator, node, graph)


def input_bits(node: Node, graph: QueryGraph, catalog: Catalog) -> int:
    """Return the maximum bit width of the sequence numbers that an operator reads."""
    return bits_of(kind_of(node.operator).numbered_by(node.operator, node, graph), graph, catalog)


def bits_of(sources: Iterable[str], graph: QueryGraph, catalog: Catalog) -> int:
    """Return the maximum bit width of the sequence numbers that some nodes emit."""
    return max((_output_bits(graph[source], graph, catalog) for source in sources), default=SEQ_BITS)


def _output_bits(node: Node, graph: QueryGraph, catalog: Catalog) -> int:
    bits = input_bits(node, graph, catalog)
    return kind_of(node.operator).seq_bits(node.operator, bits, catalog, node, graph)


def relation_rows(name: str, catalog: Catalog, tables: Mapping[str, Sequence[Row]]) -> Sequence[Row]:
    """Return the rows of a table, or of a view over tables.

    `tables` also has the content of views over streams.
    """
    relation = catalog.relation(name)
    if isinstance(relation, View) and isinstance(relation.query, RelationQuery):
        return evaluate_relation(relation.query, catalog, lambda inner: relation_rows(inner, catalog, tables))
    return tables[name]


def view_content(view: View, rows: Sequence[Timed], now: int) -> list[Row]:
    """Return the window content of a view at time `now` (M40).

    `rows` are all rows of the view, in time order.
    """
    assert isinstance(view.query, SelectQuery), "the binder requires one window"
    window = view.query.inputs[0].window
    assert window is not None and window.extent is not None, "the binder requires a window with a begin"
    if window.frame is FrameUnit.ROWS:
        return [timed.row for timed in rows[-window.extent :]]
    return [timed.row for timed in rows if timed.ts > now - window.extent]


# Expressions over new rows, and partition numbers of rows


class CompiledColumns:
    """Groups of expressions over new rows, such as keys and arguments, compiled together."""

    def __init__(self, groups: Sequence[Sequence[Expr]], schema: Schema) -> None:
        self._sizes = [len(group) for group in groups]
        self._types = [expr.type for group in groups for expr in group]
        self._compute = compile_many([expr for group in groups for expr in group], schema)

    def of(self, table: pa.Table) -> list[list[pa.Array]]:
        """Evaluate all expressions; return the columns of each group, or raise an error."""
        arrays = []
        for outcome in self._compute(table):
            if isinstance(outcome, ExpressionError):
                raise outcome
            arrays.append(to_array(outcome))
        found: list[list[pa.Array]] = []
        for size in self._sizes:
            found.append(arrays[:size])
            arrays = arrays[size:]
        return found


class PartitionNumbers:
    """Compiled partition keys, which map each row to the number of its partition."""

    def __init__(self, keys: Sequence[Expr], schema: Schema) -> None:
        self._columns = CompiledColumns([keys], schema)

    def numbers(self, table: pa.Table, keys: Keys) -> NDArray[np.int32]:
        columns = self._columns.of(table)[0]
        return keys.number(distinct_keys(columns, table.num_rows), columns)
