"""Watermark of a stream, computed from the progress of reading and the clock (M21-M26).

No later tuple of the stream is below the watermark. An *external* stream has timestamps in its data, and an
*internal* stream gets the arrival time as timestamp. Data, silence of the source and the clock advance the
watermark:

    external   minimum over the non-silent partitions of (greatest timestamp so far - SLACK). With a SKEW,
               silence advances the watermark too: to greatest timestamp + time since the last arrival - SKEW,
               but not beyond a tuple that is still held back.
    internal   the clock, but not beyond the arrival of the oldest row without a timestamp, or beyond the
               start of a pending read, because no row gets an earlier timestamp. The watermark of late and
               bad rows is computed like that of an internal stream.
    ended      END

A partition is silent if its last read returned no rows. The silence is certain only up to the start of this
read. Rows that arrive while a batch is processed are in the next batch, so a long batch does not look like
silence. A partition that has not been read yet holds back the watermark of the whole stream. A source that
notifies its reader of new rows (a socket, a program) is silent until the next notification.

Tuples may be out of order by SLACK, also after silence. So silence is measured with the greater of SLACK and
SKEW.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from slicemill.catalog.catalog import Stream, TimestampKind
from slicemill.time import BEGINNING, END

# Names of a stream's progress fields in the journal.
PARTITIONS, WATERMARK, HELD_FROM, ENDED = "partitions", "watermark", "held_from", "ended"
# Progress fields with the last timestamp assigned to rows of an internal stream, and to late and bad rows.
STAMP, SIDE_STAMP = "stamp", "side_stamp"


class PartitionProgress(NamedTuple):
    """Progress of reading one partition of a source, stored as a JSON list.

    `max_ts` is the greatest timestamp, and `arrival_us` the arrival time of the last tuple. All rows that had
    arrived by `seen_us` have been read. None means unknown.
    """

    max_ts: int | None = None
    arrival_us: int | None = None
    seen_us: int | None = None
    silent: bool = False


def partitions_of(progress: Mapping[str, Any]) -> dict[str, PartitionProgress]:
    return {name: PartitionProgress(*fields) for name, fields in progress.get(PARTITIONS, {}).items()}


def watermark(
    stream: Stream,
    progress: Mapping[str, Any],
    now_us: int,
    sent_us: int | None = None,
    seen_us: int | None = None,
) -> int:
    """Return the watermark of a stream at the time `now_us`.

    The result may decrease, so the caller uses the maximum of all results so far. `sent_us` is the start of
    the pending read, or the arrival of the oldest row that is not admitted; None if neither exists. For
    sources that notify their reader, all rows that had arrived by `seen_us` have been read.
    """
    if progress.get(ENDED):
        return END
    if stream.kind is not TimestampKind.EXTERNAL:
        return _by_clock(progress.get(STAMP, BEGINNING), now_us, sent_us)
    by_data: int = progress.get(WATERMARK, BEGINNING)
    if seen_us is not None:
        seen_us = min(seen_us, now_us, now_us if sent_us is None else sent_us)
    by_silence = watermark_by_silence(stream, partitions_of(progress).values(), seen_us)
    if by_silence is None:
        return by_data
    held_from = progress.get(HELD_FROM)
    return max(by_data, by_silence if held_from is None else min(by_silence, held_from))


def newest_tuple(progress: Mapping[str, Any]) -> int | None:
    """Return the greatest timestamp of all rows that have arrived, or None without rows."""
    stamps = [progress.get(STAMP), *(part.max_ts for part in partitions_of(progress).values())]
    return max((ts for ts in stamps if ts is not None), default=None)


def side_watermark(progress: Mapping[str, Any], now_us: int, sent_us: int | None = None) -> int:
    """Return the watermark of a stream's late rows and bad rows."""
    return END if progress.get(ENDED) else _by_clock(progress.get(SIDE_STAMP, BEGINNING), now_us, sent_us)


def _by_clock(last_stamp: int, now_us: int, sent_us: int | None) -> int:
    return max(last_stamp, now_us if sent_us is None else min(now_us, sent_us))


def watermark_by_data(stream: Stream, partitions: Iterable[PartitionProgress]) -> int | None:
    """Return the watermark that results from the timestamps of rows, without the clock.

    It is the least of the greatest timestamps of all non-silent partitions, minus SLACK. Return None while a
    partition has not been read.
    """
    known = list(partitions)
    live = [part.max_ts for part in known if not part.silent]
    if live:
        least = None if None in live else min(ts for ts in live if ts is not None)
    else:
        least = max((part.max_ts for part in known if part.max_ts is not None), default=None)
    return None if least is None else least - stream.slack_us


def watermark_by_silence(
    stream: Stream, partitions: Iterable[PartitionProgress], seen_us: int | None = None
) -> int | None:
    """Return the watermark that results from the time without new rows (M25).

    It is the greatest timestamp, plus the time since the last arrival, minus SKEW. Return None for a stream
    without SKEW.
    """
    known = list(partitions)
    waits = _waits(stream, known)
    seen = _complete_read_until(known, seen_us)
    if not waits or seen is None:
        return None
    # Time before the arrival of the last tuple is not counted as silence.
    found = [max_ts + max(0, seen - arrival) - allowed for max_ts, arrival, allowed in waits]
    return max(found) if _all_silent(known) else min(found)


def time_of_watermark(stream: Stream, progress: Mapping[str, Any], ts: int) -> int | None:
    """Return the time at which silence will advance the watermark to `ts`, or None."""
    if stream.kind is not TimestampKind.EXTERNAL:
        return ts
    known = list(partitions_of(progress).values())
    moments = [ts - max_ts + arrival + allowed for max_ts, arrival, allowed in _waits(stream, known)]
    if not moments or _complete_read_until(known, None) is None:
        return None
    return min(moments) if _all_silent(known) else max(moments)


def _waits(stream: Stream, partitions: list[PartitionProgress]) -> list[tuple[int, int, int]]:
    """Return timestamp and arrival of the last tuple of each partition, with the skew.

    The result omits silent partitions, unless all partitions are silent.
    """
    if stream.skew_us is None:
        return []
    allowed = max(stream.skew_us, stream.slack_us)
    every = _all_silent(partitions)
    counted = [part for part in partitions if every or not part.silent]
    found = [
        (part.max_ts, part.arrival_us, allowed)
        for part in counted
        if part.max_ts is not None and part.arrival_us is not None
    ]
    return found if every or len(found) == len(counted) else []


def _all_silent(partitions: list[PartitionProgress]) -> bool:
    return all(part.silent for part in partitions)


def _complete_read_until(partitions: list[PartitionProgress], seen_us: int | None) -> int | None:
    """Return the time up to which all partitions have been read, or None.

    If `seen_us` is later, return `seen_us`.
    """
    asked = [part.seen_us for part in partitions if part.seen_us is not None]
    if not asked or len(asked) < len(partitions):
        return None
    return min(asked) if seen_us is None else max(min(asked), seen_us)
