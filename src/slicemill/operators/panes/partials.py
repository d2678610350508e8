"""Partial aggregates: the columns that entries store per argument.

`lift` computes the columns for single rows, and `reduce` combines rows or entries by group. An index over
the entries of a view then answers any span of entries, for example by prefix sums.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, TypeAlias

import numpy as np
import pyarrow as pa

from slicemill.esl.render.expressions import render
from slicemill.esl.types.expression import Expr
from slicemill.machine_code.kernel import kernel
from slicemill.operators.panes.edges import Ints
from slicemill.operators.panes.groups import least_of_group, sum_by_group
from slicemill.operators.panes.spans import Places, Spans
from slicemill.scalar.vectors import arrow_type, validity

Columns: TypeAlias = Mapping[str, Any]  # NumPy arrays, or Arrow arrays for types without a NumPy counterpart


class Partial(Protocol):
    """A partial aggregate of one argument.

    `name` is the same in every plan with the same partial. Stored columns are found by this name.
    """

    name: str
    expr: Expr

    def lift(self, column: pa.Array, places: Ints) -> Columns:
        """Return the columns of single rows.

        `places` are the rows' positions in the log.
        """

    def reduce(self, columns: Columns, group: Ints, groups: int) -> Columns: ...

    def missing(self, count: int) -> Columns:
        """Return neutral columns for entries older than this partial."""

    def joined(self, parts: Sequence[Columns]) -> Columns: ...

    def index(self, columns: Columns, begin: Ints) -> Any: ...


def concatenated(arrays: Sequence[Any]) -> Any:
    if isinstance(arrays[0], pa.Array):
        return pa.concat_arrays(arrays)
    return np.concatenate(arrays)


def taken(array: Any, places: Ints) -> Any:
    return array.take(pa.array(places)) if isinstance(array, pa.Array) else array[places]


class Named:
    def __init__(self, what: str, expr: Expr) -> None:
        self.expr = expr
        self.type = expr.type
        self.name = f"{what} of {render(expr)} as {expr.type}"

    def joined(self, parts: Sequence[Columns]) -> Columns:
        return {field: concatenated([part[field] for part in parts]) for field in parts[0]}


class Known(Named):
    """Number of values that are not NULL."""

    def __init__(self, expr: Expr) -> None:
        super().__init__("known", expr)

    def lift(self, column: pa.Array, places: Ints) -> Columns:  # noqa: ARG002
        valid = validity(column)
        return {"n": np.ones(len(column), np.int8) if valid is None else valid.view(np.int8)}

    def reduce(self, columns: Columns, group: Ints, groups: int) -> Columns:
        return {"n": sum_by_group(columns["n"], group, groups)}

    def missing(self, count: int) -> Columns:
        return {"n": np.zeros(count, np.int64)}

    def index(self, columns: Columns, begin: Ints) -> Counts:  # noqa: ARG002
        return Counts(columns["n"])


class Counts:
    """Prefix sums of counts."""

    def __init__(self, counts: Ints) -> None:
        self._before = np.concatenate(([0], np.cumsum(counts)))

    def over(self, spans: Spans) -> Ints:
        return difference(self._before, spans.lo, spans.hi)


@kernel
def difference(before: Ints, lo: Places, hi: Places) -> Ints:
    out = np.empty(len(lo), np.int64)
    for i in range(len(lo)):
        out[i] = before[hi[i]] - before[lo[i]]
    return out


class Edge(Named):
    """First or last value of an entry, which may be NULL."""

    def __init__(self, expr: Expr, last: bool) -> None:
        super().__init__("last" if last else "first", expr)
        self.last = last

    def lift(self, column: pa.Array, places: Ints) -> Columns:
        return {"value": column, "place": -places if self.last else places}

    def reduce(self, columns: Columns, group: Ints, groups: int) -> Columns:
        chosen = least_of_group(columns["place"], group, groups)
        return {"value": taken(columns["value"], chosen), "place": columns["place"][chosen]}

    def missing(self, count: int) -> Columns:
        return {"value": pa.nulls(count, arrow_type(self.type)), "place": np.zeros(count, np.int64)}

    def index(self, columns: Columns, begin: Ints) -> Edges:  # noqa: ARG002
        return Edges(columns["value"], self.last)


class Edges:
    def __init__(self, values: pa.Array, last: bool) -> None:
        self._values = values
        self._last = last

    def over(self, spans: Spans) -> pa.Array:
        chosen = (spans.hi - 1 if self._last else spans.lo).astype(np.int64)
        empty = spans.hi == spans.lo
        return self._values.take(pa.array(chosen, mask=empty) if empty.any() else pa.array(chosen))


class Values(Named):
    """All values, for aggregates that need each of them.

    Entries hold single tuples and are not reduced.
    """

    def __init__(self, expr: Expr) -> None:
        super().__init__("values", expr)

    def lift(self, column: pa.Array, places: Ints) -> Columns:  # noqa: ARG002
        return {"value": column}

    def reduce(self, columns: Columns, group: Ints, groups: int) -> Columns:  # noqa: ARG002
        raise AssertionError("single tuples stay single")

    def missing(self, count: int) -> Columns:
        return {"value": pa.nulls(count, arrow_type(self.type))}

    def index(self, columns: Columns, begin: Ints) -> pa.Array:  # noqa: ARG002
        return columns["value"]
