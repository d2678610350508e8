"""Notices: rows that an ad hoc query could not see, and where a new query starts to read."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from slicemill.engine.changing.backfill import starts_in_words
from slicemill.engine.mill import Mill
from slicemill.esl.types.catalog import DerivedStream, QueryDefinition, Stream
from slicemill.ingest.intake import NEXT_ARRIVAL
from slicemill.plan.content import quoted


def seen_by(mill: Mill, names: Iterable[str]) -> str:
    """Return which rows an ad hoc query missed because they are no longer retained; empty if none."""
    return "; ".join(notice for name in names for notice in _of(mill, name))


def start_of(mill: Mill, statement: object) -> str:
    """Return where a new query starts to read, and when its first complete window begins.

    Empty for other statements.
    """
    if isinstance(statement, Stream):
        where = "with its first row" if statement.starts_early else "with what arrives from then on"
        return f"; queries start {where}"
    if isinstance(statement, (QueryDefinition, DerivedStream)):
        words = starts_in_words(mill.dispatcher.running, mill.graph, statement.name)
        return f"; {words}" if words else ""
    return ""


def _of(mill: Mill, name: str) -> Iterator[str]:
    known = mill.catalog.queries.get(name.lower()) or mill.catalog.relation(name)
    if not isinstance(known, (Stream, DerivedStream, QueryDefinition)) or known.schema.changelog:
        return
    log = mill.home.logs.get(known.name)
    if isinstance(known, Stream):
        owner = mill.catalog.declared_stream(known.name)
        keep = f"declare {quoted(owner.name)} with RETAIN, as in RETAIN 7 DAYS, to keep more"
        if log is None:
            yield f"no query reads {known.name}, so none of its rows are stored; create one, or {keep}"
            return
        read = int(mill.home.streams.get(owner.name, {}).get(NEXT_ARRIVAL, 0))
        if known.name == owner.name and log.rows < read:
            yield (
                f"{known.name} stores {log.rows:,} of the {read:,} rows that were read, those that queries "
                f"have yet to read; {keep}"
            )
        elif known.name != owner.name and log.freed >= 0:
            yield f"older rows of {known.name} are no longer stored; {keep}"
    elif log is not None and log.freed >= 0:
        kind = "query" if isinstance(known, QueryDefinition) else "stream"
        yield (
            f"older rows of {known.name} are no longer stored; "
            f"declare the {kind} with RETAIN, as in RETAIN 7 DAYS, to keep more"
        )
