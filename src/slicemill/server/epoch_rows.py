"""Rows of an epoch for live results, read once for all encodings.

An epoch of a live query often has only one or two rows, and there are many epochs per second. The values are
therefore taken out of their Arrow columns once. Timestamps and intervals stay integers of microseconds, as in
the engine. A caller that needs an Arrow table gets it from `table`.
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
    """Names and types of the columns of a query's results, with the timestamp first."""

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
    """Rows of an epoch. `columns` has a list of values for each column of the layout."""

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
        """The rows as an Arrow table in the form that clients receive."""
        return as_results(self._stored)


def _values(column: pa.ChunkedArray, type_: Type) -> Sequence[object]:
    viewed = _VIEWED.get(type_.kind)
    if viewed is not None and column.num_chunks == 1:  # casting takes ten times as long
        chunk = column.chunk(0)
        found: list[object] = (chunk if chunk.type == viewed else chunk.view(viewed)).to_pylist()
        return found
    return column_values(column, type_)
