"""Julian dates in Parquet files of old writers (Spark before 3.0, Hive).

Such files count days up to 4 October 1582 by the Julian calendar. Other systems, and Spark 3, use the
Gregorian calendar for all days. The written date is kept, like in Spark, so its day number changes. Instants
before 1900 also depend on the writer's time zone; only those of UTC are supported.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TypeAlias

import numpy as np
import pyarrow as pa

from slicemill.ingest.formats.unreadable import UnreadableFile
from slicemill.scalar.calendar import DAY_US, days_of

Rebase: TypeAlias = Callable[[pa.Array], pa.Array]

_MARKS = (b"org.apache.spark.legacyDateTime", b"org.apache.spark.legacyINT96")
_WRITTEN_BY = b"org.apache.spark.version"
_ZONE = b"org.apache.spark.timeZone"
_UTC = (b"UTC", b"Etc/UTC", b"Z", b"GMT")
_GREGORIAN_FROM = -141_427  # 1582-10-15
_ZONES_FROM_US = -2_208_988_800_000_000  # 1900-01-01: time zones have had plain offsets since
_JULIAN_EPOCH = 2_440_588  # the Julian day number of 1970-01-01


def rebase_of(metadata: Mapping[bytes, bytes], path: Path) -> Rebase | None:
    """Return the conversion of a file's days to Gregorian, None if unnecessary."""
    old = metadata.get(_WRITTEN_BY, b"3") < b"3"
    if not old and not any(mark in metadata for mark in _MARKS):
        return None
    utc = metadata.get(_ZONE) in _UTC

    def rebase(column: pa.Array) -> pa.Array:
        if pa.types.is_date32(column.type):
            return _rebased(column, pa.int32(), 1)
        if pa.types.is_timestamp(column.type):
            micros = column.cast(pa.timestamp("us", tz=column.type.tz))
            values = micros.cast(pa.int64()).drop_null().to_numpy()
            if not utc and len(values) and values.min() < _ZONES_FROM_US:
                raise UnreadableFile(
                    path,
                    "it has instants before 1900 by the clock of an unknown time zone; write it again with "
                    "Spark 3 or later",
                )
            return _rebased(micros, pa.int64(), DAY_US)
        return column

    return rebase


def _rebased(column: pa.Array, whole: pa.DataType, per_day: int) -> pa.Array:
    values = column.cast(whole).fill_null(0).to_numpy(zero_copy_only=False)
    old = values < _GREGORIAN_FROM * per_day
    if not old.any():
        return column
    days, rest = np.divmod(values[old].astype(np.int64), per_day)
    changed = values.copy()
    changed[old] = np.array([_gregorian(int(day)) for day in days]) * per_day + rest
    return pa.array(changed, whole, mask=column.is_null().to_numpy(zero_copy_only=False)).cast(column.type)


def _gregorian(day: int) -> int:
    """Return the day with the same Gregorian date as a Julian day.

    >>> _gregorian(-141_428) == days_of(1582, 10, 4)
    True
    """
    # Richards' algorithm for the Julian calendar.
    f = day + _JULIAN_EPOCH + 1401
    e = 4 * f + 3
    h = 5 * (e % 1461 // 4) + 2
    day_of_month = h % 153 // 5 + 1
    month = (h // 153 + 2) % 12 + 1
    year = e // 1461 - 4716 + (14 - month) // 12
    return days_of(year, month, day_of_month)
