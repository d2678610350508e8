"""RETAIN: logs that retain rows after all queries have read them.

A stream without RETAIN stores only the rows and columns that queries read. A stream with RETAIN stores all
rows and columns from the declaration of RETAIN on. A field of the stream in the journal records that point:

    whole  [epoch, newest]    rows after this epoch are stored completely; `newest` is the greatest timestamp
                              that had arrived by then, or null
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
    """Return the declared streams with RETAIN."""
    streams = [relation for relation in catalog.relations.values() if isinstance(relation, Stream)]
    return [stream for stream in streams if stream.retain_us is not None]


def log_retention_us(catalog: Catalog, results_us: int) -> dict[str, int]:
    """Map each log to the time for which its rows are retained after all queries have read them.

    `results_us` applies to results, late rows and bad rows without RETAIN.
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
            # A query that starts with retained rows needs all changes of a changelog, to build its table.
            kept[relation.name] = END if relation.schema.changelog else relation.retain_us
    return kept


def changed_retention(streams: Iterable[Stream], home: Home) -> dict[str, dict[str, Any]]:
    """Map each stream whose RETAIN clause was added or removed to its changed journal fields."""
    changed: dict[str, dict[str, Any]] = {}
    for stream in streams:
        known = home.streams.get(stream.name, {})
        if stream.retain_us is not None and WHOLE not in known:
            changed[stream.name] = {WHOLE: [home.logs[stream.name].head, newest_tuple(known)]}
        elif stream.retain_us is None and WHOLE in known:
            changed[stream.name] = {WHOLE: None}
    return changed
