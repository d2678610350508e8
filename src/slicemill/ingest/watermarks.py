"""Watermark of a stream, from intake progress and the clock (M21-M26).

No later tuple of the stream is below the watermark (the enabling timestamp of the thesis). Data, silence and
the clock advance it:

    external   minimum over the non-silent partitions of (greatest timestamp so far - SLACK). With a SKEW,
               silence advances it too: greatest timestamp + time since the last arrival - SKEW, but not
               beyond a tuple that is still held back.
    internal   the clock, but not beyond the arrival of the oldest row without a timestamp, or beyond the
               start of a pending read, because rows get no earlier timestamp than that. The same applies to
               late and bad rows.
    ended      END

A partition is silent if its last read found nothing. It is known to be silent only up to the start of that
read. Rows that arrive while a batch is processed are in the next batch, so a long batch does not look like
silence. A partition that has not been read yet holds back the whole stream. A source that sends notices (a
socket, a program) is silent until it sends one.

Tuples may be out of order by SLACK, also after silence. So the greater of SLACK and SKEW applies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from slicemill.catalog.catalog import Stream, TimestampKind
from slicemill.time import BEGINNING, END

# Fields of a stream's progress in the journal.
PARTITIONS, WATERMARK, HELD_FROM, ENDED = "partitions", "watermark", "held_from", "ended"
# Last assigned timestamp of internal tuples, and of late and bad rows.
STAMP, SIDE_STAMP = "stamp", "side_stamp"


class PartitionProgress(NamedTuple):
    """Progress of one partition of a source; a list in JSON.

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
    """Return the watermark of a stream at this moment.

    The result may decrease, so the caller uses the maximum of all results so far. `sent_us` is the start of
    the pending read, or the arrival of the oldest row that is not admitted; None if neither exists. `seen_us`
    is for sources that send notices: all rows that had arrived by then have been read.
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
    """Return the greatest timestamp that has arrived, or None."""
    stamps = [progress.get(STAMP), *(part.max_ts for part in partitions_of(progress).values())]
    return max((ts for ts in stamps if ts is not None), default=None)


def side_watermark(progress: Mapping[str, Any], now_us: int, sent_us: int | None = None) -> int:
    """Return the watermark of late and bad rows."""
    return END if progress.get(ENDED) else _by_clock(progress.get(SIDE_STAMP, BEGINNING), now_us, sent_us)


def _by_clock(last_stamp: int, now_us: int, sent_us: int | None) -> int:
    return max(last_stamp, now_us if sent_us is None else min(now_us, sent_us))


def watermark_by_data(stream: Stream, partitions: Iterable[PartitionProgress]) -> int | None:
    """Return the watermark by data.

    Return None while a partition has not been read.
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
    """Return the watermark by silence (M25), or None without SKEW."""
    known = list(partitions)
    waits = _waits(stream, known)
    seen = _complete_read_until(known, seen_us)
    if not waits or seen is None:
        return None
    # Time before a tuple's arrival does not count as silence.
    found = [max_ts + max(0, seen - arrival) - allowed for max_ts, arrival, allowed in waits]
    return max(found) if _all_silent(known) else min(found)


def time_of_watermark(stream: Stream, progress: Mapping[str, Any], ts: int) -> int | None:
    """Return when silence will advance the watermark to `ts`, or None."""
    if stream.kind is not TimestampKind.EXTERNAL:
        return ts
    known = list(partitions_of(progress).values())
    moments = [ts - max_ts + arrival + allowed for max_ts, arrival, allowed in _waits(stream, known)]
    if not moments or _complete_read_until(known, None) is None:
        return None
    return min(moments) if _all_silent(known) else max(moments)


def _waits(stream: Stream, partitions: list[PartitionProgress]) -> list[tuple[int, int, int]]:
    """Return timestamp, arrival time and allowed silence of the relevant partitions."""
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
    """Return the time up to which all partitions were read, or None.

    A later `seen_us` is used instead.
    """
    asked = [part.seen_us for part in partitions if part.seen_us is not None]
    if not asked or len(asked) < len(partitions):
        return None
    return min(asked) if seen_us is None else max(min(asked), seen_us)
