"""Models with GROUP BY over windows of FROM: in machine code, from the values that panes keep.

All models of a query are run together, so that equal cores are computed once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from slicemill.aggregate.calls import Tuples
from slicemill.aggregate.columns import Windows
from slicemill.aggregate.compiler.source import NoCompiledForm
from slicemill.aggregate.compiler.together import ModelCalls, model_calls
from slicemill.aggregate.model_calls import asked_by, go_together
from slicemill.esl.types.catalog import Catalog
from slicemill.operators.panes.grids import Call
from slicemill.operators.panes.members import KernelGroups
from slicemill.operators.panes.view import PaneView
from slicemill.scalar.vectors import arrow_type, from_arrow, take, to_arrow

_AT_ONCE = 2**20  # tuples of windows that are read together


@dataclass(frozen=True)
class ModelGroups(KernelGroups):
    """Calls that have no function are those of the models, in their order."""

    models: ModelCalls

    def found(self, view: PaneView, windows: Windows) -> dict[str, pa.Array]:
        columns = [column for column, f in zip(self.returned, self.functions, strict=True) if f is None]
        values = {value.expr: value for call in self.calls for value in call}
        given = [values[argument] for argument in self.models.arguments]
        vectors = [from_arrow(view.index(value.name), value.type) for value in given]
        parts = [[pa.nulls(0, arrow_type(column.type))] for column in columns]
        for places, numbers in _pieces(windows):
            state = self.models.uda.start()
            no_stamps = np.zeros(len(places), np.int64)  # nothing expires here
            self.models.uda.run(state, Tuples([take(v, places) for v in vectors], numbers, no_stamps))
            results = self.models.uda.finish(state)
            for part, vector in zip(parts, results.columns, strict=True):
                part.append(to_arrow(vector, len(results.groups)))
        answers = zip(columns, map(pa.concat_arrays, parts), strict=True)
        return super().found(view, windows) | {column.name: answer for column, answer in answers}


def _pieces(windows: Windows) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int32]]]:
    """The rows of some windows, one window after the other, and for each row the number of its window."""
    lengths = windows.ends - windows.starts
    reached = np.cumsum(lengths)
    first = 0
    while first < len(lengths):
        before = int(reached[first - 1]) if first else 0
        last = max(first + 1, int(np.searchsorted(reached, before + _AT_ONCE, side="right")))
        sizes, starts = lengths[first:last], windows.starts[first:last]
        shift = starts - (np.cumsum(sizes) - sizes)
        yield np.arange(int(sizes.sum())) + np.repeat(shift, sizes), _numbers(sizes)
        first = last


def _numbers(sizes: NDArray[np.int64]) -> NDArray[np.int32]:
    return np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)


def models_together(calls: Sequence[Call], catalog: Catalog) -> ModelCalls | None:
    """The models among these calls as one, if there are any and they have machine code."""
    asked = [found for call in calls if (found := asked_by(call, catalog)) is not None]
    if not asked or not go_together(asked[:-1], asked[-1]):
        return None
    try:
        return model_calls(tuple(asked), None)
    except NoCompiledForm:
        return None
