"""Aggregate calls that run as generated code, compiled to machine code or as Python.

A module is the generated code of one call. Its state consists of records (one per partition) and pools
(arrays with rows of local tables).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from math import gcd
from types import ModuleType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from slicemill.aggregates import definition as aggregate
from slicemill.aggregates.calls import CallAnswers, ExecutionForm, Results, Tuples
from slicemill.aggregates.frames import Inwindow, WindowFrame
from slicemill.aggregates.udf.compiler import state as ops
from slicemill.aggregates.udf.compiler.layout import MACHINE, MANY, PYTHON, RecordColumns, dtype_of
from slicemill.aggregates.udf.compiler.module import GeneratedRoutine, Module
from slicemill.aggregates.udf.compiler.state import (
    CompiledState,
    after_change,
    allow_nulls,
    before_change,
    has_objects,
    make_room,
    move,
    start,
)
from slicemill.aggregates.udf.compiler.version import CONVERSION, AggregateCode, safe_identifier
from slicemill.aggregates.udf.interpreter import row_converter
from slicemill.aggregates.udf.lookup import EslAccumulator
from slicemill.catalog.aggregates import INWINDOW
from slicemill.columns.ranges import FOREVER
from slicemill.errors import SlicemillError
from slicemill.functions import vectors
from slicemill.functions.vectors import Vector, to_values
from slicemill.kernels.kernel import KernelFunction, inside_python
from slicemill.types import Kind, Type

_NEVER = -(2**63)
_MANY = 1024
_NONE = np.zeros(2**20, np.bool_)  # shared expiry flags of results without expired tuples
_NONE.flags.writeable = False

Explain = Callable[[Module, GeneratedRoutine, CompiledState, int, Sequence[Vector]], Exception]


class CompiledCall:
    """Call of a user-defined aggregate that runs as generated code.

    `variants` are two modules of generated code: for arguments that are never NULL, and for arguments that
    may be NULL. `explain` returns the error message for a place in the code that failed.
    """

    def __init__(
        self,
        variants: tuple[Module, Module],
        returns: tuple[Type, ...],
        types: tuple[Type, ...],
        frame: WindowFrame | None,
        literals: dict[str, int],
        how: ExecutionForm,
        explain: Explain,
    ) -> None:
        self.returns, self.how = returns, how
        self._variants = variants
        self._loaded: dict[bool, ModuleType] = {}
        self._types = types
        self._frame = frame
        self._literals = literals
        self._explain = explain
        self._form = variants[0].form
        self._numbers = _numbers(frame)
        providers = (made.version.definition.provider for made in variants[0].codes.values())
        self._finite = any(provider is not None and provider.finite for provider in providers)

    @property
    def _waits_for_time(self) -> bool:
        return self._frame is not None and self._frame.waits_for_time

    @property
    def _active(self) -> bool:
        return self._frame is not None and self._frame.active

    def start(self) -> CompiledState:
        return start(self._variants[0], self._literals, self._waits_for_time, self._active)

    def take_over(self, state: CompiledState, other: CompiledCall, parts: Sequence[int]) -> None:
        """Convert a state of `other`, which evaluates more calls together, to the layout of this call.

        `parts` are the indexes in `other` of the calls that remain.
        """
        move(state, other._variants[state.nullable], self._variants[state.nullable], parts)

    def run(self, state: CompiledState, tuples: Tuples, complete: int | None = None) -> CallAnswers:
        """Process tuples, in small pieces as long as the loop is not compiled to machine code yet.

        Machine code can then replace the Python code between two pieces.
        """
        done, rows = 0, len(tuples.ts)
        parts: list[CallAnswers] = []
        while not parts or done < rows:
            count = self._piece(state, rows - done)
            whole = count == rows
            piece = tuples if whole else _part(tuples, done, done + count)
            done += count
            parts.append(self._run(state, piece, complete if done == rows else None))
        return parts[0] if len(parts) == 1 else _concat_answers(parts)

    def _piece(self, state: CompiledState, rows: int) -> int:
        if self._form != MACHINE:
            return rows
        function = getattr(self._code(self._variants[state.nullable]), self._variants[0].run.name)
        return int(function.piece(rows)) if isinstance(function, KernelFunction) else rows

    def _run(self, state: CompiledState, tuples: Tuples, complete: int | None) -> CallAnswers:
        rows = len(tuples.ts)
        inputs = self._inputs(state, tuples, rows)
        module = self._variants[state.nullable]
        make_room(state, module, int(tuples.partitions.max()) + 1 if rows else 0, rows)
        inputs |= self._numbers
        # With unsigned indexes, generated code needs no test for negative indexes.
        codes = tuples.partitions.astype(np.int32, copy=False).view(np.uint32)
        inputs |= {"codes": _read_only(codes), "ts": _read_only(tuples.ts), "first": state.arrivals}
        inputs["complete"] = _NEVER if complete is None else complete
        first = state.arrivals
        # A tuple may return rows at its arrival, and again at its expiry.
        events = rows + state.waiting + (rows if self._active else 0)
        keeps_objects = any(map(has_objects, state.arrays.values()))
        indices = self._indices(state, tuples, inputs["complete"]) if keeps_objects else None
        if keeps_objects:
            before_change(state, indices)
        count, out = self._execute(module, module.run, state, inputs, events, tuples.arguments)
        if keeps_objects:
            after_change(state, indices)
        state.arrivals += rows
        one_each = module.run.one_each
        numbers = _counting(first, rows) if one_each else out["out_number"][:count]
        if self._waits_for_time:
            ts, expired = out["out_ts"][:count], out["out_expired"][:count]
        else:
            ts = tuples.ts if one_each else tuples.ts[numbers - first]
            expired = _none(count)
        columns = self._columns(module, state, out, count)
        if "opened" in state.arrays and count:
            order = np.argsort(numbers, kind="stable")
            numbers, ts = numbers[order], ts[order]
            columns = [vectors.take(column, order) for column in columns]
        state.texts.forget(_text_fields(module, state))
        answered = self._answered(state)
        return CallAnswers(numbers, ts, columns, expired, answered, self._needed(state, answered))

    def _indices(self, state: CompiledState, tuples: Tuples, complete: int) -> Any:
        """Return the numbers of the partitions whose records these tuples may change."""
        changed = [np.asarray(tuples.partitions, np.int64)]
        first, end = state.arrays["slot"].tolist() if self._waits_for_time else (0, 0)
        if self._active:
            until = max([complete, *tuples.ts[-1:].tolist()])
            end = first + int(np.searchsorted(state.arrays["negative_ts"][first:end], until, side="right"))
            changed.append(state.arrays["negative_p"][first:end])
        elif "opened" in state.arrays:
            changed.append(state.arrays["opened"][: state.waiting])
        return np.unique(np.concatenate(changed))

    def finish(self, state: CompiledState) -> Results:
        module = self._variants[state.nullable]
        assert module.finish is not None, "only a call without window ends"
        make_room(state, module, 1, 0)
        records = state.arrays[module.loop]
        groups = np.flatnonzero(records["started"])
        groups = groups[np.argsort(records["first"][groups], kind="stable")]
        if not len(groups):
            groups = np.zeros(1, np.int64)
        count, out = self._execute(module, module.finish, state, {"codes": groups}, len(groups), ())
        return Results(out["out_number"][:count], self._columns(module, state, out, count))

    def module_of(self, state: CompiledState) -> Module:
        """Return the generated module that defines the layout of a state."""
        return self._variants[state.nullable]

    def due(self, state: CompiledState) -> int | None:
        if not self._waits_for_time or not state.waiting:
            return None
        slot = state.arrays["slot"]
        return int(state.arrays["negative_ts"][slot[0]]) + 1 if self._active else int(slot[1])

    def _answered(self, state: CompiledState) -> int:
        if "opened" not in state.arrays or not state.waiting:
            return state.arrivals
        open_ones = state.arrays["opened"][: state.waiting]
        return int(state.arrays[self._variants[0].loop]["open_number"][open_ones].min())

    def _needed(self, state: CompiledState, answered: int) -> int:
        if not self._active or not state.waiting:
            return answered
        return int(state.arrays["negative_number"][state.arrays["slot"][0]])

    # -- execution of generated routines -------------------------------------------------------------------

    def _execute(
        self,
        module: Module,
        routine: GeneratedRoutine,
        state: CompiledState,
        inputs: dict[str, Any],
        rows: int,
        arguments: Sequence[Vector],
    ) -> tuple[int, dict[str, Any]]:
        """Run a generated routine. Return the number of output rows, and the output arrays."""
        size = rows + 16 if routine.bound is None else max(1, (rows + 2) * routine.bound)
        arrays = state.arrays | inputs | self._outputs(routine, size)
        function = getattr(self._code(module), routine.name)
        parameters = [arrays[name] for name in routine.parameters]
        with inside_python() if module.form == PYTHON else np.errstate(all="ignore"):
            site, count, *returned = function(*parameters)
        back = dict(zip(routine.returned_arrays, returned, strict=True))
        state.arrays |= {name: array for name, array in back.items() if name in state.arrays}
        if site != 0:
            raise self._explain(module, routine, state, int(site), arguments)
        return int(count), back

    def _code(self, module: Module) -> ModuleType:
        nullable = module is self._variants[1]
        if nullable not in self._loaded:
            shared = module.form == MACHINE
            made = _load_cached(module.source) if shared else _load_module(module.source, module.closures)
            self._loaded[nullable] = made
        return self._loaded[nullable]

    def _may_be_null(self, vector: Vector) -> bool:
        """Return True if an argument column may contain NULL.

        Models (CREATE MODEL) treat non-finite numbers as NULL.
        """
        if vector.valid is not None and not np.all(vector.valid):
            return True
        return self._finite and vector.data.dtype.kind == "f" and not np.isfinite(vector.data).all()

    def _inputs(self, state: CompiledState, tuples: Tuples, rows: int) -> dict[str, Any]:
        inputs: dict[str, Any] = {}
        if not state.nullable and any(map(self._may_be_null, tuples.arguments)):
            allow_nulls(state, *self._variants)
        for index, (vector, type_) in enumerate(zip(tuples.arguments, self._types, strict=True)):
            full = vectors.full_length(vector, rows)
            inputs[f"in_{index}"] = self._input(state, full, type_, rows)
            if state.nullable:
                valid = np.ones(rows, np.bool_) if vector.valid is None else vector.valid
                inputs[f"in_{index}_null"] = _read_only(~np.broadcast_to(valid, (rows,)))
        return inputs

    def _input(self, state: CompiledState, vector: Vector, type_: Type, rows: int) -> Any:
        if type_.kind is Kind.VARCHAR and type_.length is not None:
            vector = Vector(type_, pc.utf8_slice_codeunits(vector.data, 0, type_.length), vector.valid)
        if self._form == MACHINE:
            coded = state.texts.encode(vector.data) if type_.kind is Kind.VARCHAR else vector.data
            return _read_only(coded)
        if dtype_of(type_, self._form) is not np.object_:
            return vector.data
        values = np.empty(rows, np.object_)
        values[:] = vectors.to_values(vector, rows)
        return values

    def _outputs(self, routine: GeneratedRoutine, size: int) -> dict[str, Any]:
        """Allocate the arrays to which a generated routine writes its output rows."""
        dtypes: dict[str, Any] = {"out_number": np.int64, "out_ts": np.int64, "out_expired": np.bool_}
        for index, type_ in enumerate(self.returns):
            dtypes |= {f"out_{index}": dtype_of(type_, self._form), f"out_{index}_null": np.bool_}
        return {
            name: _empty(size, dtype) for name, dtype in dtypes.items() if name in routine.returned_arrays
        }

    def _columns(self, module: Module, state: CompiledState, out: dict[str, Any], count: int) -> list[Vector]:
        columns = []
        for index, type_ in enumerate(self.returns):
            values = out[f"out_{index}"][:count]
            null = out[f"out_{index}_null"][:count] if module.null_returns[index] else None
            valid = None if null is None or not null.any() else ~null
            if type_.kind is Kind.VARCHAR and self._form == MACHINE:
                columns.append(Vector(type_, state.texts.decode(values, valid), valid))
            elif values.dtype == np.object_:
                shown = [None if null is not None and null[i] else value for i, value in enumerate(values)]
                columns.append(vectors.from_values(shown, type_))
            else:
                columns.append(Vector(type_, values.astype(vectors.dtype_of(type_), copy=False), valid))
        return columns


def _load_module(source: str, values: dict[str, Any]) -> ModuleType:
    made = ModuleType("slicemill_generated")
    made.__dict__.update(values)
    exec(compile(source, "<generated>", "exec"), made.__dict__)
    return made


@lru_cache(maxsize=_MANY)
def _load_cached(source: str) -> ModuleType:
    """Load a module of generated code, once for equal source text, so that calls share machine code."""
    return _load_module(source, {})


def _part(tuples: Tuples, first: int, last: int) -> Tuples:
    indices = np.arange(first, last)
    arguments = [vectors.take(argument, indices) for argument in tuples.arguments]
    return Tuples(arguments, tuples.partitions[first:last], tuples.ts[first:last])


def _concat_answers(parts: Sequence[CallAnswers]) -> CallAnswers:
    columns = []
    for index, vector in enumerate(parts[0].columns):
        arrays = [vectors.to_arrow(part.columns[index], len(part.numbers)) for part in parts]
        columns.append(vectors.from_arrow(pa.concat_arrays(arrays), vector.type))
    return CallAnswers(
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.ts for part in parts]),
        columns,
        np.concatenate([part.expired for part in parts]),
        parts[-1].answered,
        parts[-1].needed_from,
    )


def _empty(size: int, dtype: Any) -> Any:
    """Allocate an array with Arrow, which reuses freed memory.

    NumPy returns memory to the operating system, so that each page costs a page fault in the next chunk.
    """
    if dtype is np.object_:
        return np.empty(size, dtype)
    return np.frombuffer(pa.allocate_buffer(size * np.dtype(dtype).itemsize), dtype)


def _none(count: int) -> Any:
    return _NONE[:count] if count <= len(_NONE) else np.zeros(count, np.bool_)


def _counting(first: int, rows: int) -> Any:
    numbers = _empty(rows, np.int64)
    ops.count_from(numbers, first)
    return numbers


def _read_only(array: Any) -> Any:
    """Return a read-only view of an array.

    Arrow columns are read-only. If all inputs are read-only, machine code is compiled only once.
    """
    view = np.ascontiguousarray(array).view()
    view.flags.writeable = False
    return view


def _numbers(frame: WindowFrame | None) -> dict[str, int]:
    """Return the lengths of a window, its slide and its panes, which are parameters of generated loops."""
    if frame is None or frame.preceding is None:
        return {}
    # Lengths are limited, so that generated code can add them to 64-bit integers without overflow.
    numbers = {"preceding": min(frame.preceding, FOREVER)}
    if frame.slide is not None and frame.length is not None:
        pane = gcd(frame.length, frame.slide)
        panes = frame.in_panes(pane)
        assert panes.preceding is not None and panes.slide is not None
        numbers |= {"slide": min(frame.slide, FOREVER), "length": min(frame.length, FOREVER)}
        numbers |= {"pane_length": pane}
        numbers |= {"panes_preceding": panes.preceding, "panes_slide": panes.slide}
    return numbers


def _text_fields(module: Module, state: CompiledState) -> list[Any]:
    if module.form != MACHINE:
        return []
    return [state.arrays[name][field] for name, fields in module.texts.items() for field in fields]


# Error messages for failures in generated code
#
# The interpreter runs the failed statement again, and raises the error with its message. Statements are
# atomic, so the tables are unchanged since before the statement.


def explain(
    definition: aggregate.RowAggregate,
    module: Module,
    routine: GeneratedRoutine,
    state: CompiledState,
    site: int,
    arguments: Sequence[Vector],
) -> SlicemillError:
    """Return the interpreter's error for the statement that failed in generated code.

    `site` is the number of the statement in the generated routine.
    """
    record = "s" if site == CONVERSION and "b" not in module.codes else "b"
    if site != CONVERSION:
        record, name, path = routine.sites[site - 1]
    made = module.codes[record]
    failure = state.arrays[f"failure_{record}"][0]
    try:
        if site == CONVERSION:
            index = int(failure["tuple_place"])
            rows = max(
                (len(vector.data) for vector in arguments if hasattr(vector.data, "__len__")), default=1
            )
            row_converter(made.version.definition.arguments)(
                tuple(to_values(v, rows)[index] for v in arguments)
            )
        else:
            reader = _Reader(module, state)
            accumulator = _accumulator(definition, made, reader, failure)
            accumulator.run_statement(name, path)
    except SlicemillError as error:
        return error
    return SlicemillError(
        f"{made.version.definition.name} exceeded the range of its numbers: use DOUBLE or DECIMAL"
    )


def _accumulator(
    definition: aggregate.RowAggregate, made: AggregateCode, reader: _Reader, failure: Any
) -> EslAccumulator:
    """Create an accumulator of the interpreter in the state before the failed statement."""
    index = int(failure["record_place"])
    if made.version.definition.window:
        assert definition.window is not None
        inwindow = Inwindow()
        for position, row in reader.window(index):
            inwindow.insert(position, row)
        accumulator: Any = definition.window(inwindow)
    else:
        assert definition.base is not None
        accumulator = definition.base()
    assert isinstance(accumulator, EslAccumulator)
    tables = {
        table: reader.table(made, table, [(column.name, column.type) for column in schema], index)
        for table, schema in made.version.schemas.items()
        if table != INWINDOW
    }
    arguments = {
        argument.name: reader.value(failure, safe_identifier(argument.name), argument.type)
        for argument in made.version.definition.arguments
    }
    accumulator.restore({"tables": tables, "arguments": arguments})
    return accumulator


class _Reader:
    """Reads the local tables and the window of one partition from the state of generated code."""

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
        self, made: AggregateCode, table: str, types: list[tuple[str, Type]], index: int
    ) -> list[tuple[object, ...]]:
        record = self._state.arrays[made.version.record.upper()][index]
        rows = int(record[f"{safe_identifier(table)}_rows"])
        if made.version.bounds[table] < MANY:
            return [
                tuple(
                    self.value(record, f"{safe_identifier(table)}_{safe_identifier(n)}", t) for n, t in types
                )
            ] * rows
        pool, at = self._state.arrays[made.version.array(table)], int(record[f"{safe_identifier(table)}_at"])
        return [tuple(self.value(pool[at + i], safe_identifier(n), t) for n, t in types) for i in range(rows)]

    def window(self, index: int) -> list[tuple[int, tuple[object, ...]]]:
        """Return the positions and arguments of the tuples in a partition's window.

        Arguments that no statement reads are not stored, and are returned as NULL.
        """
        if "window" not in self._state.arrays:
            return []
        record, pool = self._state.arrays[self._module.loop][index], self._state.arrays["window"]
        columns: RecordColumns = self._module.columns["window"]
        count = len(self._module.codes["s"].version.definition.arguments)
        rows = []
        for i in range(int(record["window_rows"])):
            row = pool[self._index(record, i)]
            values = (
                self.value(row, f"a{j}", columns.types[f"a{j}"]) if f"a{j}" in columns.types else None
                for j in range(count)
            )
            rows.append((int(row["pos"]) if "pos" in row.dtype.names else i, tuple(values)))
        return rows

    def _index(self, record: Any, i: int) -> int:
        window = self._module.codes["s"].version.window
        if window is None or not window.ring:
            return int(record["window_at"]) + i
        return int(record["window_begin"] + (record["window_at"] + i) % record["window_room"])
