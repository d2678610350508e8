"""Run a call in several forms and compare all results, value by value."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

import numpy as np

from aggregate.compiler.by_reference import ByReference
from slicemill.aggregates.calls import Tuples, Uda
from slicemill.aggregates.udf.compiler.layout import MACHINE, PYTHON
from slicemill.aggregates.udf.compiler.prepare import prepare
from slicemill.binder import bind
from slicemill.catalog.catalog import Catalog
from slicemill.catalog.expressions import ColumnRef
from slicemill.catalog.queries import AggregateCall, FrameUnit, Window, WindowCall
from slicemill.errors import SlicemillError
from slicemill.functions.vectors import from_values, to_values
from slicemill.kernels.kernel import interpret_kernels
from slicemill.time import END
from slicemill.types import Type
from support.stored import stored

Row = tuple[Any, ...]  # ts, partition, arguments


def call_of(
    catalog: Catalog, name: str, types: Sequence[Type], window: Window | None
) -> AggregateCall | WindowCall:
    definition = next(version for version in catalog.aggregates(name) if version is not None)
    arguments = tuple(ColumnRef(f"c{index}", type_) for index, type_ in enumerate(types))
    columns = definition.returns.columns
    if window is None:
        return AggregateCall(name, arguments, False, columns)
    return WindowCall(name, arguments, False, (), window, columns)


def over(unit: str, extent: int | None, slide: int | None = None, active: bool = False) -> Window:
    return Window(FrameUnit(unit), extent, slide, active)


def tuples_of(rows: Sequence[Row], types: Sequence[Type]) -> Tuples:
    return Tuples(
        [from_values([row[2 + index] for row in rows], type_) for index, type_ in enumerate(types)],
        np.array([row[1] for row in rows], np.int32),
        np.array([row[0] for row in rows], np.int64),
    )


def outcome(uda: Uda, types: Sequence[Type], chunks: Sequence[Sequence[Row]], finishes: bool) -> list[Any]:
    """Return all results, chunk by chunk, with the state stored in between; an error ends them."""
    state = uda.start()
    seen: list[Any] = []
    try:
        for number, chunk in enumerate([*chunks, []]):
            last = number == len(chunks)
            state = state if isinstance(uda, ByReference) else stored(state)
            complete = END if last else chunk[-1][0] if chunk and number % 2 else None
            answers = uda.run(state, tuples_of(chunk, types), complete)
            columns = [to_values(column, len(answers.numbers)) for column in answers.columns]
            values = [answers.numbers.tolist(), answers.ts.tolist(), answers.expired.tolist(), *columns]
            seen += [repr(row) for row in zip(*values, strict=True)]
            seen.append((answers.answered, uda.due(state)))
        if finishes:
            results = uda.finish(state)
            columns = [to_values(column, len(results.groups)) for column in results.columns]
            seen += [repr(row) for row in zip(results.groups.tolist(), *columns, strict=True)]
    except SlicemillError as error:
        return [type(error), str(error)]
    return seen


def flat(seen: list[Any]) -> list[Any]:
    """Return only the rows, which do not depend on the borders of chunks."""
    return [row for row in seen if isinstance(row, str | type)]


def compare(
    text: str,
    name: str,
    types: Sequence[Type],
    window: Window | None,
    chunks: Sequence[Sequence[Row]],
    forms: Sequence[str] = (PYTHON,),
    must: bool = True,
) -> None:
    catalog = bind(text).catalog
    call = call_of(catalog, name, types, window)
    expected = outcome(ByReference(call, catalog), types, chunks, window is None)
    by_rows = outcome(prepare(call, catalog, forms=()), types, chunks, window is None)
    assert by_rows == expected
    for form in forms:
        uda = prepare(call, catalog, forms=(form,))
        assert uda.how.form == form or not must, uda.how
        found = outcome(uda, types, chunks, window is None)
        differences = [pair for pair in zip_longest(found, expected) if pair[0] != pair[1]]
        assert not differences, (differences[:3], uda.how.source)
    machine = prepare(call, catalog, forms=(MACHINE,))
    if machine.how.form == MACHINE:  # A machine-code call runs as Python until it is compiled.
        with interpret_kernels():
            found = outcome(machine, types, chunks, window is None)
        differences = [pair for pair in zip_longest(found, expected) if pair[0] != pair[1]]
        assert not differences, (differences[:3], machine.how.source)
    whole = [row for chunk in chunks for row in chunk]
    again = outcome(prepare(call, catalog, forms=(*forms,)), types, [whole], window is None)
    assert flat(again) == flat(expected)


__all__ = ["MACHINE", "PYTHON", "call_of", "compare", "over"]
