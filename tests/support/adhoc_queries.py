"""Questions answered in this process, over relations that a test makes."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

from slicemill.server.adhoc.ask import QueryableRelation, run_adhoc_query


def ask(
    sql: str, relation_of: Callable[[str], QueryableRelation], parameters: Sequence[object] = ()
) -> pa.Table:
    """Return the whole answer to an ad hoc query."""
    with run_adhoc_query(sql, relation_of, parameters) as answer:
        return pa.concat_tables([answer.first, *(pa.Table.from_batches([batch]) for batch in answer.rest)])
