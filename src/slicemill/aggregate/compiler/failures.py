"""Error messages of generated code, from the interpreter.

The interpreter runs the failed statement again. Statements are atomic, so the tables are still as they were
before the statement.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from slicemill.aggregate import definition as aggregate
from slicemill.aggregate.compiler.aggregate_code import AggregateCode
from slicemill.aggregate.compiler.layout import MACHINE, MANY, RecordColumns
from slicemill.aggregate.compiler.module import GeneratedRoutine, Module
from slicemill.aggregate.compiler.state import CompiledState
from slicemill.aggregate.compiler.version import CONVERSION, safe
from slicemill.aggregate.interpreter.lookup import EslAccumulator
from slicemill.aggregate.interpreter.statements import row_converter
from slicemill.aggregate.inwindow import Inwindow
from slicemill.errors import SlicemillError
from slicemill.esl.types.aggregate import INWINDOW
from slicemill.esl.types.schema import Kind, Type
from slicemill.scalar.vectors import Vector, to_values


def explain(
    found: aggregate.RowAggregate,
    module: Module,
    routine: GeneratedRoutine,
    state: CompiledState,
    site: int,
    arguments: Sequence[Vector],
) -> SlicemillError:
    """Return the interpreter's error for the site where generated code failed."""
    record = "s" if site == CONVERSION and "b" not in module.codes else "b"
    if site != CONVERSION:
        record, name, path = routine.sites[site - 1]
    made = module.codes[record]
    failure = state.arrays[f"failure_{record}"][0]
    try:
        if site == CONVERSION:
            place = int(failure["tuple_place"])
            rows = max(
                (len(vector.data) for vector in arguments if hasattr(vector.data, "__len__")), default=1
            )
            row_converter(made.version.definition.arguments)(
                tuple(to_values(v, rows)[place] for v in arguments)
            )
        else:
            reader = _Reader(module, state)
            accumulator = _accumulator(found, made, reader, failure)
            accumulator.run_statement(name, path)
    except SlicemillError as error:
        return error
    return SlicemillError(
        f"{made.version.definition.name} has left the range of its numbers: use DOUBLE or DECIMAL"
    )


def _accumulator(
    found: aggregate.RowAggregate, made: AggregateCode, reader: _Reader, failure: Any
) -> EslAccumulator:
    """Return an interpreter's accumulator with this state and these arguments."""
    place = int(failure["record_place"])
    if made.version.definition.window:
        assert found.window is not None
        inwindow = Inwindow()
        for position, row in reader.window(place):
            inwindow.insert(position, row)
        accumulator: Any = found.window(inwindow)
    else:
        assert found.base is not None
        accumulator = found.base()
    assert isinstance(accumulator, EslAccumulator)
    tables = {
        table: reader.table(made, table, [(column.name, column.type) for column in schema], place)
        for table, schema in made.version.schemas.items()
        if table != INWINDOW
    }
    arguments = {
        argument.name: reader.value(failure, safe(argument.name), argument.type)
        for argument in made.version.definition.arguments
    }
    accumulator.restore({"tables": tables, "arguments": arguments})
    return accumulator


class _Reader:
    """Reads the state of a partition as row values."""

    def __init__(self, module: Module, state: CompiledState) -> None:
        self._module = module
        self._state = state

    def value(self, record: Any, field: str, type_: Type) -> object:
        if f"{field}_null" in record.dtype.names and record[f"{field}_null"]:
            return None
        value = record[field]
        plain = value.item() if hasattr(value, "dtype") else value
        if type_.kind is Kind.VARCHAR and self._module.form == MACHINE:
            return self._state.texts.values[plain]
        return plain

    def table(
        self, made: AggregateCode, table: str, types: list[tuple[str, Type]], place: int
    ) -> list[tuple[object, ...]]:
        record = self._state.arrays[made.version.record.upper()][place]
        rows = int(record[f"{safe(table)}_rows"])
        if made.version.bounds[table] < MANY:
            return [tuple(self.value(record, f"{safe(table)}_{safe(n)}", t) for n, t in types)] * rows
        pool, at = self._state.arrays[made.version.array(table)], int(record[f"{safe(table)}_at"])
        return [tuple(self.value(pool[at + i], safe(n), t) for n, t in types) for i in range(rows)]

    def window(self, place: int) -> list[tuple[int, tuple[object, ...]]]:
        """Return the window's tuples, with NULL for arguments that are not stored.

        These arguments are read by no statement.
        """
        if "window" not in self._state.arrays:
            return []
        record, pool = self._state.arrays[self._module.loop][place], self._state.arrays["window"]
        held: RecordColumns = self._module.columns["window"]
        count = len(self._module.codes["s"].version.definition.arguments)
        rows = []
        for i in range(int(record["window_rows"])):
            row = pool[self._place(record, i)]
            values = (
                self.value(row, f"a{j}", held.types[f"a{j}"]) if f"a{j}" in held.types else None
                for j in range(count)
            )
            rows.append((int(row["pos"]) if "pos" in row.dtype.names else i, tuple(values)))
        return rows

    def _place(self, record: Any, i: int) -> int:
        window = self._module.codes["s"].version.window
        if window is None or not window.ring:
            return int(record["window_at"]) + i
        return int(record["window_begin"] + (record["window_at"] + i) % record["window_room"])
