"""Ad hoc queries on tables, and views over tables (M40): what a query over finite relations gives, now."""

from __future__ import annotations

from slicemill.aggregate.interpreter.lookup import aggregate_lookup
from slicemill.aggregate.interpreter.relations import QueryEnvironment, Source, compile_query
from slicemill.esl.types.catalog import Catalog
from slicemill.esl.types.relation import RelationQuery
from slicemill.rows import Row


def evaluate_relation(query: RelationQuery, catalog: Catalog, tables: Source) -> list[Row]:
    """The rows of a query; `tables` gives the rows of a table by its declared name.

    >>> from slicemill.esl import bind
    >>> catalog = bind("CREATE TABLE t(a int, b int); SELECT a, sum(b) FROM t GROUP BY a ORDER BY a").catalog
    >>> evaluate_relation(catalog.queries["query_1"].query, catalog, lambda name: [(2, 1), (1, 4), (2, 2)])
    [(1, 4), (2, 3)]
    """
    return compile_query(query, aggregate_lookup(catalog, tables))(QueryEnvironment(tables))
