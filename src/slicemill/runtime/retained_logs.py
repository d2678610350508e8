"""RETAIN: logs that keep rows after all queries have read them.

A stream without RETAIN stores the rows and columns that queries read. A stream with RETAIN stores all,
from its declaration on. The journal records that point as a field of the stream:

    whole  [epoch, newest]    all rows after this epoch are stored with all columns; `newest` is the
                              greatest timestamp that had arrived by then, null if none
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from slicemill.catalog.catalog import ERRORS, LATE, Catalog, DerivedStream, Stream
from slicemill.ingest.watermarks import newest_tuple
from slicemill.storage.home import Home
from slicemill.time import END

WHOLE = "whole"


def streams_with_retention(catalog: Catalog) -> list[Stream]:
    """Return the declared streams that store all rows and columns."""
    streams = [relation for relation in catalog.relations.values() if isinstance(relation, Stream)]
    return [stream for stream in streams if stream.retain_us is not None]


def log_retention_us(catalog: Catalog, results_us: int) -> dict[str, int]:
    """Return by log how long consumed rows are kept.

    `results_us` applies to results, late rows and bad rows without a RETAIN.
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
            # A query that starts in the past needs all changes to build the table.
            kept[relation.name] = END if relation.schema.changelog else relation.retain_us
    return kept


def changed_retention(streams: Iterable[Stream], home: Home) -> dict[str, dict[str, Any]]:
    """Return the changed fields of streams that start or stop retaining."""
    changed: dict[str, dict[str, Any]] = {}
    for stream in streams:
        known = home.streams.get(stream.name, {})
        if stream.retain_us is not None and WHOLE not in known:
            changed[stream.name] = {WHOLE: [home.logs[stream.name].head, newest_tuple(known)]}
        elif stream.retain_us is None and WHOLE in known:
            changed[stream.name] = {WHOLE: None}
    return changed
