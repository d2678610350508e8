"""Task program: the operators of a task, compiled to steps.

Workers receive the plan as data and compile it, once per worker and plan version. If a step fails, only the
queries that depend on the step stop.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, cast

import pyarrow as pa
from pyspark import cloudpickle

from slicemill.catalog.catalog import Catalog
from slicemill.columns.arrow_schema import to_arrow, with_system_columns
from slicemill.columns.keys import keys_found_once
from slicemill.errors import SlicemillError
from slicemill.extension import load
from slicemill.operators.alignment import Dues, earliest
from slicemill.operators.graph import Node, QueryGraph
from slicemill.operators.join.heavy_keys import NO_WORK, KeyWork
from slicemill.operators.join.slices.coverage import Covers
from slicemill.operators.join.spec import is_two_way
from slicemill.operators.protocol import SharedOperator
from slicemill.operators.registry import kind_of
from slicemill.operators.specs import Part
from slicemill.operators.step import (
    ComparisonCounter,
    FinalOutputStep,
    InitialRowStep,
    KeyPartitionedStep,
    LoadControlledStep,
    MemoryReporter,
    SharedStep,
    SheddingStep,
    Stateful,
    Step,
    StepContext,
    StepResult,
    input_nodes,
    step_of,
)
from slicemill.operators.subtask import HeavyKey, Subtask
from slicemill.plan.partitioning import Exchange
from slicemill.plan.state_reuse import without_outputs
from slicemill.plan.tasks import Task, log_of
from slicemill.runtime.step_limit import FAR_LONGER, StepCancelled, StepLimit, StepOverran
from slicemill.shedding.accuracy import AccuracyReport
from slicemill.shedding.load import Comparisons, SheddingDecision
from slicemill.storage.state_size import state_bytes
from slicemill.time import BEGINNING, EARLIEST
from slicemill.types import Row, Schema

_ALL_STAY: Mapping[str, SheddingDecision] = {}
_UNKNOWN: Mapping[str, int] = {}
_UNLIMITED = StepLimit(math.inf)


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskPlan:
    """Plan of a task, as sent to workers. Immutable and picklable."""

    task: Task
    graph: QueryGraph
    catalog: Catalog
    tables: Mapping[str, Sequence[Row]]
    exchanges: Mapping[str, Exchange] = field(default_factory=dict)  # input -> partitioning by subtask
    newcomers: Covers = field(default_factory=dict)  # names of states that are empty before the next run
    # New name of an operator's state -> previous name, under which the next run finds the state.
    successors: Mapping[str, str] = field(default_factory=dict)
    # Graph node -> calls or columns of its previous definition that provide its state in the next run.
    parts_taken: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def subtasks(self) -> int:
        return next((exchange.subtasks for exchange in self.exchanges.values()), 1)

    def subtask(self, number: int) -> Subtask:
        exchanges = self.exchanges.values()
        by_time = bool(exchanges) and all(exchange.parts == 1 for exchange in exchanges)
        return Subtask(number, self.subtasks, by_time, any(not exchange.by_key for exchange in exchanges))

    def without(self, logs: Collection[str]) -> TaskPlan:
        """Return the plan without the queries that write the given logs."""
        if not logs:
            return self
        task, graph = without_outputs(self.task, self.graph, logs)
        return replace(self, task=task, graph=graph)

    def computes_same_as(self, other: TaskPlan) -> bool:
        """Return True if another plan of the task has equal operators and tables."""
        return (self.task, self.graph, self.tables) == (other.task, other.graph, other.tables)

    @property
    def emits_at_end(self) -> bool:
        """Return True if an operator emits rows at the end of input."""
        operators = (self.graph[node_id].operator for node_id in self.task.stateful_nodes)
        return any(kind_of(operator).last_words for operator in operators)

    @property
    def has_changes(self) -> bool:
        """Return True if an operator emits a changelog."""
        return any(self.graph[node_id].schema.changelog for node_id in self.task.nodes)


# Plans of tasks are serialized node by node, to be sent to workers.
#
# Serialized graph nodes are cached, because nodes are immutable.
# When a query is added to a plan of a thousand queries, only the nodes of that query are serialized.
# The planner reuses the nodes of unchanged statements (`plan.planner`).

_PACKED_NODES = 1 << 14  # maximum number of cached nodes, enough for some thousand queries


def pack_plan(plan: TaskPlan) -> bytes:
    """Serialize the plan of a task. Equal plans have equal bytes."""
    nodes = [_pack_node(node) for node in plan.graph]
    message: bytes = cloudpickle.dumps((replace(plan, graph=QueryGraph({}, plan.graph.streams)), nodes))
    return message


def unpack_plan(message: bytes) -> TaskPlan:
    plan, packed_nodes = cast(tuple[TaskPlan, list[bytes]], cloudpickle.loads(message))
    nodes = map(_unpack_node, packed_nodes)
    return replace(plan, graph=QueryGraph({node.id: node for node in nodes}, plan.graph.streams))


@lru_cache(_PACKED_NODES)
def _pack_node(node: Node) -> bytes:
    # Only cloudpickle can serialize the user-defined functions that a node may contain.
    found: bytes = cloudpickle.dumps(node)
    return found


@lru_cache(_PACKED_NODES)
def _unpack_node(packed_node: bytes) -> Node:
    return cast(Node, cloudpickle.loads(packed_node))


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOutcome:
    """Output of a run: rows and watermark, or the error, of each output log.

    `rows` has the number of rows that each operator emitted. `due` has the input watermarks at which
    held-back rows will be emitted.
    """

    tables: Mapping[str, pa.Table]
    watermarks: Mapping[str, int]
    errors: Mapping[str, str]
    rows: Mapping[str, int]
    due: Dues
    overran: frozenset[str] = frozenset()  # output logs of queries with a step that exceeded its time limit
    # Output logs of queries with an error in a step that several queries share.
    shared: frozenset[str] = frozenset()


class _Overrun(SlicemillError):
    """Error: a step exceeded its limit of processor time."""


class TaskProgram:
    """Steps of a task for one subtask.

    `states` maps each graph node to its state. Queries of `failed` outputs are omitted, and their state is
    dropped.
    """

    def __init__(
        self,
        plan: TaskPlan,
        states: Mapping[str, object] | None = None,
        subtask: int = 0,
        failed: frozenset[str] = frozenset(),
    ) -> None:
        # The driver identifies a step by its index in the task.
        self._indices = {node_id: index for index, node_id in enumerate(plan.task.nodes)}
        self.plan = plan = plan.without(failed)
        self.failed = failed
        self._subtask = plan.subtask(subtask)
        # If rows are placed by time, all subtasks read the same rows before a join.
        # Then only subtask 0 reports row counts of the nodes before a join.
        self._repeats = self._subtask.by_time and subtask > 0
        self._empty: dict[str, pa.Table] = {}  # input -> table without rows
        known = states or {}
        # A query that is dropped and declared again between two runs has the same node ids, but no state.
        self._steps = {
            node_id: self._step(plan.graph[node_id], self._state(plan.graph[node_id], known))
            for node_id in plan.task.nodes
        }
        self._fed = {node_id: input_nodes(plan.graph[node_id], plan.graph) for node_id in plan.task.nodes}
        self._read = {
            node.id: log
            for node in plan.graph
            if (log := log_of(node, plan.graph)) in plan.task.inputs and node.id not in self._fed
        }
        self._logs = {node_id: frozenset([log]) for node_id, log in self._read.items()}
        for node_id, sources in self._fed.items():
            self._logs[node_id] = frozenset(log for source in sources for log in self._behind(source))
        self._own = self._own_nodes()
        self._stateful: dict[str, Stateful] = _steps_with_role(self._steps, Stateful)
        self._controlled: dict[str, LoadControlledStep] = _steps_with_role(self._steps, LoadControlledStep)
        self._keyed: list[KeyPartitionedStep] = list(
            _steps_with_role(self._steps, KeyPartitionedStep).values()
        )
        self._weighing: list[KeyPartitionedStep] = list(
            _steps_with_role(self._stateful, KeyPartitionedStep).values()
        )
        self._comparing: dict[str, ComparisonCounter] = _steps_with_role(self._stateful, ComparisonCounter)
        self._shedding: dict[str, SheddingStep] = _steps_with_role(self._stateful, SheddingStep)
        self._with_last_words: dict[str, FinalOutputStep] = _steps_with_role(self._stateful, FinalOutputStep)
        self._with_first_row: dict[str, InitialRowStep] = _steps_with_role(self._stateful, InitialRowStep)

    def _own_nodes(self) -> list[str]:
        """Return the graph nodes whose rows this subtask counts. Another subtask counts repeated rows."""
        graph, nodes = self.plan.graph, self.plan.task.nodes
        if not self._repeats:
            return list(nodes)
        joins = {node_id for node_id in nodes if is_two_way(graph[node_id].operator)}
        return [node_id for node_id in nodes if joins & graph.ancestors(node_id)]

    @property
    def states(self) -> dict[str, object]:
        """Map each graph node to the state that is kept until the next run."""
        return {node_id: step.state for node_id, step in self._stateful.items()}

    def state_bytes(self) -> int:
        """Return the bytes of memory that the subtask's state uses in this process."""
        return sum(
            step.bytes_kept() if isinstance(step, MemoryReporter) else state_bytes({node_id: step.state})
            for node_id, step in self._stateful.items()
        )

    @property
    def sheds(self) -> dict[str, AccuracyReport]:
        """Map each graph node to a report of the rows that it has dropped under load."""
        found: dict[str, AccuracyReport] = {}
        if self._repeats:
            return found
        for node_id, step in self._shedding.items():
            found |= step.sheds(node_id)
        return found

    @property
    def latest(self) -> dict[str, int]:
        """Map graph nodes to the greatest row timestamp in this subtask.

        The nodes are those that need the maximum over all subtasks.
        """
        if self.plan.subtasks == 1:
            return {}
        return {node_id: step.latest_ts for node_id, step in self._with_last_words.items()}

    @property
    def compared(self) -> dict[str, Comparisons]:
        """Map each join to its number of row comparisons in the last run, by age of rows."""
        return {node_id: step.compared for node_id, step in self._comparing.items()}

    @property
    def key_work(self) -> KeyWork:
        """Return the work per key of the task's join in the last run, if the task has exactly one join."""
        return self._weighing[0].key_work if len(self._weighing) == 1 else NO_WORK

    def run(
        self,
        inputs: Mapping[str, pa.Table],
        watermarks: Mapping[str, int],
        dropping: Mapping[str, SheddingDecision] = _ALL_STAY,
        latest: Mapping[str, int] = _UNKNOWN,
        heavy: tuple[HeavyKey, ...] = (),
        limit: StepLimit | None = None,
        first_rows: bool = True,
    ) -> RunOutcome:
        """Run all steps of the subtask over new input rows.

        `dropping` maps each graph node to its load shedding; by default no rows are shed. `latest` maps each
        graph node to the greatest row timestamp of all subtasks so far. With several subtasks, inputs end in
        a run without rows, after the timestamps of all subtasks are known. `heavy` are the keys whose rows go
        to all subtasks. If `first_rows` is False, global aggregates emit no row before their first input row.
        """
        for node_id, controlled in self._controlled.items():
            controlled.set_load(node_id, dropping)
        for keyed in self._keyed:
            keyed.set_heavy(heavy)
        for node_id, step in self._with_last_words.items():
            step.latest_elsewhere = latest.get(node_id, BEGINNING)
        for with_first_row in self._with_first_row.values():
            with_first_row.emits_first_row = first_rows
        with keys_found_once():
            found = self._run_steps(inputs, watermarks, limit or _UNLIMITED)
        results = {log: found[node_id] for node_id, log in self.plan.task.outputs}
        bad = {log: problem for log, problem in results.items() if isinstance(problem, SlicemillError)}
        causes = Counter(map(id, bad.values()))
        good = {log: part for log, part in results.items() if not isinstance(part, SlicemillError)}
        return RunOutcome(
            tables={log: table for log, (table, _) in good.items()},
            watermarks={log: watermark for log, (_, watermark) in good.items()},
            errors={log: str(problem) for log, problem in bad.items()},
            rows={node_id: _rows(found.get(node_id)) for node_id in self._own},
            due=earliest(list(self._dues())),
            overran=frozenset(log for log, problem in bad.items() if isinstance(problem, _Overrun)),
            shared=frozenset(log for log, problem in bad.items() if causes[id(problem)] > 1),
        )

    def _behind(self, source: str) -> frozenset[str]:
        """Return the input logs from which the rows of a graph node are derived."""
        return self._logs.get(source, frozenset())

    def _dues(self) -> Iterator[Mapping[str, int]]:
        for node_id, step in self._stateful.items():
            due, sources = step.due(), self._fed[node_id]
            if due is None:
                continue
            for way in due if isinstance(due, list) else [due]:
                by_log: dict[str, int] = {}
                each = (way,) * len(sources) if isinstance(way, int) else way
                for source, ts in zip(sources, each, strict=True):
                    for log in self._behind(source) if ts > BEGINNING else ():
                        by_log[log] = max(ts, by_log.get(log, ts))
                if by_log:
                    yield by_log

    def _run_steps(
        self,
        inputs: Mapping[str, pa.Table],
        watermarks: Mapping[str, int],
        limit: StepLimit,
    ) -> dict[str, StepResult]:
        """Run the steps of all graph nodes in order. Map each node to its result."""
        many = len(self._stateful) > 1
        tables = {log: table.combine_chunks() if many else table for log, table in inputs.items()}
        found: dict[str, StepResult] = {
            node: (tables[log], watermarks[log]) for node, log in self._read.items()
        }
        parts: dict[str, dict[str, StepResult]] = {}  # shared node -> query -> result
        for node_id, sources in self._fed.items():
            operator, step = self.plan.graph[node_id].operator, self._steps[node_id]
            if isinstance(operator, Part):
                shared = sources[0]
                # If a shared step has returned no result per query, it has failed for all its queries.
                found[node_id] = parts[shared][operator.member] if shared in parts else found[shared]
            elif step is not None:
                given = [self._given(found[source], source, node_id) for source in sources]
                made = _run(step, given, limit, self._indices[node_id])
                if isinstance(made, list):
                    assert isinstance(operator, SharedOperator), "nothing else makes parts"
                    names = [member.name for member in operator.members]
                    parts[node_id] = dict(zip(names, made, strict=True))
                else:
                    found[node_id] = made
        return found

    def _given(self, part: StepResult, source: str, node_id: str) -> StepResult:
        """Return the rows and watermark that one step receives from another step.

        A changelog may contain results that precede the first row of a stream. Rows of a stream are later
        than `EARLIEST`. So the first step with a changelog gets a watermark after `EARLIEST` even if no row
        has arrived, and emits these results.
        """
        graph = self.plan.graph
        if isinstance(part, SlicemillError) or part[1] > BEGINNING:
            return part
        stays = not graph[source].schema.changelog and graph[node_id].schema.changelog
        return (part[0], EARLIEST + 1) if stays else part

    def schema_of(self, log: str) -> Schema:
        """Return the schema of an output log."""
        (node_id,) = [node_id for node_id, written in self.plan.task.outputs if written == log]
        return self.plan.graph[node_id].schema

    def empty_input(self, log: str) -> pa.Table:
        if log not in self._empty:
            node = next(n for n in self.plan.graph if log_of(n, self.plan.graph) == log)
            self._empty[log] = with_system_columns(to_arrow(node.schema)).empty_table()
        return self._empty[log]

    def _state(self, node: Node, known: Mapping[str, object]) -> object | None:
        """Return the stored state of a graph node, or the state taken over from its previous definition."""
        if node.id in self.plan.newcomers:
            return None
        parts = self.plan.parts_taken.get(node.id)
        if parts is None:
            return known.get(node.id)
        state, name = known.get(self.plan.successors[node.id]), kind_of(node.operator).taken_over
        assert name is not None, "its kind has said what the state provides"
        return None if state is None else load(name)(node.operator, state, parts)

    def _step(self, node: Node, state: object | None) -> Step | SharedStep | None:
        plan = self.plan
        context = StepContext(
            node=node,
            graph=plan.graph,
            catalog=plan.catalog,
            tables=plan.tables,
            state=state,
            newcomers=plan.newcomers,
            subtask=self._subtask,
            successors=plan.successors,
        )
        return step_of(context)


def _steps_with_role(steps: Mapping[str, object], role: type) -> dict[str, Any]:
    """Map graph nodes to their steps. Only steps that implement the protocol `role` are included."""
    one_of_each = {type(step): step for step in steps.values()}
    found = {kind for kind, step in one_of_each.items() if isinstance(step, role)}
    return {node_id: step for node_id, step in steps.items() if type(step) in found}


def _run(
    step: Step | SharedStep, given: Sequence[StepResult], limit: StepLimit, index: int
) -> StepResult | list[StepResult]:
    """Run a step, or return the first error among its inputs."""
    tables, watermarks = [], []
    for part in given:
        if isinstance(part, SlicemillError):
            return part
        tables.append(part[0])
        watermarks.append(part[1])
    limit.begin(index)
    try:
        made = step.run(tables, watermarks)
    except StepCancelled:
        return _Overrun("it was being dropped while it computed, and was interrupted")
    except StepOverran:
        rows = sum(table.num_rows for table in tables)
        return _Overrun(
            f"one step took more than {limit.seconds:g} s of processor time for {rows:,} rows, "
            f"{FAR_LONGER}; look for an expression that takes long, such as levenshtein of long texts"
        )
    except SlicemillError as problem:
        return problem
    except MemoryError:
        limit.end(deadly=True)
        # The worker process ends, and the run is retried.
        raise
    except OSError:
        # An operating system error is no error of the query, so the run is retried.
        raise
    # Queries that do not need the failed step continue.
    except Exception as problem:
        return SlicemillError(f"{type(problem).__name__}: {problem}")
    finally:
        limit.end()
    return made if isinstance(made, tuple) else list(made)


def _rows(part: StepResult | None) -> int:
    return part[0].num_rows if isinstance(part, tuple) else 0
