"""The watermark of a declared stream, from its intake's progress and the clock (M21-M26).

A watermark is the thesis's enabling timestamp: no tuple that comes later is below it. Data, silence
and the clock move it:

    external   the least, over the partitions that are not silent, of (greatest timestamp so far - SLACK).
               With a SKEW, silence moves it too: greatest timestamp + time since the last arrival - SKEW,
               but not beyond a tuple that is still held back.
    internal   the clock, or the arrival of the oldest row that is yet to be stamped, or the moment at which
               the read that is under way was sent: what it brings is stamped no earlier than that. So it is
               with the streams of late and of bad rows.
    ended      END

A partition is silent when its last read found nothing. It is silent only as far as it has been asked: what
arrives while a batch is under way comes with the next one, however long the batch takes, so the time that a
batch takes is no silence of its source. A partition that has not been read yet holds the whole stream.
Who gives notice (a socket, a program) need not be asked: it is silent as long as it says nothing.

SLACK allows tuples to be that much out of order, and silence does not take that back: where SLACK is above
SKEW, it stands in its place.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from slicemill.esl.types.catalog import Stream, TimestampKind
from slicemill.time import BEGINNING, END

# Fields of a stream's progress, as they stand in the journal.
PARTITIONS, WATERMARK, HELD_FROM, ENDED = "partitions", "watermark", "held_from", "ended"
# The last stamps that were given: to tuples of a stream that is not external, and to late and bad rows.
STAMP, SIDE_STAMP = "stamp", "side_stamp"


class PartitionProgress(NamedTuple):
    """What is known of one partition of a source; a list in JSON.

    `max_ts` is its greatest timestamp, `arrival_us` when its last tuple arrived, and all that had arrived by
    `seen_us` has been handed over. None: not yet.
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
    """The stream's watermark; the caller keeps the greatest that it has announced, and hands it to `admit`.

    `sent_us` is the moment at which the read that is under way was sent, or the oldest row arrived that is
    not admitted yet; None without either. `seen_us` is for those who give notice: nothing had arrived by then
    that was not read, though nobody has asked again.
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
    """The greatest timestamp that has come; None if nothing has."""
    stamps = [progress.get(STAMP), *(part.max_ts for part in partitions_of(progress).values())]
    return max((ts for ts in stamps if ts is not None), default=None)


def side_watermark(progress: Mapping[str, Any], now_us: int, sent_us: int | None = None) -> int:
    """The watermark of a stream's late and bad rows: they are stamped on entry."""
    return END if progress.get(ENDED) else _by_clock(progress.get(SIDE_STAMP, BEGINNING), now_us, sent_us)


def _by_clock(last_stamp: int, now_us: int, sent_us: int | None) -> int:
    return max(last_stamp, now_us if sent_us is None else min(now_us, sent_us))


def watermark_by_data(stream: Stream, partitions: Iterable[PartitionProgress]) -> int | None:
    """The watermark by the timestamps that have come; None while a partition has not been read."""
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
    """The watermark by the time since the last tuples (M25); None for a stream that declares no SKEW."""
    known = list(partitions)
    waits = _waits(stream, known)
    seen = _seen(known, seen_us)
    if not waits or seen is None:
        return None
    # Time that passed before a tuple's arrival is no silence after it.
    found = [max_ts + max(0, seen - arrival) - allowed for max_ts, arrival, allowed in waits]
    return max(found) if _all_silent(known) else min(found)


def time_of_watermark(stream: Stream, progress: Mapping[str, Any], ts: int) -> int | None:
    """When the watermark will have reached `ts` if nothing arrives; None where only data moves it."""
    if stream.kind is not TimestampKind.EXTERNAL:
        return ts
    known = list(partitions_of(progress).values())
    moments = [ts - max_ts + arrival + allowed for max_ts, arrival, allowed in _waits(stream, known)]
    if not moments or _seen(known, None) is None:
        return None
    return min(moments) if _all_silent(known) else max(moments)


def _waits(stream: Stream, partitions: list[PartitionProgress]) -> list[tuple[int, int, int]]:
    """Of each partition that counts: its greatest timestamp, when it arrived, and how long silence waits."""
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


def _seen(partitions: list[PartitionProgress], seen_us: int | None) -> int | None:
    """Until when all partitions have been asked; a later `seen_us` is known from elsewhere."""
    asked = [part.seen_us for part in partitions if part.seen_us is not None]
    if not asked or len(asked) < len(partitions):
        return None
    return min(asked) if seen_us is None else max(min(asked), seen_us)
