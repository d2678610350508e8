"""`INSERT INTO t` in bodies of aggregates: each row is in the table once, whatever happens meanwhile."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.sql.errors import EslError
from slicemill.storage.changes import Change
from slicemill.storage.check import check_home
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.time import SECOND_US
from support.engine import feed_rows, finish

_DECLARED = """
CREATE STREAM bid (item bigint, price bigint, ts timestamp) ORDER BY ts;
CREATE TABLE counts (item bigint PRIMARY KEY, bids bigint NOT NULL);
CREATE TABLE jumps (item bigint, up bigint);
CREATE TABLE highest (price bigint PRIMARY KEY);
"""
_AGGREGATES = """
CREATE AGGREGATE climb(item bigint, next bigint) : bigint {
  TABLE state(before bigint, bids bigint);
  INITIALIZE: {
    INSERT INTO state VALUES (next, 1);
    INSERT INTO counts VALUES (item, 1);
    INSERT INTO RETURN VALUES (0); }
  ITERATE: {
    INSERT INTO jumps SELECT item, next - before FROM state WHERE next > before;
    UPDATE state SET before = next, bids = bids + 1;
    INSERT INTO jumps SELECT item, -bids FROM state WHERE bids = 3;
    INSERT INTO counts SELECT item, bids FROM state;
    INSERT INTO RETURN SELECT bids FROM state WHERE bids > 2; } };
CREATE AGGREGATE top(next bigint) : bigint {
  TABLE state(most bigint);
  INITIALIZE: { INSERT INTO state VALUES (next); }
  ITERATE: { UPDATE state SET most = next WHERE next > most; }
  TERMINATE: { INSERT INTO highest SELECT most FROM state; INSERT INTO RETURN SELECT most FROM state; } };
"""
_QUERIES = """
CREATE QUERY climbs AS SELECT item, climb(item, price) AS bids FROM bid GROUP BY item;
CREATE STREAM tops AS SELECT top(price) AS most FROM bid [RANGE 10 SECONDS SLIDE 10 SECONDS];
CREATE QUERY shown AS SELECT most FROM tops WHERE most > 1000;
"""
_SCRIPT = _DECLARED + _AGGREGATES + _QUERIES
Bid = tuple[int, int]


def _opened(home: Path, clock: Clock, script: str = _SCRIPT) -> Mill:
    mill = open_mill(home=home, pool=inline_pool(2), clock=clock, subtasks=2)
    mill.execute(script)
    mill.open()
    return mill


def _look(mill: Mill, clock: Clock) -> None:
    mill.dispatcher.run_all()
    clock.now += SECOND_US
    mill.tables.writer.look()


def _finish(mill: Mill) -> None:
    finish(mill)
    mill.tables.writer.write_all()


def _feed(mill: Mill, bids: Iterable[Bid], sent: int) -> None:
    """A bid each second."""
    feed_rows(
        mill, "bid", [(item, price, (sent + index) * SECOND_US) for index, (item, price) in enumerate(bids)]
    )


def _assert_written(mill: Mill, bids: list[Bid], *, ended: bool = False) -> None:
    before: dict[int, int] = {}
    counts: Counter[int] = Counter()
    jumps = []
    for item, price in bids:
        if item in before and price > before[item]:
            jumps.append((item, price - before[item]))
        before[item] = price
        counts[item] += 1
        if counts[item] == 3:
            jumps.append((item, -3))
    assert sorted(mill.tables.rows("counts")) == sorted(counts.items())
    assert Counter(mill.tables.rows("jumps")) == Counter(jumps)
    for one in before:  # in the order of its tuples
        assert [row for row in mill.tables.rows("jumps") if row[0] == one] == [
            row for row in jumps if row[0] == one
        ]
    if ended:
        windows = {second // 10: [] for second in range(len(bids))}
        for second, (_, price) in enumerate(bids):
            windows[second // 10].append(price)
        assert sorted(mill.tables.rows("highest")) == sorted({(max(prices),) for prices in windows.values()})


_BIDS = st.lists(st.tuples(st.integers(1, 3), st.integers(-3, 6)), max_size=5)


@pytest.mark.slow_cpu
@settings(max_examples=20)
@given(st.lists(st.tuples(_BIDS, st.sampled_from(["look", "wait", "restart", "crash"])), max_size=6))
@example([([(1, 3), (1, 4)], "look"), ([(1, 5)], "crash"), ([(2, 6)], "restart"), ([(1, 6)], "wait")])
def test_tables_have_every_row_once(steps: list[tuple[list[Bid], str]]) -> None:
    clock, sent = Clock(SECOND_US), list[Bid]()
    with tempfile.TemporaryDirectory() as folder:
        mill = _opened(Path(folder), clock)
        for bids, then in steps:
            _feed(mill, bids, len(sent))
            sent += bids
            mill.dispatcher.run_all()
            if then == "look":
                _look(mill, clock)
                _assert_written(mill, sent)
            elif then != "wait":
                mill.close(checkpoint=then == "restart")
                mill = _opened(Path(folder), clock)
        _finish(mill)
        _assert_written(mill, sent, ended=True)
        mill.close()
        assert not check_home(Path(folder)).errors


def test_a_crash_between_any_two_commits_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, bids = Clock(SECOND_US), [(1, 3), (2, 5), (1, 4), (1, 6), (2, 7), (3, 1)]
    mill = _opened(tmp_path / "home", clock)
    _feed(mill, bids[:3], 0)
    _look(mill, clock)
    copies: list[Path] = []
    commit = mill.home.commit

    def copied(change: Change) -> object:
        for when in (lambda: None, lambda: commit(change)):
            when()
            copies.append(tmp_path / f"copy{len(copies)}")
            shutil.copytree(tmp_path / "home", copies[-1])
        return None

    monkeypatch.setattr(mill.home, "commit", copied)
    _feed(mill, bids[3:], 3)
    fed = len(copies)
    _look(mill, clock)
    monkeypatch.undo()
    mill.close()
    assert len(copies) >= fed + 6
    for copy in copies[fed:]:
        with _opened(copy, Clock(clock.now)) as again:
            _finish(again)
            _assert_written(again, bids, ended=True)


def test_each_query_that_calls_an_aggregate_writes(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    script = _SCRIPT + "CREATE QUERY more AS SELECT item, climb(item, price) AS bids FROM bid GROUP BY item;"
    with _opened(tmp_path, clock, script) as mill:
        _feed(mill, [(1, 3), (1, 4)], 0)
        _look(mill, clock)
        assert mill.tables.rows("jumps")[:] == [(1, 1), (1, 1)]
        assert mill.tables.rows("counts")[:] == [(1, 2)]


def test_a_body_reads_the_table_as_it_was_when_its_tuple_came(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    script = """
    CREATE STREAM bid (item bigint, price bigint, ts timestamp) ORDER BY ts;
    CREATE TABLE seen (item bigint PRIMARY KEY, times bigint);
    CREATE AGGREGATE note(item bigint) : bigint {
      TABLE known(n bigint);
      INITIALIZE: ITERATE: {
        DELETE FROM known;
        INSERT INTO known VALUES (0);
        UPDATE known SET n = (SELECT max(times) FROM seen WHERE seen.item = item);
        UPDATE known SET n = 0 WHERE n IS NULL;
        INSERT INTO seen SELECT item, n + 1 FROM known;
        INSERT INTO RETURN SELECT n FROM known; } };
    CREATE QUERY q AS SELECT note(item) AS n FROM bid;
    """
    with _opened(tmp_path, clock, script) as mill:
        _feed(mill, [(1, 0), (1, 0)], 0)
        _look(mill, clock)
        assert mill.tables.rows("seen")[:] == [(1, 1)]
        _feed(mill, [(1, 0)], 2)
        _look(mill, clock)
        assert mill.tables.rows("seen")[:] == [(1, 2)]
        _finish(mill)
        assert [timed.row for timed in mill.queries["q"].timed_rows()] == [(0,), (0,), (1,)]


def test_windows_that_answer_at_each_tuple_write_at_each(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    script = """
    CREATE STREAM s (v bigint, ts timestamp) ORDER BY ts;
    CREATE TABLE came (v bigint);
    CREATE TABLE left_ (v bigint);
    CREATE TABLE total (v bigint);
    CREATE WINDOW AGGREGATE leaving(next bigint) : bigint {
      TABLE inwindow(v bigint);
      INITIALIZE: ITERATE: { INSERT INTO came VALUES (next); INSERT INTO RETURN VALUES (next); }
      EXPIRE: { INSERT INTO left_ VALUES (oldest().v); INSERT INTO RETURN VALUES (-1); } };
    CREATE AGGREGATE summed(next bigint) : bigint {
      TABLE state(t bigint);
      INITIALIZE: { INSERT INTO state VALUES (next); }
      ITERATE: { UPDATE state SET t = t + next; }
      TERMINATE: { INSERT INTO total SELECT t FROM state; INSERT INTO RETURN SELECT t FROM state; } };
    CREATE QUERY a AS SELECT v, leaving(v) OVER (RANGE 2 SECONDS PRECEDING ACTIVE EXPIRATION) AS w FROM s;
    CREATE QUERY b AS SELECT v, summed(v) OVER (ROWS 1 PRECEDING) AS t FROM s WHERE v < 4;
    """
    with _opened(tmp_path, clock, script) as mill:
        feed_rows(mill, "s", [(value, value * SECOND_US) for value in (1, 2, 3, 9)])
        _finish(mill)
        assert mill.tables.rows("came")[:] == [(1,), (2,), (3,), (9,)]
        assert mill.tables.rows("left_")[:] == [(1,), (2,), (3,), (9,)]
        assert mill.tables.rows("total")[:] == [(1,), (3,), (5,)]


def test_pausing_a_query_pauses_what_it_writes(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    with _opened(tmp_path, clock) as mill:
        mill.execute("PAUSE QUERY climbs")
        _feed(mill, [(1, 3), (1, 4)], 0)
        _look(mill, clock)
        assert mill.tables.rows("jumps")[:] == []
        mill.execute("RESUME QUERY climbs")
        _look(mill, clock)
        assert mill.tables.rows("jumps")[:] == [(1, 1)]
        with pytest.raises(EslError, match="is what climbs writes"):
            mill.execute('DROP QUERY "climbs into jumps"')
        with pytest.raises(EslError, match="is what climbs writes"):
            mill.execute('ALTER QUERY "climbs into jumps" SET (weight = 2)')
        with pytest.raises(EslError, match="there is a query climbs into jumps already"):
            mill.execute('CREATE OR REPLACE QUERY "climbs into jumps" AS SELECT item FROM bid')


def test_another_definition_writes_from_then_on(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    with _opened(tmp_path, clock) as mill:
        _feed(mill, [(1, 3), (1, 4)], 0)
        mill.execute(
            "CREATE OR REPLACE AGGREGATE climb(item bigint, next bigint) : bigint {"
            " INITIALIZE: ITERATE: { INSERT INTO jumps VALUES (item, 100);"
            " INSERT INTO RETURN VALUES (7); } };"
        )
        assert sorted(mill.queries) == ["climbs", "climbs into jumps", "shown", "tops into highest"]
        _feed(mill, [(1, 5)], 2)
        _finish(mill)
        assert mill.tables.rows("jumps")[:] == [(1, 1), (1, 100)]
        assert mill.tables.rows("counts")[:] == [(1, 2)]
        statements = [entry["text"] for entry in mill.home.statements]
        replaced = "CREATE OR REPLACE QUERY climbs AS SELECT item, price AS bids FROM bid"
        ends = [
            one.what for one in mill.statements.explain_replace(replaced) if one.name == "climbs into jumps"
        ]
        assert ends == ["jumps gets no more of it"]
        mill.execute(replaced)
        assert sorted(mill.queries) == ["climbs", "shown", "tops into highest"]
        assert "climbs into jumps" not in mill.home.logs
        assert len(mill.home.statements) == len(statements) + 1


def test_what_was_written_before_a_replacement_is_not_lost(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    with _opened(tmp_path, clock) as mill:
        _feed(mill, [(1, 3), (1, 4)], 0)
        mill.dispatcher.run_all()  # in the log, and not in the table
        mill.execute("CREATE OR REPLACE QUERY climbs AS SELECT item, price AS bids FROM bid")
        assert mill.tables.rows("jumps")[:] == [(1, 1)]
        _feed(mill, [(1, 5)], 2)
        _finish(mill)
        assert mill.tables.rows("jumps")[:] == [(1, 1)]


def test_a_table_that_bodies_write_is_in_use(tmp_path: Path) -> None:
    with _opened(tmp_path, Clock(SECOND_US)) as mill:
        with pytest.raises(EslError, match="jumps is used by climb and climbs"):
            mill.execute("DROP TABLE jumps")
        with pytest.raises(EslError, match="climb is used by climbs"):
            mill.execute("DROP AGGREGATE climb")
        mill.execute("DROP TABLE jumps CASCADE")
        assert sorted(mill.queries) == ["shown", "tops into highest"]
        assert "climb" not in mill.catalog.base_aggregates
        mill.execute("DROP STREAM tops CASCADE")
        assert not mill.queries
        assert not [name for name in mill.home.logs if " into " in name]


def test_a_column_more_changes_nothing_of_it(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    with _opened(tmp_path, clock) as mill:
        _feed(mill, [(1, 3), (1, 4)], 0)
        mill.execute("ALTER STREAM bid ADD COLUMN note varchar")
        feed_rows(mill, "bid", [(1, 5, 2 * SECOND_US, "x")])
        _finish(mill)
        _assert_written(mill, [(1, 3), (1, 4), (1, 5)])


_WRITES = "{ INSERT INTO counts VALUES (item, 1); INSERT INTO RETURN VALUES (item); }"


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        (
            f"CREATE AGGREGATE f(item bigint) : bigint {{ INITIALIZE: ITERATE: {_WRITES} }};"
            "CREATE VIEW v AS SELECT f(item) AS n FROM counts",
            "f writes counts, so it runs over streams",
            "over a stream",
        ),
        (
            f"CREATE AGGREGATE f(item bigint) : bigint {{ INITIALIZE: ITERATE: {_WRITES} }};"
            "CREATE AGGREGATE g(item bigint) : bigint { INITIALIZE: ITERATE: "
            "{ INSERT INTO RETURN SELECT f(c.item) FROM counts AS c; } }",
            "f writes counts, so it runs over streams",
            "over a stream",
        ),
        (
            f"CREATE AGGREGATE f(item bigint) : bigint {{ INITIALIZE: ITERATE: {_WRITES} TERMINATE: "
            "{ INSERT INTO RETURN VALUES (1); } };"
            "CREATE QUERY q AS SELECT f(item) AS n FROM bid [RANGE 10 SECONDS SLIDE 5 SECONDS]",
            "f writes counts in INITIALIZE and ITERATE, and this window answers when it ends",
            "TERMINATE",
        ),
        (
            f"CREATE AGGREGATE f(item bigint) : bigint {{ INITIALIZE: ITERATE: {_WRITES} }};"
            "CREATE QUERY q AS SELECT item, f(item) OVER (ROWS 3 PRECEDING SLIDE 2) AS n FROM bid",
            "this window answers when it ends",
            "OVER",
        ),
        (
            "CREATE WINDOW AGGREGATE f(item bigint) : bigint { TABLE inwindow(i bigint); "
            f"INITIALIZE: ITERATE: {_WRITES} EXPIRE: {{ INSERT INTO counts VALUES (oldest().i, 0); }} }};"
            "CREATE QUERY q AS SELECT item, f(item) OVER (ROWS 3 PRECEDING) AS n FROM bid",
            "does not tell when that is",
            "ACTIVE EXPIRATION",
        ),
        (
            f"CREATE ALGEBRAIC AGGREGATE f(item bigint) : bigint {{ INITIALIZE: ITERATE: {_WRITES} }}",
            "each partial aggregate would write counts",
            "ALGEBRAIC",
        ),
        (
            "CREATE AGGREGATE f(item bigint) : bigint { INITIALIZE: ITERATE: "
            "{ UPDATE counts SET bids = 2; INSERT INTO RETURN VALUES (1); } }",
            "an aggregate inserts into table counts, and changes it in no other way",
            "takes its place",
        ),
        (
            "CREATE AGGREGATE f(item bigint) : bigint { INITIALIZE: ITERATE: "
            "{ INSERT INTO counts VALUES (item, 'x'); INSERT INTO RETURN VALUES (1); } }",
            "bids is BIGINT",
            "",
        ),
        (
            'CREATE AGGREGATE "f into counts"(item bigint) : bigint { INITIALIZE: ITERATE: '
            "{ INSERT INTO RETURN VALUES (1); } }",
            "no name of an aggregate",
            "another name",
        ),
        (
            f"CREATE AGGREGATE f(item bigint) : bigint {{ INITIALIZE: ITERATE: {_WRITES} }};"
            'CREATE QUERY "q into counts" AS SELECT item FROM bid;'
            "CREATE QUERY q AS SELECT f(item) AS n FROM bid",
            "which is already used",
            "another name",
        ),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with _opened(tmp_path, Clock(SECOND_US), _DECLARED) as mill:
        with pytest.raises(EslError) as refused:
            mill.execute(text)
        assert message in refused.value.diagnostics[0].message
        assert hint in (refused.value.diagnostics[0].hint or "")


def test_a_crash_while_a_query_is_replaced_loses_nothing_that_it_wrote(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock(SECOND_US)
    mill = _opened(tmp_path / "home", clock)
    _feed(mill, [(1, 3), (1, 4)], 0)
    copies: list[Path] = []
    commit = mill.home.commit

    def copied(change: Change) -> object:
        commit(change)
        copies.append(tmp_path / f"copy{len(copies)}")
        shutil.copytree(tmp_path / "home", copies[-1])
        return None

    monkeypatch.setattr(mill.home, "commit", copied)
    replaced = "CREATE OR REPLACE QUERY climbs AS SELECT item, price AS bids FROM bid;"
    mill.execute(replaced)
    monkeypatch.undo()
    mill.close()
    for copy in copies:
        with open_mill(home=copy, pool=inline_pool(2), clock=Clock(clock.now), subtasks=2) as again:
            assert not again.statements.restore()
            again.open()
            _finish(again)
            assert again.tables.rows("jumps")[:] == [(1, 1)]
            assert again.tables.rows("counts")[:] == [(1, 2)]
            kept = [name for name in again.home.logs if name.startswith("climbs into")]
            assert len(kept) == (2 if "climbs into jumps" in again.catalog.queries else 0)


def test_a_write_that_fails_stops_no_results_and_is_restarted_with_its_query(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    script = """
    CREATE STREAM s (v bigint, ts timestamp) ORDER BY ts;
    CREATE TABLE far (v bigint);
    CREATE AGGREGATE f(v bigint) : bigint {
      INITIALIZE: ITERATE: {
        INSERT INTO far VALUES (v + 9223372036854775800);
        INSERT INTO RETURN VALUES (v); } };
    CREATE QUERY q AS SELECT f(v) AS v FROM s;
    """
    with _opened(tmp_path, clock, script) as mill:
        feed_rows(mill, "s", [(1, 1), (100, 2), (3, 3)])
        _look(mill, clock)
        assert [timed.row for timed in mill.queries["q"].timed_rows()] == [(1,), (100,), (3,)]
        assert "out of the range" in (mill.lifecycle.of("q into far").why or "")
        assert mill.lifecycle.of("q").why is None
        mill.execute("RESTART QUERY q")
        assert mill.lifecycle.of("q into far").state.value == "running"
        with pytest.raises(SlicemillError, match="query q has not failed"):
            mill.execute("RESTART QUERY q")
