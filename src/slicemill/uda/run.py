"""Calls of a user's aggregates over whole columns, in every box of the dispatch table (M29-M38).

    uda = prepare(call, catalog)                  # a bound call, with or without OVER
    state = uda.start()
    answers = uda.run(state, Tuples([price], seller, ts))

Tuples come in arrival order, in chunks cut anywhere: the answers are those of the reference engine, in its
order, whatever the cuts. All that is kept between chunks is in the state, which can be pickled.

A tuple is named by its arrival number, counted from 0 over all chunks of a call. Its answer may come later
than its chunk: at the end of its time slot, or, under ACTIVE EXPIRATION, once more when it leaves the window.
"""

from __future__ import annotations

from slicemill.esl.catalog import Catalog
from slicemill.esl.query import WindowCall
from slicemill.esl.relation import AggregateCall
from slicemill.execution.relation_query_compile import Source, no_tables
from slicemill.uda.call import END, Answers, How, Results, Tuples, Uda
from slicemill.uda.interpret import Interpreted

__all__ = ["END", "Answers", "How", "Results", "Tuples", "Uda", "prepare"]


def prepare(call: AggregateCall | WindowCall, catalog: Catalog, tables: Source = no_tables) -> Uda:
    """A call of a query, in the fastest form that can take it.

    `tables` gives the stored tables that a body may read.
    """
    return Interpreted(call, catalog, tables)
