"""Execution of CREATE CLASSIFIER over batches: collect values per time unit, classify complete time units.

A time unit is one interval of the clause EVERY. It is complete when the watermark has passed its end. A
classification task is one object to classify: a value of the PARTITION BY key.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.codec.registry import stored_as
from slicemill.columns.arrow_schema import TS
from slicemill.columns.rows import column_values, to_table
from slicemill.errors import SlicemillError
from slicemill.extensions.classify.classifier import Observe, TaskClassifier
from slicemill.extensions.classify.definition import Classifier as Definition
from slicemill.extensions.classify.spec import Classify
from slicemill.extensions.classify.training import TrainingExamples, train
from slicemill.functions.vectors import from_values, to_arrow
from slicemill.kernels.arrays import Bools, Floats, Int64s
from slicemill.operators.step import StepContext
from slicemill.shedding.load import NOTHING, SheddingDecision
from slicemill.time import END
from slicemill.types import Row, Schema, Timed, Type


@stored_as("classify", version=2, upgrade={1: lambda plain: {**plain, "payloads": {}}})
@dataclass(slots=True)
class ClassifyState:
    """Checkpointed state of a classifier: learnt parameters, and values of incomplete time units.

    `units` has the feature values of each incomplete time unit, by its number. If features are computed by a
    Python function (option `observe`), `payloads` has the input values, and `units` has their indexes.
    """

    trained: TrainedClassifier
    next_unit: int | None = None
    units: dict[int, Floats] = field(default_factory=dict)
    next_seq: int = 0
    ended: bool = False
    payloads: dict[int, list[Any]] = field(default_factory=dict)


class ClassifyStep:
    """Step of the operator that runs CREATE CLASSIFIER.

    All classified objects share the capacity, so the operator has only one parallel instance.
    """

    def __init__(self, state: ClassifyState, definition: Definition, context: StepContext) -> None:
        self.state = state
        self._definition = definition
        self._schemas = context.schemas
        self._output = context.node.schema
        self._indices = column_indexes(definition, self._schemas)
        self._share = 1.0
        observes = definition.options.observe is not None
        self._observer = Observer(definition, self._schemas, state.trained) if observes else None

    def set_load(self, node_id: str, dropping: Mapping[str, SheddingDecision]) -> None:
        """Set the share of the classifier's capacity that is available in the next micro-batch."""
        self._share = dropping.get(node_id, NOTHING).share

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        for table, schema, indices in zip(tables, self._schemas, self._indices, strict=True):
            if table.num_rows:
                self._take(table, schema, indices)
        until = min(complete)
        rows = self._decide(until)
        self.state.ended = until == END
        first, self.state.next_seq = self.state.next_seq, self.state.next_seq + len(rows)
        # The watermark triggers these rows, so they have no arrival time.
        seqs = range(first, self.state.next_seq)
        return to_table(rows, self._output, [0] * len(rows), seqs), until

    def due(self) -> int | None:
        unit = self._first_unit()
        return None if unit is None or self.state.ended else (unit + 1) * self._definition.every_us

    def _take(self, table: pa.Table, schema: Schema, indices: Sequence[tuple[int, int]]) -> None:
        """Store feature values of new rows in their time units. Later values overwrite earlier values."""
        state = self.state
        units: Int64s = table.column(TS).to_numpy() // self._definition.every_us
        numbers, indices_of_units = np.unique(units, return_inverse=True)
        tasks = self._tasks(table, schema)
        for unit in numbers.tolist():
            if unit not in state.units:
                state.units[unit] = state.trained.nothing(len(self._definition.features))
        grid = np.stack([state.units[unit] for unit in numbers.tolist()])
        for column, feature in indices:
            if self._observer is not None:
                observed = schema.columns[column].type
                payloads = column_values(table.column(schema.names[column]), observed)
                values = self._store_payloads(payloads, units, tasks)
            else:
                values = _numbers(table.column(schema.names[column]))
            good = np.isfinite(values) & (tasks >= 0)
            # If several rows have the same time unit, task and feature, the last value is stored.
            grid[indices_of_units[good], tasks[good], feature] = values[good]
        for unit, values in zip(numbers.tolist(), grid, strict=True):
            state.units[unit] = values

    def _store_payloads(self, payloads: Sequence[object], units: Int64s, tasks: Int64s) -> Floats:
        """Store the inputs of an observation function until their time unit ends.

        Return the index of each input in the list of its time unit, NaN for inputs that are not stored.
        """
        indices = np.full(len(payloads), np.nan)
        rows = zip(payloads, units.tolist(), tasks.tolist(), strict=True)
        for row, (payload, unit, task) in enumerate(rows):
            if payload is not None and task >= 0:
                waiting = self.state.payloads.setdefault(unit, [])
                indices[row] = len(waiting)
                waiting.append(payload)
        return indices

    def _tasks(self, table: pa.Table, schema: Schema) -> Int64s:
        """Return the number of the classification task of each row, -1 for unknown keys."""
        known, key = self.state.trained.tasks, self._definition.key
        if key is None:
            return np.zeros(table.num_rows, np.int64)
        column = schema.find(key)
        assert column is not None, "the binder has checked it"
        encoded = table.column(column.name).combine_chunks().dictionary_encode()
        values = column_values(pa.chunked_array([encoded.dictionary]), column.type)
        # The last entry is for rows with a NULL key.
        numbers = np.array([*(known.get(value, -1) for value in values), -1])
        return np.asarray(numbers[encoded.indices.fill_null(len(values)).to_numpy()])

    def _first_unit(self) -> int | None:
        state = self.state
        return min(state.units, default=None) if state.next_unit is None else state.next_unit

    def _decide(self, until: int) -> list[Timed]:
        """Classify all complete time units in order, including time units without rows."""
        state, definition = self.state, self._definition
        rows: list[Timed] = []
        unit = self._first_unit()
        while unit is not None and self._is_over(unit, until):
            end = (unit + 1) * definition.every_us
            values = state.units.pop(unit, None)
            if values is None:
                values = state.trained.nothing(len(definition.features))
            payloads = state.payloads.pop(unit, [])
            observe = None if self._observer is None else self._observer.of(payloads, values)
            rows += state.trained.decide(end, values, definition.key is not None, observe, self._share)
            unit += 1
            state.next_unit = unit
        return rows

    def _is_over(self, unit: int, until: int) -> bool:
        # At the end of the input, the time unit of the last row is the last one that is classified.
        if until == END:
            return any(waiting >= unit for waiting in self.state.units)
        return (unit + 1) * self._definition.every_us <= until


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)


def classify(operator: Classify, context: StepContext) -> ClassifyStep:
    definition, state = operator.classifier, context.state
    if not isinstance(state, ClassifyState):
        table = context.graph[context.node.inputs[-1]]
        state = ClassifyState(
            train_classifier(definition, context.rows_of(definition.training), table.schema)
        )
    return ClassifyStep(state, definition, context)


# Observation functions: a user's Python functions that compute feature values on demand
#
#     observe(feature, keys, payloads)  # feature name, Arrow arrays of keys and input values
#
# The function is called once per feature and time unit, with the keys for which the feature is observed.


class Observer:
    """Caller of the Python function that computes feature values from input values (option `observe`)."""

    def __init__(self, definition: Definition, schemas: Sequence[Schema], trained: TrainedClassifier) -> None:
        assert definition.options.observe is not None, "the caller has looked"
        self._name = definition.options.observe
        self._features = definition.features
        self._keys = list(trained.tasks)
        self._types: dict[int, Type] = {}
        for indices, schema in zip(column_indexes(definition, schemas), schemas, strict=True):
            self._types |= {feature: schema.columns[column].type for column, feature in indices}
        key = None if definition.key is None else column_index(schemas[0], definition.key)
        self._key_type = None if key is None else schemas[0].columns[key].type

    def of(self, payloads: Sequence[object], indices: Floats) -> Observe:
        """Return a function that observes the chosen streams of one time unit.

        `payloads` are the input values of the time unit. `indices` has an index into `payloads` for each task
        and feature, NaN for missing values.
        """

        def observe(chosen: Bools) -> Floats:
            values = np.full(indices.shape, np.nan)
            for feature in range(indices.shape[1]):
                tasks = np.flatnonzero(chosen[:, feature])
                if len(tasks):
                    inputs = [payloads[int(index)] for index in indices[tasks, feature]]
                    values[tasks, feature] = self._call_function(feature, tasks.tolist(), inputs)
            return values

        return observe

    def _call_function(self, feature: int, tasks: Sequence[int], payloads: Sequence[object]) -> Floats:
        name = self._features[feature]
        keys = pa.nulls(len(tasks))
        if self._key_type is not None:
            keys = _array([self._keys[task] for task in tasks], self._key_type)
        try:
            result = _import_function(self._name)(name, keys, _array(payloads, self._types[feature]))
            array = result if isinstance(result, (pa.Array, pa.ChunkedArray)) else pa.array(result)
            values = np.asarray(array.cast(pa.float64()).to_numpy(zero_copy_only=False), np.float64)
        except Exception as problem:  # a user's function may fail in any way
            message = str(problem).partition("\n")[0]
            raise SlicemillError(
                f"{self._name} failed to observe {name}: {type(problem).__name__}: {message}"
            ) from None
        if len(values) != len(tasks):
            raise SlicemillError(
                f"{self._name} received {len(tasks)} values of {name} and returned {len(values)}; "
                f"it has to return one number for each value"
            )
        return np.where(np.isfinite(values), values, np.nan)


def _array(values: Sequence[object], type_: Type) -> pa.Array:
    return to_arrow(from_values(values, type_), len(values))


@cache
def _import_function(name: str) -> Callable[..., Any]:
    module, _, attribute = name.partition(":")
    function: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return function


# Training of classifiers, and result rows per time unit (M49, M53)


@stored_as("classify.trained", version=1)
@dataclass(slots=True)
class TrainedClassifier:
    """Trained classifier, the numbers of its classification tasks, and its class values.

    `tasks` maps each value of the PARTITION BY key to a task number. Without a key, the only entry is ().
    `classes` has the class values by class number.
    """

    tasks: dict[object, int]
    classes: list[object]
    classifier: TaskClassifier

    def nothing(self, features: int) -> Floats:
        """Return the feature values of a time unit without rows: NaN for each task and feature."""
        return np.full((len(self.tasks), features), np.nan)

    def decide(
        self, end: int, values: Floats, keyed: bool, observe: Observe | None = None, share: float = 1.0
    ) -> list[Timed]:
        """Classify all tasks, and return the result rows of the time unit that ends at `end`.

        `observe` returns true values of streams. `share` is the available share of the capacity.
        """
        decisions = self.classifier.step(values, observe, share)
        rows: list[Timed] = []
        for key, task in self.tasks.items():
            decision = (end, self.classes[decisions.classes[task]], float(decisions.risks[task]))
            observed = int(np.count_nonzero(decisions.observed[task]))
            rows.append(Timed(end, (*((key,) if keyed else ()), *decision, observed)))
        return rows


def train_classifier(definition: Definition, rows: Sequence[Row], schema: Schema) -> TrainedClassifier:
    """Train a classifier on the rows of its training table, which are in order of time."""
    key = None if definition.key is None else column_index(schema, definition.key)
    label, indices = (
        column_index(schema, definition.label),
        [column_index(schema, name) for name in definition.features],
    )
    labelled = [row for row in rows if row[label] is not None and (key is None or row[key] is not None)]
    if not labelled:
        raise SlicemillError(f"{definition.training} has no row that {definition.name} could learn from")
    classes = sorted({row[label] for row in labelled}, key=_order)
    keys = sorted({() if key is None else row[key] for row in labelled}, key=_order)
    tasks = {value: number for number, value in enumerate(keys)}
    numbers = {value: number for number, value in enumerate(classes)}
    examples = [TrainingExamples([], []) for _ in tasks]
    for row in labelled:
        example = examples[tasks[() if key is None else row[key]]]
        example.values.append([as_number(row[index]) for index in indices])
        example.labels.append(numbers[row[label]])
    return TrainedClassifier(tasks, classes, train(examples, len(classes), definition.options))


def column_indexes(definition: Definition, schemas: Sequence[Schema]) -> list[list[tuple[int, int]]]:
    """Return, for each input stream of a classifier, pairs of column index and feature number."""
    pairs: list[list[tuple[int, int]]] = []
    number = 0
    for entry, schema in zip(definition.inputs, schemas, strict=True):
        pairs.append([(column_index(schema, name), number + i) for i, name in enumerate(entry.columns)])
        number += len(entry.columns)
    return pairs


def as_number(value: object) -> float:
    """Return a feature's value as a float, NaN if it is NULL or not finite."""
    number = math.nan if value is None else float(value)  # type: ignore[arg-type]
    return number if math.isfinite(number) else math.nan


def column_index(schema: Schema, name: str) -> int:
    lowered = name.lower()
    return next(i for i, column in enumerate(schema) if column.name.lower() == lowered)


def _order(value: object) -> tuple[str, object]:
    """Return a sort key for class and key values: the type's name, then the value."""
    return type(value).__name__, value
