"""A query over results that change is over their table, whenever it comes: it begins with the table as it is.

Moments of creation, runs, folds, restarts and kills are put anywhere; each query comes to what DuckDB answers
over all that has come.
"""

from __future__ import annotations

import math
import random
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.sql.errors import EslError
from slicemill.storage.home import Home
from slicemill.testing import Clock, inline_pool
from slicemill.time import BEGINNING
from support.changelogs import STREAM, Row, TableOfNow, rows, same_rows
from support.engine import fed_mill, feed_rows, finish

SECOND = 1_000_000
SCRIPT = """
CREATE STREAM s (k int, v int, ts timestamp) ORDER BY ts;
CREATE STREAM totals AS SELECT k, count(*) AS n FROM s GROUP BY k;
"""
COUNTED = "AS SELECT n, count(*) AS groups FROM totals GROUP BY n;"


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Mill]:
    with fed_mill(tmp_path, Clock(), inline_pool()) as made:
        made.execute(SCRIPT)
        made.open()
        yield made


def feed(mill: Mill, *keys: int) -> None:
    begin = (mill.home.logs["s"].max_ts or 0) + SECOND
    feed_rows(mill, "s", [(k, k, begin + at * SECOND) for at, k in enumerate(keys)])
    mill.dispatcher.run_all()


def test_a_query_that_comes_later_begins_with_the_table_as_it_is(mill: Mill) -> None:
    feed(mill, 1, 2, 1)
    mill.execute(f"CREATE QUERY counted {COUNTED}")
    mill.dispatcher.run_all()
    assert sorted(mill.tables.rows("counted")) == [(1, 1), (2, 1)]
    feed(mill, 2, 3)
    assert mill.queries["counted"].error is None
    assert sorted(mill.tables.rows("counted")) == [(1, 1), (2, 2)]


def test_one_that_comes_to_others_does_too(mill: Mill) -> None:
    mill.execute(f"CREATE QUERY first {COUNTED} CREATE QUERY all_1 AS SELECT k, n FROM totals WHERE n > 1;")
    feed(mill, 1, 2, 1)
    mill.execute(f"CREATE QUERY second {COUNTED} CREATE QUERY all_2 AS SELECT k, n FROM totals WHERE n > 1;")
    feed(mill, 2, 3)
    assert sorted(mill.tables.rows("second")) == sorted(mill.tables.rows("first")) == [(1, 1), (2, 2)]
    assert sorted(mill.tables.rows("all_2")) == sorted(mill.tables.rows("all_1")) == [(1, 2), (2, 2)]


def test_so_does_a_derived_stream_and_what_reads_that(mill: Mill) -> None:
    feed(mill, 1, 2, 1)
    mill.execute(f"CREATE STREAM counted {COUNTED}")
    feed(mill, 2)
    mill.execute("CREATE QUERY most AS SELECT n, groups FROM counted ORDER BY groups DESC, n LIMIT 1;")
    feed(mill, 3)
    assert mill.tables.rows("most") == [(2, 2)]


def test_a_table_of_a_folded_changelog_has_its_rows(mill: Mill) -> None:
    mill.execute("CREATE QUERY sums AS SELECT k, sum(v) AS v FROM s GROUP BY k;")
    feed(mill, 1, 2, 1)
    fold(mill)
    assert mill.home.logs["sums"].base is not None
    mill.execute("CREATE TABLE sum_of AS MATERIALIZED sums; CREATE QUERY asked AS SELECT k, v FROM sum_of;")
    assert sorted(mill.tables.rows("asked")) == [(1, 2), (2, 2)]


def test_a_query_is_as_complete_as_the_table_that_it_reads(mill: Mill) -> None:
    feed(mill, 1, 2)
    mill.execute(f"CREATE QUERY counted {COUNTED}")
    assert mill.queries["counted"].complete_from() == BEGINNING
    # A stream is read from now on.
    mill.execute("CREATE QUERY both AS SELECT s.k, n FROM s JOIN totals ON s.k = totals.k;")
    assert mill.queries["both"].complete_from() is None
    # This table has missed what came before it, and so has all that reads it.
    mill.execute("CREATE STREAM later AS SELECT k, count(*) AS n FROM s GROUP BY k;")
    mill.execute("CREATE QUERY some AS SELECT k FROM later WHERE n > 1;")
    assert mill.queries["some"].complete_from() is None


def test_one_that_was_not_declared_for_a_while_has_missed_no_change(tmp_path: Path) -> None:
    clock = Clock()
    late = f"CREATE QUERY counted {COUNTED}"
    for script, keys in ((SCRIPT + late, (1, 2, 1)), (SCRIPT, (2, 3, 3)), (SCRIPT + late, (1,))):
        with fed_mill(tmp_path, clock, inline_pool()) as mill:
            mill.execute(script)
            mill.open()
            feed(mill, *keys)
            fold(mill)
            if script != SCRIPT:
                groups = [(1, 1), (2, 1)] if len(keys) == 3 else [(2, 2), (3, 1)]
                assert sorted(mill.tables.rows("counted")) == groups


def test_it_may_say_from_the_beginning_and_not_from_a_time(mill: Mill) -> None:
    feed(mill, 1, 2, 1)
    fold(mill)
    mill.execute(f"CREATE QUERY counted FROM BEGINNING {COUNTED}")
    feed(mill, 2)
    assert mill.tables.rows("counted") == [(2, 2)]
    with pytest.raises(EslError, match="rows of totals change") as told:
        mill.execute(f"CREATE QUERY some FROM TIMESTAMP '2026-01-31 12:00:00' {COUNTED}")
    assert "leave FROM TIMESTAMP out" in str(told.value)


def fold(mill: Mill) -> None:
    """Fold all that can be folded now, log by log."""
    assert isinstance(mill.running.clock, Clock)
    mill.retention.keep_us, mill.retention.compactor.least_rows = 0, 1
    mill.running.clock.now += 10**12
    mill.dispatcher.checkpoint_all()
    for _ in mill.home.logs:
        mill.retention.collect()
        mill.retention.compactor.wait()
    mill.retention.collect()


class Killed(BaseException):
    """The process is gone."""


TABLES = """CREATE STREAM t AS SELECT k, count(*) AS a, sum(v) AS b FROM S GROUP BY k;
CREATE STREAM u AS SELECT g, max(v) AS m, count(*) AS c FROM S GROUP BY g HAVING count(*) <> 2;
CREATE STREAM w AS SELECT n, k, v FROM S QUALIFY row_number() OVER (PARTITION BY k ORDER BY v DESC, n) <= 2;
"""
# What reads them, in ESL and for DuckDB.
READERS = (
    "SELECT a, count(*) AS c, sum(b) AS s, min(k) AS k FROM t GROUP BY a",
    "SELECT a, count(*) AS c FROM t GROUP BY a HAVING count(*) > 1",
    "SELECT k, b FROM t WHERE b > 0",
    "SELECT k, a FROM t ORDER BY a DESC, k LIMIT 2",
    "SELECT DISTINCT a FROM t",
    "SELECT k, count(*) AS c, max(v) AS v FROM w GROUP BY k",
    "SELECT v FROM w WHERE v >= 0",
    "SELECT t.k, a, g, m FROM t JOIN u ON t.a = u.c",
    "SELECT t.k, a, g, m FROM t LEFT JOIN u ON t.a = u.c",
    "SELECT t.k, a, n FROM t JOIN S ON t.k = S.k",
    "SELECT t.k, a, n FROM S LEFT JOIN t ON t.k = S.k",
    "SELECT k, a FROM t UNION ALL SELECT k, v AS a FROM w",
    "SELECT g, c FROM u WHERE c > 1 EMIT EVERY 2 SECONDS",
    "SELECT a, count(*) AS c FROM t GROUP BY a EMIT FINAL",
)


class Scene:
    """A mill over some tables that change, to which queries come; `created` has when each came."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.chooser = random.Random(seed)
        self.folder, self.clock, self.pool = folder, Clock(), inline_pool()
        self.created: dict[str, tuple[str, int]] = {}
        self.fed: list[Row] = []
        self.mill = self._started()

    def _started(self) -> Mill:
        mill = fed_mill(self.folder, self.clock, self.pool, self.chooser.choice([1, 2, 5]))
        queries = "".join(f"CREATE QUERY {name} AS {text};" for name, (text, _) in self.created.items())
        mill.execute(STREAM + TABLES + queries)
        mill.open()
        return mill

    def start_again(self) -> None:
        self.mill.close(checkpoint=self.chooser.random() < 0.5)
        self.mill = self._started()

    def create(self, text: str) -> None:
        name = f"q{len(self.created)}"
        self.created[name] = text, len(self.fed)
        if self.chooser.random() < 0.7:
            self.mill.execute(f"CREATE QUERY {name} AS {text};")
            return
        left, commit = self.chooser.randrange(6), Home.commit

        def until_killed(home: Home, *args: Any, **more: Any) -> Any:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return commit(home, *args, **more)

        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(Home, "commit", until_killed)
            with suppress(Killed):
                self.mill.execute(f"CREATE QUERY {name} AS {text};")
        # What the old one still writes is lost.
        before, self.folder = self.folder, self.folder.with_name(f"{self.folder.name} {name}")
        shutil.copytree(before, self.folder)
        self.mill.close(checkpoint=False)
        self.mill = self._started()

    def feed(self, row: Row) -> None:
        feed_rows(self.mill, "S", [row])
        self.fed.append(row)
        if self.chooser.random() < 0.5:
            self.mill.dispatcher.run_all()
        if self.chooser.random() < 0.15:
            fold(self.mill)
        if self.chooser.random() < 0.15:
            self.start_again()

    def check(self, *, ended: bool) -> None:
        with duckdb.connect() as database:
            database.execute("CREATE TABLE A (n INT, k VARCHAR, g INT, v INT, ts BIGINT)")
            if self.fed:
                database.executemany("INSERT INTO A VALUES (?, ?, ?, ?, ?)", self.fed)
            for name, (text, index) in self.created.items():
                if not ended and any(word in text for word in ("EMIT", "JOIN", "UNION")):
                    continue  # it waits for the watermark
                query = self.mill.queries[name]
                assert query.error is None, (text, query.error)
                table = TableOfNow(query.schema)
                for timed in query.timed_rows():
                    table.apply(timed.ts, timed.row)
                table.check_key()
                expected = database.execute(_in_duckdb(text, index)).fetchall()
                assert same_rows(table.rows, expected), (text, index, table.rows, expected)


def _in_duckdb(text: str, index: int) -> str:
    """The tables are of all tuples; a stream has those that came after the query."""
    tables = TABLES.replace("FROM S", "FROM A").replace("v DESC, n", "v DESC NULLS LAST, n")
    defined = [one.strip().removeprefix("CREATE STREAM ").split(" AS ", 1) for one in tables.split(";")[:-1]]
    named = [f"{name} AS ({query})" for name, query in defined]
    named.append(f"S AS (SELECT * FROM A WHERE n >= {index})")
    plain = text.split(" EMIT")[0].replace("a DESC, k LIMIT", "a DESC, k NULLS FIRST LIMIT")
    return f"WITH {', '.join(named)} {plain}"


@pytest.mark.slow_cpu
@settings(max_examples=25)
@given(
    rows(),
    st.lists(st.tuples(st.integers(0, 14), st.sampled_from(READERS)), min_size=1, max_size=4),
    st.integers(0, 2**32),
)
def test_whenever_a_query_comes_its_changes_come_to_the_answer_over_all_that_has_come(
    tuples: list[Row], comes: Sequence[tuple[int, str]], seed: int
) -> None:
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched:
        patched.setattr("slicemill.lifecycle.retention.BETWEEN_COLLECTIONS_S", math.inf)
        scene = Scene(Path(folder) / "home", seed)
        try:
            for number in range(15):
                for at, text in comes:
                    if at == number:
                        scene.create(text)
                if number < len(tuples):
                    scene.feed(tuples[number])
                if scene.chooser.random() < 0.3:
                    scene.mill.dispatcher.run_all()
            scene.mill.dispatcher.run_all()
            scene.check(ended=False)
            finish(scene.mill)
            scene.check(ended=True)
        finally:
            scene.mill.close()
