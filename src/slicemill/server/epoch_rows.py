"""The rows of an epoch for live results: read once, for all forms in which somebody wants them.

An epoch of a live query has a row or two, and many of them come each second. So values are taken out of their
columns once, as the engine has them: times and intervals as microseconds. Who needs a table gets one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from slicemill.columns.rows import column_values
from slicemill.esl.types.schema import TIMESTAMP, Kind, Type
from slicemill.storage.arrow_schema import TS, as_results, from_arrow
from slicemill.storage.epochs import Epoch
from slicemill.storage.log import Log

_VIEWED = {Kind.TIMESTAMP: pa.int64(), Kind.INTERVAL: pa.int64(), Kind.DATE: pa.int32()}


@dataclass(frozen=True, slots=True)
class RowLayout:
    """The columns of a query's results, with the time in front."""

    names: tuple[str, ...]
    types: tuple[Type, ...]

    @staticmethod
    def of(columns: pa.Schema) -> RowLayout:
        schema = from_arrow(columns)
        return RowLayout((TS, *schema.names), (TIMESTAMP, *(column.type for column in schema)))

    @property
    def kinds(self) -> tuple[Kind, ...]:
        return tuple(type_.kind for type_ in self.types)


@dataclass(frozen=True)
class EpochRows:
    """`columns` has a list of values for each column of the layout."""

    layout: RowLayout
    columns: Sequence[Sequence[object]]
    _stored: pa.Table

    @staticmethod
    def read(log: Log, epoch: Epoch, layout: RowLayout) -> EpochRows:
        stored = log.read(epoch)
        columns = [
            _values(stored.column(name), type_)
            for name, type_ in zip(layout.names, layout.types, strict=True)
        ]
        return EpochRows(layout, columns, stored)

    @cached_property
    def table(self) -> pa.Table:
        """The rows as everybody outside gets them."""
        return as_results(self._stored)


def _values(column: pa.ChunkedArray, type_: Type) -> Sequence[object]:
    viewed = _VIEWED.get(type_.kind)
    if viewed is not None and column.num_chunks == 1:  # casting takes ten times as long
        chunk = column.chunk(0)
        found: list[object] = (chunk if chunk.type == viewed else chunk.view(viewed)).to_pylist()
        return found
    return column_values(column, type_)
