"""`sink = 'table:t'`: results of queries are rows of tables, each once, whatever happens meanwhile."""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from slicemill.api.mill import Mill
from slicemill.sql.errors import EslError
from slicemill.storage.changes import Change
from slicemill.storage.check import check_home
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.time import SECOND_US
from support.engine import feed_rows, finish

_SCRIPT = """
CREATE STREAM bid (item bigint, price bigint, ts timestamp) ORDER BY ts;
CREATE TABLE latest (item bigint PRIMARY KEY, price bigint NOT NULL, note varchar);
CREATE TABLE seen (price double, item bigint);
CREATE TABLE dear (item bigint PRIMARY KEY, total bigint);
CREATE TABLE steps (up bigint);
CREATE AGGREGATE climb(next bigint) : bigint {
  TABLE state(before bigint);
  INITIALIZE: { INSERT INTO state VALUES (next); }
  ITERATE: {
    INSERT INTO RETURN SELECT next - before FROM state WHERE next > before;
    UPDATE state SET before = next; } };
CREATE QUERY to_latest WITH (sink = 'table:latest') AS SELECT item, price FROM bid;
CREATE QUERY to_seen WITH (sink = 'table:SEEN') AS SELECT item, price FROM bid;
CREATE QUERY to_dear WITH (sink = 'table:dear') AS
  SELECT item, sum(price) AS total FROM bid GROUP BY item HAVING sum(price) > 4;
CREATE QUERY to_steps WITH (sink = 'table:steps') AS SELECT climb(price) AS up FROM bid;
"""
Bid = tuple[int, int]


def _opened(home: Path, clock: Clock) -> Mill:
    mill = open_mill(home=home, pool=inline_pool(2), clock=clock, subtasks=2)
    mill.execute(_SCRIPT)
    mill.open()
    return mill


def _look(mill: Mill, clock: Clock) -> None:
    mill.dispatcher.run_all()
    clock.now += SECOND_US
    mill.tables.writer.look()


def _finish(mill: Mill) -> None:
    finish(mill)
    mill.tables.writer.write_all()


def _assert_written(mill: Mill, bids: Iterable[Bid]) -> None:
    bids = list(bids)
    totals: Counter[int] = Counter()
    for item, price in bids:
        totals[item] += price
    prices = [price for _, price in bids]
    climbs = [after - before for before, after in pairwise(prices) if after > before]
    assert sorted(mill.tables.rows("latest")) == sorted(
        (item, price, None) for item, price in dict(bids).items()
    )
    assert sorted(mill.tables.rows("seen")) == sorted((float(price), item) for item, price in bids)
    assert sorted(mill.tables.rows("dear")) == sorted(
        (item, total) for item, total in totals.items() if total > 4
    )
    assert sorted(mill.tables.rows("steps")) == sorted((step,) for step in climbs)


_BIDS = st.lists(st.tuples(st.integers(1, 3), st.integers(-3, 6)), max_size=4)


@pytest.mark.slow_cpu
@settings(max_examples=30)
@given(st.lists(st.tuples(_BIDS, st.sampled_from(["look", "wait", "restart", "crash"])), max_size=6))
@example([([(1, 3), (1, 2)], "look"), ([(1, -3)], "crash"), ([(2, 6)], "restart"), ([(1, 6)], "wait")])
def test_tables_have_every_result_once(steps: list[tuple[list[Bid], str]]) -> None:
    clock, sent = Clock(SECOND_US), list[Bid]()
    with tempfile.TemporaryDirectory() as folder:
        mill = _opened(Path(folder), clock)
        for bids, then in steps:
            rows = [(item, price, len(sent) + index) for index, (item, price) in enumerate(bids)]
            feed_rows(mill, "bid", rows)
            sent += bids
            mill.dispatcher.run_all()
            if then == "look":
                _look(mill, clock)
                _assert_written(mill, sent)
            elif then != "wait":
                mill.close(checkpoint=then == "restart")
                mill = _opened(Path(folder), clock)
        _finish(mill)
        _assert_written(mill, sent)
        mill.close()
        assert not check_home(Path(folder)).errors


def test_a_crash_between_any_two_commits_loses_and_doubles_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock, bids = Clock(SECOND_US), [(1, 3), (2, 5), (1, 4), (3, 6)]
    mill = _opened(tmp_path / "home", clock)
    feed_rows(mill, "bid", [(item, price, index) for index, (item, price) in enumerate(bids[:2])])
    _look(mill, clock)
    feed_rows(mill, "bid", [(item, price, 10 + index) for index, (item, price) in enumerate(bids[2:])])
    mill.dispatcher.run_all()
    copies: list[Path] = []
    commit = mill.home.commit

    def copied(change: Change) -> object:
        for when in (lambda: None, lambda: commit(change)):
            when()
            copies.append(tmp_path / f"copy{len(copies)}")
            shutil.copytree(tmp_path / "home", copies[-1])
        return None

    monkeypatch.setattr(mill.home, "commit", copied)
    clock.now += SECOND_US
    mill.tables.writer.look()
    monkeypatch.undo()
    mill.close()
    assert len(copies) >= 8  # four queries, before and after
    for copy in copies:
        with _opened(copy, Clock(clock.now)) as again:
            _finish(again)
            _assert_written(again, bids)


def test_tuples_meet_what_was_written_before_they_came(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    with _opened(tmp_path, clock) as mill:
        mill.execute(
            "CREATE QUERY changed AS SELECT b.item, l.price AS before, b.price FROM bid AS b "
            "LEFT JOIN latest AS l ON b.item = l.item"
        )
        feed_rows(mill, "bid", [(1, 3, 1)])
        _look(mill, clock)
        feed_rows(mill, "bid", [(1, 4, 2), (1, 5, 3)])
        _look(mill, clock)
        feed_rows(mill, "bid", [(1, 6, 4)])
        finish(mill)
        assert [timed.row for timed in mill.queries["changed"].timed_rows()] == [
            (1, None, 3),
            (1, 3, 4),
            (1, 3, 5),
            (1, 5, 6),
        ]


def test_rows_of_users_and_of_queries_are_rows_of_one_table(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    with _opened(tmp_path, clock) as mill:
        feed_rows(mill, "bid", [(1, 3, 1), (2, 4, 2)])
        _look(mill, clock)
        mill.execute(
            "UPDATE latest SET note = 'seen' WHERE item = 1; INSERT INTO latest VALUES (9, 9, 'own')"
        )
        feed_rows(mill, "bid", [(2, 5, 3)])
        _look(mill, clock)
        assert sorted(mill.tables.rows("latest")) == [(1, 3, "seen"), (2, 5, None), (9, 9, "own")]
        epoch = mill.home.epoch
        _look(mill, clock)
        assert mill.home.epoch == epoch  # nothing new, nothing written


def test_a_row_that_the_table_does_not_take_is_told_and_tried_again(tmp_path: Path) -> None:
    clock = Clock(SECOND_US)
    with _opened(tmp_path, clock) as mill:
        feed_rows(mill, "bid", [(1, None, 1)])
        _look(mill, clock)
        assert "price of table latest must not be NULL" in mill.tables.writer.errors()["to_latest"]
        assert mill.tables.writer.problems()[0].startswith("the table that to_latest writes rejects its rows")
        mill.execute("DROP QUERY to_latest; DROP TABLE latest")
        _look(mill, clock)
        assert mill.tables.writer.errors() == {}


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("WITH (sink = 'table:nothing') AS SELECT item FROM bid", "there is no table nothing", "latest"),
        ("WITH (sink = 'table:bid') AS SELECT item FROM bid", "bid has no rows of its own", "its columns"),
        ("WITH (sink = 'table:latest') AS SELECT item FROM bid", "price of table latest", "AS price"),
        ("WITH (sink = 'table:seen') AS SELECT item AS itm FROM bid", "no column itm", "item"),
        ("WITH (sink = 'table:seen') AS SELECT ts AS item FROM bid", "is BIGINT", "CAST"),
        (
            "WITH (sink = 'table:seen') AS SELECT item, sum(price) AS price FROM bid GROUP BY item",
            "the key of their rows is (item)",
            "PRIMARY KEY (item)",
        ),
        (
            "WITH (sink = 'table:seen') AS SELECT item FROM latest",
            "no continuous results",
            "INSERT INTO seen",
        ),
    ],
)
def test_mistakes_are_told(tmp_path: Path, text: str, message: str, hint: str) -> None:
    with _opened(tmp_path, Clock(SECOND_US)) as mill:
        with pytest.raises(EslError) as refused:
            mill.execute(f"CREATE QUERY q {text}")
        assert message in refused.value.diagnostics[0].message
        assert hint in (refused.value.diagnostics[0].hint or "")


def test_an_insert_that_would_not_end_names_the_query_that_goes_on(tmp_path: Path) -> None:
    with _opened(tmp_path, Clock(SECOND_US)) as mill:
        with pytest.raises(EslError) as refused:
            mill.execute("INSERT INTO seen SELECT price, item FROM bid")
        hint = refused.value.diagnostics[0].hint or ""
        mill.execute(hint.partition(": ")[2].replace("SELECT …", "SELECT price, item FROM bid"))
        assert "into_seen" in mill.queries


def test_a_table_that_is_written_is_in_use(tmp_path: Path) -> None:
    with _opened(tmp_path, Clock(SECOND_US)) as mill:
        with pytest.raises(EslError, match="latest is used by to_latest"):
            mill.execute("DROP TABLE latest")
        with pytest.raises(EslError, match="would get no more"):
            mill.execute("ALTER QUERY to_latest SET (sink = NULL)")
        mill.execute("DROP TABLE latest CASCADE")
        assert "to_latest" not in mill.queries
