"""What is run and killed: two streams in many small files, queries of every kind, and what must come out.

One query's results go to files and one's to a database, besides their logs.
"""

from __future__ import annotations

import json
import os
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import psycopg
import pyarrow as pa

from slicemill.binder import bind
from slicemill.columns.rows import timed_rows
from slicemill.storage.filesystem import LOCAL, exists
from slicemill.storage.home import FORMAT
from slicemill.storage.home_reader import HomeReader
from slicemill.types import Timed
from slicemill_oracle.runner import run_script

# As a program registers them: one after the other.
_STATEMENTS = (
    """
    CREATE STREAM bid (item int, grade int, price double, ts timestamp micros) ORDER BY ts
      USING json OPTIONS (path 'bids', maxFilesPerTrigger 1);
    CREATE STREAM ask (item int, price double, ts timestamp micros) ORDER BY ts SLACK 2 SECONDS
      USING json OPTIONS (path 'asks', maxFilesPerTrigger 1);
    CREATE STREAM dear_bid AS SELECT item, price FROM bid WHERE price > 60;
    CREATE AGGREGATE decayed(next double) : double {
      TABLE state(total double, weight double);
      INITIALIZE: { INSERT INTO state VALUES (next, 1.0); INSERT INTO RETURN VALUES (next); }
      ITERATE: {
        UPDATE state SET total = 0.5 * total + next, weight = 0.5 * weight + 1.0;
        INSERT INTO RETURN SELECT total / weight FROM state;
      }
    };
    """,
    "CREATE QUERY every{to files} AS SELECT item, price FROM bid",
    "CREATE QUERY cheap AS SELECT item, price * 2 AS twice FROM bid WHERE price < 40",
    "CREATE QUERY level AS SELECT item, decayed(price) AS level FROM bid GROUP BY item",
    """CREATE QUERY spent AS
       SELECT item, sum(price) OVER (PARTITION BY item ROWS UNBOUNDED PRECEDING) AS total FROM bid""",
    "CREATE QUERY mean AS SELECT item, avg(price) OVER (PARTITION BY item ROWS 3 PRECEDING) AS mean FROM ask",
    """CREATE QUERY busy AS SELECT item, count(*) AS n, sum(price) AS total
       FROM bid [RANGE 10 SECONDS SLIDE 5 SECONDS] GROUP BY item""",
    "CREATE QUERY both AS SELECT 'bid' AS what, item FROM bid UNION ALL SELECT 'ask', item FROM ask",
    """CREATE QUERY match{to database} AS SELECT B.item, B.price AS bid, A.price AS ask
       FROM bid [RANGE 3 SECONDS] AS B, ask [RANGE 3 SECONDS] AS A WHERE B.item = A.item""",
    # These share panes and slices with the two above.
    """CREATE QUERY busiest AS SELECT item, max(price) AS dearest
       FROM bid [RANGE 15 SECONDS SLIDE 3 SECONDS] WHERE price > 30 GROUP BY item""",
    """CREATE QUERY bargain AS SELECT B.item, B.price - A.price AS gain
       FROM bid [RANGE 1 SECOND] AS B, ask [RANGE 6 SECONDS] AS A WHERE B.item = A.item AND A.price < 50""",
    "CREATE QUERY dear AS SELECT item, max(price) OVER (ROWS 2 PRECEDING) AS dearest FROM dear_bid",
    """CREATE QUERY steady AS SELECT S.item, S.grade, VALID(S)
       FROM bid(grade) AS S RANGE 6 SECONDS SLIDES 2 SECONDS PARTITION BY item""",
    "CREATE QUERY bid_too_late AS SELECT item, price FROM bid_late",
    "CREATE QUERY ask_too_late AS SELECT item, price FROM ask_late",
    "CREATE QUERY bad AS SELECT reason FROM bid_errors",
)
# A stream that our readers leave to Spark.
_BY_SPARK = (
    """CREATE STREAM trade (item int, price double, ts timestamp micros) ORDER BY ts
         USING json OPTIONS (path 'trades', maxFilesPerTrigger 1, ignoreMissingFiles 'false')""",
    """CREATE QUERY traded AS
       SELECT item, sum(price) OVER (PARTITION BY item ROWS 3 PRECEDING) AS s FROM trade""",
)
# Rows of these are stamped with the time at which they were put aside.
PUT_ASIDE = ("bid_too_late", "ask_too_late", "bad")
QUERIES = (
    "every",
    "cheap",
    "level",
    "spent",
    "mean",
    "busy",
    "both",
    "match",
    "busiest",
    "bargain",
    "dear",
    "steady",
    *PUT_ASIDE,
    "traded",
)

_MATCHES = "SELECT (extract(epoch FROM _ts) * 1000000)::bigint, item, bid, ask FROM match"

_FOLDERS = ("bids", "asks", "trades")
_RELEASED = "released"
_NAMES = ("item", "grade", "price", "ts")
_ROWS = 8
_FIRST_S = 1_000

Rows = Counter[tuple[object, ...]]


class Feed:
    """The input, of which more and more is released; files are in one order, by their times."""

    def __init__(self, folder: Path, files: int) -> None:
        self.folder = folder
        self._files = files
        self._released = 0
        self._dice = random.Random(1)
        for name in (*_FOLDERS, _RELEASED):
            (folder / name).mkdir(parents=True)

    @property
    def rest(self) -> int:
        return self._files - self._released

    def release(self, files: int) -> None:
        """Let the next files of each stream be put where they are read."""
        for number in range(self._released, self._released + files):
            for name in _FOLDERS:
                path = self.folder / _RELEASED / f"{number:04d}.{name}"
                path.write_text("\n".join(self._lines(name, number)))
                # The oldest file is read first.
                os.utime(path, (_FIRST_S + number, _FIRST_S + number))
        self._released += files

    def truth(self, folder: Path) -> dict[str, Rows]:
        """What the reference engine makes of all that this feed is going to release."""
        twin = Feed(folder, self._files)
        twin.release(twin.rest)
        put_all(folder)
        result = run_script(bind(";".join(statements(None, by_spark=True))).catalog, folder)
        assert all(query.rows for query in result.queries), "a query without rows proves nothing"
        return {query.name: _counted(query.name, query.rows) for query in result.queries}

    def _lines(self, name: str, number: int) -> list[str]:
        """A second and a half of tuples in order, before them one that is far too late, or unreadable."""
        dice = self._dice
        start = (_FIRST_S + 1.5 * number) * 1_000_000
        times = sorted(int(start + dice.random() * 1_500_000) for _ in range(_ROWS))
        if name == "asks" and number:
            # One that its slack puts back into its place.
            times[0] = int(start - dice.random() * 400_000)
        rows = [(dice.randrange(5), dice.randrange(2), round(dice.random() * 100, 2), ts) for ts in times]
        if number % 2 == 1:
            rows.insert(0, (dice.randrange(5), 0, 1.0, int(start - 20_000_000)))
        lines = [json.dumps(dict(zip(_NAMES, row, strict=True))) for row in rows]
        return [*(['{"item": "none", "price": 1}'] if name == "bids" and number % 2 == 0 else []), *lines]


def put_next(folder: Path) -> bool:
    """Put the next released file of each stream where it is read; False if there is none."""
    released = sorted((folder / _RELEASED).iterdir())
    for path in (path for path in released if path.stem == released[0].stem):
        path.replace(folder / path.suffix[1:] / f"{path.stem}.json")
    return bool(released)


def put_all(folder: Path) -> None:
    while put_next(folder):
        pass


def lines(folder: Path) -> dict[str, int]:
    """How many lines there are by now, by stream."""
    files = {name.removesuffix("s"): (folder / name).iterdir() for name in _FOLDERS}
    return {name: sum(len(path.read_text().splitlines()) for path in paths) for name, paths in files.items()}


def statements(database: str | None, by_spark: bool = False) -> list[str]:
    """What is registered; without a database, no query has a sink, and `by_spark` adds a stream."""
    files, rows = ("", "") if database is None else (_sink("arrow:out"), _sink(database))
    texts = (*_STATEMENTS, *(_BY_SPARK if by_spark else ()))
    return [text.replace("{to files}", files).replace("{to database}", rows) for text in texts]


def _sink(uri: str) -> str:
    return f" WITH (sink = '{uri}')"


def passing(name: str) -> str:
    """Return a query that joins a task when all is read, and is dropped again; no other may notice.

    It starts now: from the start of the files it would read them apart from the others first.
    """
    return f"""CREATE QUERY {name} FROM NOW AS
       SELECT item, sum(price) OVER (PARTITION BY item ROWS 9 PRECEDING) AS s FROM ask"""


def found(home: Path) -> dict[str, Rows]:
    """What is in the result logs, as another process sees it; nothing where there is no log yet."""
    logs = HomeReader(home).logs if exists(LOCAL, home / FORMAT) else {}
    results = {query: Rows() for query in QUERIES}
    for query, log in ((query, logs[query]) for query in QUERIES if query in logs):
        for epoch in log.epochs():
            results[query] += _counted(query, timed_rows(log.read(epoch), log.schema))
    return results


def compare(results: Mapping[str, Rows], truth: Mapping[str, Rows]) -> None:
    for where, rows in results.items():
        expected = truth[query_of(where)]
        lost, extra = expected - rows, rows - expected
        assert not lost and not extra, (where, lost, extra)


def query_of(where: str) -> str:
    return where.partition(" ")[0]


def delivered(folder: Path, database: str) -> dict[str, Rows]:
    """What the sinks have."""
    files = [pa.ipc.open_file(path).read_all() for path in (folder / "out").glob("[0-9]*.arrow")]
    stamped = [table.set_column(0, "_ts", table.column(0).cast(pa.int64())) for table in files]
    written = Rows(tuple(row.values()) for table in stamped for row in table.to_pylist())
    with psycopg.connect(database) as connection:
        made = connection.execute("SELECT to_regclass('match')").fetchone() != (None,)
        rows = connection.execute(_MATCHES).fetchall() if made else []
    return {"every in files": written, "match in a database": Rows(rows)}


def _counted(query: str, rows: Sequence[Timed]) -> Rows:
    return Rows(row.row if query in PUT_ASIDE else (row.ts, *row.row) for row in rows)
