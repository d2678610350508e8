"""RETAIN: which logs keep rows that every query has read, for how long, and from when on they are whole.

A stream without RETAIN stores the rows and columns that queries read. One with RETAIN stores all, from the
moment that it is declared so; that moment stands in the journal, as a field of the stream:

    whole  [epoch, newest]    all that came after this epoch is stored whole; `newest` is the greatest
                              timestamp that had come by then, null if nothing had
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slicemill.esl.types.catalog import ERRORS, LATE, Catalog, DerivedStream, Stream
from slicemill.ingest.watermarks import newest_tuple
from slicemill.storage.home import Home
from slicemill.time import END

WHOLE = "whole"


def retained_streams(catalog: Catalog) -> list[Stream]:
    """The declared streams that store all rows and columns, whoever reads them."""
    streams = [relation for relation in catalog.relations.values() if isinstance(relation, Stream)]
    return [stream for stream in streams if stream.retain_us is not None]


def kept_us(catalog: Catalog, results_us: int) -> dict[str, int]:
    """Return by log how long rows stay after all who read it have them.

    `results_us` is for results, and for late and bad rows, where no RETAIN says it.
    """
    kept: dict[str, int] = {}
    for query in catalog.queries.values():
        kept[query.name] = results_us if query.retain_us is None else query.retain_us
    for relation in catalog.relations.values():
        if isinstance(relation, Stream):
            aside_us = relation.retain_us or results_us
            kept[relation.name] = relation.retain_us or 0
            kept |= {relation.name + LATE: aside_us, relation.name + ERRORS: aside_us}
        elif isinstance(relation, DerivedStream) and relation.retain_us is not None:
            # Who begins in the past needs all changes, to tell what was in it.
            kept[relation.name] = END if relation.schema.changelog else relation.retain_us
    return kept


def wholeness(streams: Iterable[Stream], home: Home) -> dict[str, dict[str, Any]]:
    """The changed fields of streams that begin to be stored whole, or are so no more."""
    changed: dict[str, dict[str, Any]] = {}
    for stream in streams:
        known = home.streams.get(stream.name, {})
        if stream.retain_us is not None and WHOLE not in known:
            changed[stream.name] = {WHOLE: [home.logs[stream.name].head, newest_tuple(known)]}
        elif stream.retain_us is None and WHOLE in known:
            changed[stream.name] = {WHOLE: None}
    return changed
