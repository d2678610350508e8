"""Step of classifiers: collects values per time unit, and classifies complete units."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.columns.rows import column_values, to_table
from slicemill.esl.types.classifier import Classifier as Definition
from slicemill.esl.types.schema import Schema
from slicemill.operators.classify.observing import Observer
from slicemill.operators.classify.spec import Classify
from slicemill.operators.classify.training import Trained, placed, trained
from slicemill.operators.context import StepContext
from slicemill.rows import Timed
from slicemill.shedding.classify.arrays import Floats, Ints
from slicemill.shedding.load import NOTHING, Dropping
from slicemill.storage.arrow_schema import TS
from slicemill.storage.codec import stored_as
from slicemill.time import END


@stored_as("classify", version=2, upgrade={1: lambda plain: {**plain, "payloads": {}}})
@dataclass(slots=True)
class ClassifyState:
    """Learnt parameters, the next time unit to classify, and values of open units.

    With an observation function, `payloads` has the input values of a unit, and `units` their positions
    there.
    """

    trained: Trained
    next_unit: int | None = None
    units: dict[int, Floats] = field(default_factory=dict)
    next_seq: int = 0
    ended: bool = False
    payloads: dict[int, list[Any]] = field(default_factory=dict)


class ClassifyStep:
    """Classifier of all tasks.

    The capacity is shared by all tasks, so there is one cell.
    """

    def __init__(self, state: ClassifyState, definition: Definition, context: StepContext) -> None:
        self.state = state
        self._definition = definition
        self._schemas = context.schemas
        self._output = context.node.schema
        self._places = placed(definition, self._schemas)
        self._share = 1.0
        observes = definition.options.observe is not None
        self._observer = Observer(definition, self._schemas, state.trained) if observes else None

    def set_load(self, node_id: str, dropping: Mapping[str, Dropping]) -> None:
        """Set the share of the capacity that is available in the next run."""
        self._share = dropping.get(node_id, NOTHING).share

    def run(self, tables: Sequence[pa.Table], complete: Sequence[int]) -> tuple[pa.Table, int]:
        for table, schema, places in zip(tables, self._schemas, self._places, strict=True):
            if table.num_rows:
                self._take(table, schema, places)
        until = min(complete)
        rows = self._decide(until)
        self.state.ended = until == END
        first, self.state.next_seq = self.state.next_seq, self.state.next_seq + len(rows)
        # The watermark triggers these rows, so they have no arrival time of a tuple.
        seqs = range(first, self.state.next_seq)
        return to_table(rows, self._output, [0] * len(rows), seqs), until

    def due(self) -> int | None:
        unit = self._first_unit()
        return None if unit is None or self.state.ended else (unit + 1) * self._definition.every_us

    def _take(self, table: pa.Table, schema: Schema, places: Sequence[tuple[int, int]]) -> None:
        """Store values of new rows in their time units.

        Later values overwrite earlier ones.
        """
        state = self.state
        units: Ints = table.column(TS).to_numpy() // self._definition.every_us
        numbers, places_of_units = np.unique(units, return_inverse=True)
        tasks = self._tasks(table, schema)
        for unit in numbers.tolist():
            if unit not in state.units:
                state.units[unit] = state.trained.nothing(len(self._definition.features))
        grid = np.stack([state.units[unit] for unit in numbers.tolist()])
        for column, feature in places:
            if self._observer is not None:
                observed = schema.columns[column].type
                given = column_values(table.column(schema.names[column]), observed)
                values = self._kept(given, units, tasks)
            else:
                values = _numbers(table.column(schema.names[column]))
            good = np.isfinite(values) & (tasks >= 0)
            # If several values have the same position, the last one is stored.
            grid[places_of_units[good], tasks[good], feature] = values[good]
        for unit, values in zip(numbers.tolist(), grid, strict=True):
            state.units[unit] = values

    def _kept(self, given: Sequence[object], units: Ints, tasks: Ints) -> Floats:
        """Store payloads until their time unit ends.

        Return their positions, NaN for none.
        """
        places = np.full(len(given), np.nan)
        for row, (payload, unit, task) in enumerate(zip(given, units.tolist(), tasks.tolist(), strict=True)):
            if payload is not None and task >= 0:
                waiting = self.state.payloads.setdefault(unit, [])
                places[row] = len(waiting)
                waiting.append(payload)
        return places

    def _tasks(self, table: pa.Table, schema: Schema) -> Ints:
        """Return the task number of each row, -1 for unknown keys."""
        known, key = self.state.trained.tasks, self._definition.key
        if key is None:
            return np.zeros(table.num_rows, np.int64)
        column = schema.find(key)
        assert column is not None, "the binder has checked it"
        encoded = table.column(column.name).combine_chunks().dictionary_encode()
        values = column_values(pa.chunked_array([encoded.dictionary]), column.type)
        # The last entry is for rows without a key.
        numbers = np.array([*(known.get(value, -1) for value in values), -1])
        return np.asarray(numbers[encoded.indices.fill_null(len(values)).to_numpy()])

    def _first_unit(self) -> int | None:
        state = self.state
        return min(state.units, default=None) if state.next_unit is None else state.next_unit

    def _decide(self, until: int) -> list[Timed]:
        """Classify all complete units in order, including units without tuples."""
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
        # At the end of the input, the unit of the last tuple is the last one.
        if until == END:
            return any(waiting >= unit for waiting in self.state.units)
        return (unit + 1) * self._definition.every_us <= until


def _numbers(column: pa.ChunkedArray) -> NDArray[np.float64]:
    return np.asarray(column.cast(pa.float64()).to_numpy(), np.float64)


def classify(operator: Classify, context: StepContext) -> ClassifyStep:
    definition, state = operator.classifier, context.state
    if not isinstance(state, ClassifyState):
        table = context.graph[context.node.inputs[-1]]
        state = ClassifyState(trained(definition, context.rows_of(definition.training), table.schema))
    return ClassifyStep(state, definition, context)
