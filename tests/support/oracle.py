"""What a query must give, by its definition: batch SQL in DuckDB over the finished input (M28).

ESL's meaning is that of SQL over the tuples that have arrived. This oracle knows nothing of engines, graphs
or windows that move: a join's window is a condition on timestamps, a sliding aggregate a query per slide.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import duckdb

from slicemill.catalog.catalog import Catalog, DerivedStream, Stream
from slicemill.catalog.queries import Continuous, JoinKind, QueryInput, RelationQuery, SelectQuery, UnionQuery
from slicemill.functions.render import render
from slicemill.types import Kind, Type

Row = tuple[object, ...]
Timed = tuple[int, Row]

_SQL_TYPES = {Kind.INT: "INTEGER", Kind.BIGINT: "BIGINT", Kind.DOUBLE: "DOUBLE", Kind.VARCHAR: "VARCHAR"}


class Oracle:
    """Streams and tables as DuckDB tables; a stream's has its timestamps as `_ts`."""

    def __init__(
        self, catalog: Catalog, streams: Mapping[str, Sequence[Timed]], tables: Mapping[str, Sequence[Row]]
    ):
        self.catalog = catalog
        self.database = duckdb.connect()
        for name, tuples in streams.items():
            self._fill(name, [(ts, *row) for ts, row in tuples], timed=True)
        for name, rows in tables.items():
            self._fill(name, rows, timed=False)

    def rows(self, query: str) -> list[Timed]:
        asked = self.catalog.queries[query].query
        assert not isinstance(asked, RelationQuery)
        found = self.database.execute(self._sql(asked)).fetchall()
        return [(row[0], tuple(row[1:])) for row in found]

    def _fill(self, name: str, rows: Sequence[Row], timed: bool) -> None:
        relation = self.catalog.relation(name)
        assert relation is not None
        columns = [f'"{c.name}" {_sql_type(c.type)}' for c in relation.schema]
        columns = ["_ts BIGINT", *columns] if timed else columns
        self.database.execute(f'CREATE TABLE "{name}" ({", ".join(columns)})')
        if rows:
            places = ", ".join("?" for _ in columns)
            self.database.executemany(f'INSERT INTO "{name}" VALUES ({places})', rows)

    def _sql(self, query: Continuous) -> str:
        if isinstance(query, UnionQuery):
            return " UNION ALL ".join(f"({self._sql(branch)})" for branch in query.branches)
        if query.aggregates:
            return self._aggregate(query)
        source = f"({self._joined(query)})"
        return f"SELECT _ts, {_items(query)} FROM {source}"

    def _joined(self, query: SelectQuery) -> str:
        """All combinations of the inputs that meet, each with the timestamp of its latest member."""
        streams = [entry for entry in query.inputs if not entry.finite]
        if any(entry.kind is not JoinKind.INNER for entry in streams):
            where = f" WHERE {render(query.where, 'duckdb')}" if query.where is not None else ""
            looked_up = [entry for entry in query.inputs if entry.finite]
            tables = [f"({self._named_columns(entry)})" for entry in looked_up]
            return f"SELECT * FROM {', '.join([f'({self._outer(streams)})', *tables])}{where}"
        single = len(query.inputs) == 1
        columns, relations, conditions = [], [], []
        for number, entry in enumerate(query.inputs):
            relations.append(f"{self._relation(entry)} AS r{number}")
            for column in entry.schema:
                shown = column.name if single else f"{entry.alias}.{column.name}"
                columns.append(f'r{number}."{column.name}" AS "{shown}"')
        times = [f"r{query.inputs.index(entry)}._ts" for entry in streams]
        latest = f"greatest({', '.join(times)})" if len(times) > 1 else times[0]
        for time, entry in zip(times, streams, strict=True):
            if len(streams) > 1 and entry.window is not None and entry.window.extent is not None:
                conditions.append(f"({latest} - {time} < {entry.window.extent} OR {latest} = {time})")
        members = ", ".join(f"{time} AS _t{number}" for number, time in enumerate(times))
        combined = f"SELECT {latest} AS _ts, {members}, {', '.join(columns)} FROM {', '.join(relations)}"
        combined += f" WHERE {' AND '.join(conditions)}" if conditions else ""
        where = f" WHERE {render(query.where, 'duckdb')}" if query.where is not None else ""
        return f"SELECT * FROM ({combined}){where}"

    def _named_columns(self, entry: QueryInput, *more: str) -> str:
        columns = [f'"{column.name}" AS "{entry.alias}.{column.name}"' for column in entry.schema]
        return f"SELECT {', '.join([*more, *columns])} FROM {self._relation(entry)}"

    def _outer(self, streams: Sequence[QueryInput]) -> str:
        """DuckDB's own join; a row without a partner has the time at which its window has passed."""
        kind, on = streams[1].kind, streams[1].on
        ends = [entry.window.extent for entry in streams if entry.window is not None]
        sides = [
            f"({self._named_columns(entry, f'_ts AS _t{number}')})" for number, entry in enumerate(streams)
        ]
        older = [
            f"(_t{1 - n} >= _t{n} AND _t{1 - n} - _t{n} < {e})" for n, e in enumerate(ends) if e is not None
        ]
        older += [f"(_t{1 - n} >= _t{n})" for n, e in enumerate(ends) if e is None]
        meet = f"({' OR '.join(older)})" + (f" AND {render(on, 'duckdb')}" if on is not None else "")
        if kind in (JoinKind.SEMI, JoinKind.ANTI):
            found = f"FROM {sides[1]} WHERE {meet}"
            if kind is JoinKind.ANTI:
                return f"SELECT _t0 + {ends[0]} AS _ts, * FROM {sides[0]} WHERE NOT EXISTS (SELECT 1 {found})"
            first = f"(SELECT min(greatest(_t0, _t1)) {found})"
            return f"SELECT {first} AS _ts, * FROM {sides[0]} WHERE EXISTS (SELECT 1 {found})"
        alone = "".join(
            f" WHEN _t{1 - n} IS NULL THEN _t{n} + {e}" for n, e in enumerate(ends) if n in kind.outer_inputs
        )
        time = f"CASE{alone} ELSE greatest(_t0, _t1) END"
        return f"SELECT {time} AS _ts, * FROM {sides[0]} {kind.value} JOIN {sides[1]} ON {meet}"

    def _relation(self, entry: QueryInput) -> str:
        if entry.query is not None:
            return self._named(entry.query)
        assert entry.relation is not None
        relation = self.catalog.relation(entry.relation)
        if isinstance(relation, DerivedStream):
            return self._named(relation.query)
        assert entry.finite or isinstance(relation, Stream)
        return f'"{entry.relation}"'

    def _named(self, query: Continuous) -> str:
        names = ", ".join(["_ts", *(f'"{name}"' for name in query.schema.names)])
        return f"(SELECT * FROM ({self._sql(query)}) AS d({names}))"

    def _aggregate(self, query: SelectQuery) -> str:
        """One query per slide over what the windows hold then."""
        streams = [entry for entry in query.inputs if not entry.finite]
        slide = query.slide
        assert slide is not None, "the oracle knows aggregates that slide"
        windows = [entry.window for entry in streams if entry.window is not None]
        longest = max(window.extent for window in windows if window.extent is not None)
        alive = " AND ".join(
            f"j._t{number} >= e.moment - {entry.window.extent}"
            for number, entry in enumerate(streams)
            if entry.window is not None
        )
        groups = [f'{render(item.expr, "duckdb")} AS "{item.name}"' for item in query.group_by]
        calls = [
            f"{call.name}({'DISTINCT ' if call.distinct else ''}"
            f'{", ".join(render(a, "duckdb") for a in call.arguments) or "*"}) AS "{call.columns[0].name}"'
            for call in query.aggregates
        ]
        by = ", ".join(["e.moment", *(render(item.expr, "duckdb") for item in query.group_by)])
        bounds = [f"e.moment - {longest} AS window_start", "e.moment AS window_end"]
        ends = (
            f"SELECT DISTINCT (_ts // {slide} + _n) * {slide} AS moment FROM joined, "
            f"range(1, {longest // slide + 3}) AS r(_n)"
        )
        columns = ", ".join(["e.moment AS _ts", *groups, *calls, *bounds])
        inner = (
            f"SELECT {columns} FROM joined AS j, ({ends}) AS e "
            f"WHERE j._ts < e.moment AND {alive} GROUP BY {by}"
        )
        having = f" WHERE {render(query.having, 'duckdb')}" if query.having is not None else ""
        items = _items(query)
        return f"WITH joined AS ({self._joined(query)}) SELECT _ts, {items} FROM ({inner}){having}"


def _items(query: SelectQuery) -> str:
    return ", ".join(render(item.expr, "duckdb") for item in query.items)


def _sql_type(type_: Type) -> str:
    return _SQL_TYPES[type_.kind]
