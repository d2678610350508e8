"""A catalogue that has every operator: streams, tables and relations, and queries of every kind."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

DECLARED = """
CREATE STREAM s (k int, v bigint, ts timestamp) ORDER BY ts;
CREATE STREAM r (k int, w bigint, ts timestamp) ORDER BY ts SKEW 1 SECOND;
CREATE STREAM i (k int, v bigint, at timestamp) ORDER BY current_time;
CREATE TABLE t (k int, name varchar);
CREATE TABLE examples (v bigint, busy boolean);
CREATE VIEW named AS SELECT k, name FROM t WHERE k < 2;
CREATE AGGREGATE seen(x bigint) : bigint
{ TABLE st(n bigint);
  INITIALIZE : { INSERT INTO st VALUES (x); INSERT INTO RETURN VALUES (x); }
  ITERATE : { UPDATE st SET n = n + x; INSERT INTO RETURN SELECT n FROM st; } };
CREATE WINDOW AGGREGATE seen(x bigint) : bigint
{ TABLE st(n bigint); TABLE inwindow(x bigint);
  INITIALIZE : { INSERT INTO st VALUES (x); INSERT INTO RETURN VALUES (x); }
  ITERATE : { UPDATE st SET n = n + x; INSERT INTO RETURN SELECT n FROM st; }
  EXPIRE : { UPDATE st SET n = n - oldest().x; INSERT INTO RETURN SELECT n FROM st; } };
CREATE AGGREGATE lowest(x bigint) : bigint
{ TABLE st(n bigint);
  INITIALIZE : { INSERT INTO st VALUES (x); }
  ITERATE : { UPDATE st SET n = x WHERE x < n; }
  TERMINATE : { INSERT INTO RETURN SELECT n FROM st; } };
CREATE FUNCTION names_of(w int) RETURNS TABLE (name varchar) AS SELECT name FROM t WHERE k = w;
CREATE MODEL centre(x REAL) AS mean(x);
CREATE MODEL spread(x REAL) AS sum(x^2)/n - (sum(x)/n)^2;
-- Streams are read from the beginning, whoever comes later.
CREATE QUERY no_s AS SELECT k FROM s WHERE v < 0;
CREATE QUERY no_r AS SELECT k FROM r WHERE w < 0;
CREATE QUERY no_i AS SELECT k FROM i WHERE v < 0;
"""

TABLES: Mapping[str, Sequence[tuple[object, ...]]] = {
    "t": [(0, "zero"), (1, "one"), (1, "uno"), (2, "two")],
    "examples": [(0, False), (1, False), (2, False), (3, True), (4, True), (5, True)],
}

# What table t may hold later.
CHANGED: Sequence[Sequence[tuple[object, ...]]] = ([(0, "null"), (2, "deux"), (2, "dos")], [])

# What queries are made of and what comes and goes with them, by name.
RELATIONS = {
    "big": "CREATE STREAM big AS SELECT k, v, ts FROM s WHERE v > 1",
    "totals": "CREATE STREAM totals AS SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s",
    "stepped": """CREATE STREAM stepped AS SELECT k, v, ts - INTERVAL 1 SECOND * (v DIV 2) AS at FROM s
    ORDER BY at SLACK 3 SECONDS""",
    "recent": "CREATE VIEW recent AS SELECT k, w FROM r [RANGE 4 SECONDS]",
    "newest": "CREATE VIEW newest AS SELECT k, m FROM totals [ROWS 2]",
    "decided": """CREATE CLASSIFIER decided ON s(v) LEARN busy FROM examples
    EVERY 3 SECONDS WITH (capacity = 1, bins = 3)""",
}
NEEDED_BY = {"newest": ("totals",)}


@dataclass(frozen=True)
class Kind:
    """A query of the catalogue; `uses` are the relations that come and go with it."""

    select: str
    options: str = ""
    uses: tuple[str, ...] = ()
    finds_stored: bool = False  # it gets what is stored for others: a join where it serves (S23), a view
    ad_hoc: bool = False

    @property
    def reads_table(self) -> bool:
        words = f"{self.select} ".replace(",", " ").replace("(", " ").split()
        return not {"t", "named", "names_of"}.isdisjoint(words)

    @property
    def relations(self) -> tuple[str, ...]:
        """All that it is made of, what others need first."""
        return tuple(dict.fromkeys(n for name in self.uses for n in (*NEEDED_BY.get(name, ()), name)))

    def create(self, name: str) -> str:
        with_ = f" WITH ({self.options})" if self.options else ""
        return f"CREATE QUERY {name}{with_} AS {self.select}"


_SR = "FROM s [RANGE {} SECONDS] AS A, r [RANGE {} SECONDS] AS B WHERE A.k = B.k"

KINDS = {
    # select, project, union, look-up
    "all": Kind("SELECT k, v FROM s"),
    "some": Kind("SELECT k, v FROM s WHERE v > 2"),
    "same": Kind("SELECT v + k AS n FROM s WHERE v > 2"),
    "nested": Kind("SELECT x FROM (SELECT k AS x, v AS y FROM s WHERE v > 2) AS q WHERE y < 5"),
    "stamped": Kind("SELECT k, v, at FROM i WHERE v < 5"),
    "merged": Kind("SELECT k, v FROM s WHERE v > 1 UNION ALL SELECT k, w FROM r"),
    "merged_mixed": Kind("SELECT k, v FROM i UNION ALL SELECT k, w FROM r WHERE w > 1"),
    "table": Kind("SELECT s.k, t.name FROM s, t WHERE s.k = t.k"),
    "table_left": Kind("SELECT s.v, n.name FROM s LEFT JOIN named AS n ON s.k = n.k"),
    "called": Kind("SELECT s.k, c.name FROM s, TABLE(names_of(s.k)) AS c WHERE s.v > 1"),
    "over_called": Kind(
        "SELECT count(*) OVER (PARTITION BY s.k ROWS 2 PRECEDING) AS n FROM s, TABLE(names_of(s.k)) AS c"
    ),
    "view": Kind("SELECT s.k, s.v, q.w FROM s, recent AS q WHERE s.k = q.k", uses=("recent",)),
    "view_rows": Kind("SELECT i.k, q.m FROM i, newest AS q WHERE i.k = q.k", uses=("newest",)),
    "from_derived": Kind("SELECT k, v FROM big WHERE v < 5", uses=("big",)),
    "from_totals": Kind("SELECT k, m FROM totals WHERE m > 3", uses=("totals",)),
    "from_stepped": Kind("SELECT k, v, at FROM stepped WHERE v > 1", uses=("stepped",)),
    "table_totals": Kind("SELECT t.name, q.m FROM totals AS q, t WHERE q.k = t.k", uses=("totals",)),
    # windows with OVER, groups, panes, models
    "over_rows": Kind("SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s"),
    "over_range": Kind("SELECT k, max(v) OVER (PARTITION BY k RANGE 3 SECONDS PRECEDING) AS m"
        " FROM s WHERE v > 1"),
    "over_slide": Kind("SELECT sum(v) OVER (ROWS 3 PRECEDING SLIDE 2) AS m FROM s"),
    "over_two": Kind(
        "SELECT median(v) OVER (ROWS 3 PRECEDING) AS m, count(*) OVER (PARTITION BY k"
            " ROWS 2 PRECEDING) AS n FROM s"
    ),
    "over_derived": Kind("SELECT sum(v) OVER (PARTITION BY k ROWS 1 PRECEDING) AS m FROM big", uses=("big",)),
    "over_table": Kind(
        "SELECT count(*) OVER (PARTITION BY t.name ROWS 2 PRECEDING) AS n FROM s, t WHERE s.k = t.k"
    ),
    "uda": Kind("SELECT k, seen(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m FROM s"),
    "uda_range": Kind("SELECT k, lowest(v) OVER (PARTITION BY k RANGE 3 SECONDS PRECEDING) AS m FROM s"),
    "uda_active": Kind("SELECT seen(v) OVER (RANGE 2 SECONDS PRECEDING ACTIVE EXPIRATION) AS m FROM s"),
    "grouped": Kind("SELECT k, seen(v) AS m FROM s GROUP BY k"),
    "grouped_all": Kind("SELECT seen(w) AS m FROM r WHERE w > 1"),
    "panes": Kind("SELECT k, avg(v) AS m FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k"),
    "panes_long": Kind("SELECT k, max(v) AS m, count(*) AS n"
        " FROM s [RANGE 9 SECONDS SLIDE 3 SECONDS] GROUP BY k"),
    "panes_some": Kind("SELECT k, sum(v) AS m"
        " FROM s [RANGE 6 SECONDS SLIDE 2 SECONDS] WHERE v > 2 GROUP BY k"),
    "panes_all": Kind("SELECT count(DISTINCT v) AS m, window_end() AS e"
        " FROM s [RANGE 4 SECONDS SLIDE 4 SECONDS]"),
    "panes_uda": Kind("SELECT k, lowest(v) AS m FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k"),
    "sessions": Kind("SELECT k, sum(v) AS m, window_end() AS e FROM s [SESSION 2 SECONDS] GROUP BY k"),
    "sessions_some": Kind("SELECT k, median(v) AS m FROM s [SESSION 5 SECONDS] WHERE v > 1 GROUP BY k"),
    "sessions_closed": Kind(
        "SELECT k, lowest(v) AS m FROM s [SESSION 4 SECONDS CLOSE WHEN v = 3] GROUP BY k"
    ),
    "sessions_apart": Kind(
        "SELECT k, max(m) AS m FROM (SELECT k, sum(v) OVER (PARTITION BY k ROWS 1"
        " PRECEDING) AS m FROM s) AS q"
        " [SESSION 2 SECONDS] GROUP BY k"
    ),
    "arrival": Kind("SELECT k, count(*) AS m FROM s [RANGE 3 SECONDS] GROUP BY k"),
    "arrival_rows": Kind("SELECT k, sum(v) AS m FROM s [ROWS 4] GROUP BY k HAVING sum(v) > 2"),
    "over_join": Kind(
        f"SELECT A.k, count(*) AS n, sum(B.w) AS m {_SR.format(3, 5)} GROUP BY A.k"
    ),
    "model": Kind("SELECT k, spread(v) OVER (PARTITION BY k ROWS 3 PRECEDING) AS m FROM s"),
    "model_mean": Kind("SELECT k, centre(v) OVER (PARTITION BY k ROWS 3 PRECEDING) AS m FROM s"),
    "model_panes": Kind("SELECT k, spread(v) AS m FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k"),
    # results that change
    "changing": Kind("SELECT k, sum(v) AS m FROM s GROUP BY k HAVING count(*) < 4"),
    "changing_groups": Kind(
        "SELECT n, count(*) AS m FROM (SELECT k, count(*) AS n FROM s GROUP BY k) AS q GROUP BY n"
    ),
    "top": Kind("SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC) <= 2"),
    "latest": Kind("SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts DESC) = 1"),
    "first_two": Kind("SELECT k, v FROM s QUALIFY row_number() OVER (PARTITION BY k ORDER BY ts) <= 2"),
    "distinct": Kind("SELECT DISTINCT k, v FROM s"),
    "told_every": Kind("SELECT k, count(*) AS n FROM s GROUP BY k EMIT EVERY 3 SECONDS"),
    "best_of_windows": Kind(
        "SELECT k, sum(v) AS m FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k ORDER BY m DESC LIMIT 1"
    ),
    # joins
    "join": Kind(f"SELECT A.k, A.v, B.w {_SR.format(3, 5)}", finds_stored=True),
    "join_long": Kind(f"SELECT A.v, B.w {_SR.format(8, 2)}", finds_stored=True),
    "join_some": Kind(f"SELECT A.k, B.w {_SR.format(5, 5)} AND A.v > 2", finds_stored=True),
    "join_theta": Kind(
        "SELECT A.v, B.w"
            " FROM s [RANGE 3 SECONDS] AS A, r [RANGE 4 SECONDS] AS B WHERE A.v < B.w", finds_stored=True
    ),
    "join_near": Kind(
        "SELECT A.v, B.w FROM s [RANGE 5 SECONDS] AS A, r [RANGE 4 SECONDS] AS B WHERE abs(A.v - B.w) < 2",
        "lag = '2 s', shedding = 'age'",
        finds_stored=True,
    ),
    "join_merged": Kind(
        """SELECT A.v, B.w FROM (SELECT k, v FROM s WHERE v > 1 UNION ALL SELECT k, v FROM i) AS A
        [RANGE 3 SECONDS], r [RANGE 4 SECONDS] AS B WHERE A.v <= B.w""",
        finds_stored=True,
    ),
    "join_rows": Kind("SELECT A.v, B.w"
        " FROM s [ROWS 3] AS A, r [ROWS 2] AS B WHERE A.k = B.k", finds_stored=True),
    "join_three": Kind(
        """SELECT A.v, B.w, C.v AS x FROM s [RANGE 3 SECONDS] AS A, r [RANGE 4 SECONDS] AS B,
        s [RANGE 5 SECONDS] AS C WHERE A.k = B.k AND B.k = C.k""",
        finds_stored=True,
    ),
    "join_three_in_another_order": Kind(
        """SELECT B.w, A.v, C.v AS x FROM r [RANGE 2 SECONDS] AS B, s [RANGE 6 SECONDS] AS A,
        s [RANGE 1 SECOND] AS C WHERE A.k = B.k AND B.k = C.k AND A.v > 1 AND A.v <= C.v + B.w""",
        finds_stored=True,
    ),
    "join_streams": Kind(
        """SELECT A.v, B.w, C.v AS x FROM s [RANGE 3 SECONDS] AS A, r [RANGE 4 SECONDS] AS B,
        i [RANGE 5 SECONDS] AS C WHERE A.k = B.k AND B.k = C.k""",
        finds_stored=True,
    ),
    "join_streams_long": Kind(
        """SELECT A.v, B.w, C.v AS x FROM i [RANGE 8 SECONDS] AS C, s [RANGE 9 SECONDS] AS A,
        r [RANGE 2 SECONDS] AS B WHERE A.k = B.k AND B.k = C.k AND A.v > 2""",
        finds_stored=True,
    ),
    "join_tree": Kind(
        """SELECT A.v, B.w, C.v AS x FROM s [RANGE 3 SECONDS] AS A, r [RANGE 4 SECONDS] AS B,
        i [RANGE 5 SECONDS] AS C WHERE A.k = B.k AND A.v = B.w AND C.v > A.v""",
        finds_stored=True,
    ),
    "join_three_rows": Kind(
        """SELECT A.v, B.w, C.v AS x FROM s [ROWS 2] AS A, r [RANGE 4 SECONDS] AS B,
        i [RANGE 5 SECONDS] AS C WHERE A.k = B.k AND B.k = C.k""",
        finds_stored=True,
    ),
    "join_derived": Kind(
        "SELECT A.k, A.m, B.w FROM totals [RANGE 3 SECONDS] AS A, r [RANGE 5 SECONDS] AS B WHERE A.k = B.k",
        uses=("totals",),
        finds_stored=True,
    ),
    "join_left": Kind(
        "SELECT A.k, A.v, B.w FROM s [RANGE 3 SECONDS] AS A LEFT JOIN r [RANGE 5 SECONDS] AS B"
            " ON A.k = B.k AND A.v > 1 WHERE A.v < 5"
    ),
    "join_full": Kind(
        "SELECT k, A.v, B.w FROM s [RANGE 2 SECONDS] AS A FULL JOIN r [RANGE 4 SECONDS] AS B USING (k)"
    ),
    "join_full_theta": Kind(
        "SELECT A.v, B.w FROM s [RANGE 2 SECONDS] AS A FULL JOIN r [RANGE 3 SECONDS] AS B ON A.v < B.w"
    ),
    "join_semi": Kind("SELECT A.k, A.v FROM s [RANGE 4 SECONDS] AS A SEMI JOIN r [NOW] AS B ON A.k = B.k"),
    "join_anti": Kind("SELECT v FROM s [RANGE 3 SECONDS] AS A"
        " WHERE NOT EXISTS (SELECT 1 FROM r [RANGE 2 SECONDS] AS B WHERE B.k = A.k AND w > 2)"),
    "join_interval": Kind(
        "SELECT A.v, B.w FROM s AS A, r AS B"
            " WHERE A.k = B.k AND A.ts BETWEEN B.ts AND B.ts + INTERVAL 3 SECONDS",
        finds_stored=True,
    ),
    "join_as_of": Kind("SELECT A.v, B.w FROM s AS A ASOF LEFT JOIN r AS B ON A.k = B.k AND B.ts <= A.ts"),
    "versions": Kind("SELECT A.v, B.w FROM s AS A JOIN r FOR SYSTEM_TIME AS OF A.ts AS B"
        " ON A.k = B.k AND B.w > 1"),
    "join_changes": Kind(
        """SELECT A.k, A.n, B.m FROM (SELECT k, count(*) AS n FROM s GROUP BY k) AS A
        JOIN (SELECT k, max(w) AS m FROM r GROUP BY k) AS B ON A.k = B.k"""
    ),
    "join_closed": Kind(
        "SELECT A.k, A.v, B.w FROM s [CLOSE WHEN v = 3] AS A LEFT JOIN r AS B ON A.k = B.k AND B.w > 1"
    ),
    "elements": Kind("SELECT k, e FROM s CROSS JOIN UNNEST(array(v, v + 1)) AS t(e)"),
    "early_windows": Kind(
        "SELECT k, sum(v) AS m FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k EMIT EARLY EVERY 1 SECOND"
    ),
    "early_sessions": Kind(
        "SELECT k, sum(v) AS m FROM s [SESSION 2 SECONDS] GROUP BY k EMIT EARLY EVERY 1 SECOND"
    ),
    # values that hold for some time, decisions
    "runs": Kind("SELECT S.v, VALID(S) AS p FROM s(v) AS S RANGE 6 SECONDS SLIDES 2 SECONDS PARTITION BY k"),
    "runs_short": Kind(
        "SELECT S.v, VALID(S) AS p FROM s(v) AS S RANGE 4 SECONDS SLIDES 2 SECONDS PARTITION BY k WHERE v > 1"
    ),
    "runs_late": Kind(
        "SELECT S.v, VALID(S) AS p FROM s(v) AS S RANGE 6 SECONDS SLIDES 2 SECONDS LATE 2 SECONDS"
        " PARTITION BY k"
    ),
    "runs_few": Kind(
        "SELECT S.v, VALID(S) AS p FROM s(v) AS S RANGE 6 SECONDS SLIDES 2 SECONDS PARTITION BY k",
        "memory = '3 tuples'",
    ),
    "classes": Kind("SELECT time, class, risk FROM decided", uses=("decided",)),
    # asked at the end
    "asked": Kind("SELECT k, w FROM recent", uses=("recent",), finds_stored=True, ad_hoc=True),
    "asked_rows": Kind("SELECT k, m FROM newest", uses=("newest",), finds_stored=True, ad_hoc=True),
    "asked_table": Kind("SELECT k, name FROM t WHERE k > 0", ad_hoc=True),
    # what may be shed under load: there is none here
    "lagging": Kind("SELECT k, v FROM s WHERE v > 2", "lag = '2 s'"),
    "lagging_over": Kind("SELECT k, sum(v) OVER (PARTITION BY k ROWS 2 PRECEDING) AS m"
        " FROM s", "lag = '2 s'"),
    "whole_windows": Kind(
        "SELECT k, sum(v) AS m FROM s [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY k",
        "lag = '2 s', shedding = 'windows', keep = 0.2",
    ),
    "young_triples": Kind(
        """SELECT A.v, B.w, C.v AS x FROM s [RANGE 4 SECONDS] AS A, r [RANGE 3 SECONDS] AS B,
        i [RANGE 4 SECONDS] AS C WHERE A.k = B.k AND B.k = C.k""",
        "lag = '2 s', shedding = 'age'",
        finds_stored=True,
    ),
    "young_pairs": Kind(
        f"SELECT A.k, A.v, B.w {_SR.format(4, 4)}", "lag = '2 s', shedding = 'age'", finds_stored=True
    ),
}  # fmt: skip
