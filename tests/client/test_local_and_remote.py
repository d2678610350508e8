"""The same cases against a mill in this process and against a connection to a server."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path

import pytest

import slicemill
from slicemill.api.mill import Mill
from slicemill.errors import SlicemillError
from slicemill.testing import Clock, inline_pool
from slicemill_client import ClientError, SqlConnection
from slicemill_client.protocols import LiveEpoch
from support.connections import KINDS, connected
from support.engine import fed_mill, feed_rows

SCRIPT = """
CREATE STREAM bid (item int, price int, ts timestamp micros) ORDER BY ts;
CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 10;
"""
VALUES = """
CREATE STREAM s (v int, ts timestamp micros) ORDER BY ts;
CREATE QUERY q AS SELECT v, ts AS at, DATE '2026-01-02' AS on_day, CAST(v AS DECIMAL(10, 2)) AS exact,
  CAST('NaN' AS DOUBLE) AS no_number, v / 2.0E0 AS half, unhex('61') AS code, INTERVAL 90 SECONDS AS took,
  ARRAY[ts] AS moments, CAST(NULL AS TIMESTAMP) AS nothing FROM s;
"""
REJECTED = (SlicemillError, ClientError)


@dataclass
class Stage:
    """A connection, and the mill behind it, which runs when rows arrive."""

    connection: SqlConnection
    mill: Mill

    def bid(self, *rows: tuple[int, int, int]) -> None:
        """Let bids in, as (item, price, time), and run all."""
        feed_rows(self.mill, "bid", rows)
        self.mill.dispatcher.run_all()
        self.mill.dispatcher.notify()


@pytest.fixture(params=KINDS)
def stage(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Stage]:
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        mill.execute(SCRIPT)
        mill.open()
        with connected(request.param, mill) as connection:
            yield Stage(connection, mill)


def test_rows_are_all_retained_results(stage: Stage) -> None:
    stage.bid((1, 20, 1), (2, 5, 2), (3, 30, 3))
    dear = stage.connection.queries["dear"]
    at = [datetime(1970, 1, 1, 0, 0, 0, us, UTC) for us in (1, 3)]
    expected = [{"_ts": at[0], "item": 1, "price": 20}, {"_ts": at[1], "item": 3, "price": 30}]
    assert dear.rows() == dear.to_arrow().to_pylist() == expected
    assert dear.to_pandas()["price"].tolist() == [20, 30]


def test_ask_answers_an_ad_hoc_query(stage: Stage) -> None:
    stage.bid((1, 20, 1), (2, 30, 2))
    found = stage.connection.ask("SELECT max(_ts) AS newest, sum(price) AS total FROM dear")
    assert found == [{"newest": datetime(1970, 1, 1, 0, 0, 0, 2, UTC), "total": 50}]
    assert stage.connection.ask("SELECT 1 AS n, 2 AS n") == [{"n": 1, "n_1": 2}]
    with pytest.raises(REJECTED, match="deer"):
        stage.connection.ask("SELECT * FROM deer")
    assert list(stage.connection.queries) == ["dear"], "an ad hoc query is no continuous query"


def test_follow_yields_each_epoch_once(stage: Stage) -> None:
    stage.bid((1, 20, 1))
    stage.bid((2, 30, 2))
    found: list[LiveEpoch] = []
    for live in stage.connection.queries["dear"].follow(since=0):
        found.append(live)
        if len(found) == 2:
            break
    assert [(live.version, live.gap) for live in found] == [(1, False)] * 2
    assert [row["price"] for live in found for row in live.rows] == [20, 30]
    assert found[0].rows[0]["_ts"] == datetime(1970, 1, 1, 0, 0, 0, 1, UTC)
    assert found[1].epoch >= found[0].next > found[0].epoch
    again = next(iter(stage.connection.queries["dear"].follow(since=found[1].epoch)))
    assert again.rows == found[1].rows


def test_a_dropped_query_ends_its_followers(stage: Stage) -> None:
    stage.bid((1, 20, 1))
    dear, began = stage.connection.queries["dear"], threading.Event()
    found: list[int] = []

    def follow() -> None:
        for live in dear.follow(since=0):
            found.extend(row["item"] for row in live.rows)
            began.set()

    follower = threading.Thread(target=follow)
    follower.start()
    assert began.wait(20)
    dear.drop()
    stage.mill.dispatcher.notify()
    follower.join(20)
    assert not follower.is_alive()
    assert (found, list(stage.connection.queries)) == ([1], [])


def test_a_subscription_gets_earlier_and_new_results_until_it_stops(stage: Stage) -> None:
    stage.bid((1, 20, 1))
    receive, received = receiver()
    subscription = stage.connection.queries["dear"].subscribe(receive, since=0)
    assert received(1) == [20]
    stage.bid((2, 30, 2))
    assert received(2) == [20, 30]
    subscription.stop()
    stage.bid((3, 40, 3))
    assert subscription.error is None
    assert stage.connection.queries["dear"].rows()[-1]["price"] == 40


def test_a_subscriber_that_raises_is_not_called_again(stage: Stage) -> None:
    stage.bid((1, 20, 1))
    calls, called = list[int](), threading.Event()

    def fail(live: LiveEpoch) -> None:
        calls.append(live.epoch)
        called.set()
        raise ValueError("full")

    subscription = stage.connection.queries["dear"].subscribe(fail, since=0)
    assert called.wait(20)
    wait_until(lambda: subscription.error is not None)
    stage.bid((2, 30, 2))
    assert (len(calls), str(subscription.error)) == (1, "full")
    assert len(stage.connection.queries["dear"].rows()) == 2


def test_a_paused_query_shows_its_results_up_to_the_pause(stage: Stage) -> None:
    dear = stage.connection.queries["dear"]
    stage.bid((1, 20, 1))
    assert (dear.status().state, dear.status().paused_us) == ("running", None)
    dear.pause()
    stage.bid((2, 30, 2))
    assert [row["item"] for row in dear.rows()] == [1]
    assert (dear.status().state, dear.status().paused_us) == ("paused", 0)
    dear.resume()
    stage.mill.dispatcher.run_all()
    assert [row["item"] for row in dear.rows()] == [1, 2]
    assert (dear.status().state, dear.status().failures, dear.status().why) == ("running", 0, None)


def test_only_a_failed_query_is_restarted(stage: Stage) -> None:
    with pytest.raises(REJECTED, match="has not failed"):
        stage.connection.queries["dear"].restart()


def test_a_replaced_query_has_a_new_version(stage: Stage) -> None:
    stage.bid((1, 20, 1))
    dear, new = stage.connection.queries["dear"], "SELECT item, price * 2 AS twice FROM bid"
    effects = dear.explain_replace(new)
    assert [one.effect for one in effects] == ["keeps", "complete from", "columns"]
    assert (dear.version, {one.name for one in effects}) == (1, {"dear"})
    dear.replace(new)
    stage.bid((2, 3, 2))
    assert [row["twice"] for row in dear.rows()] == [6]
    assert (dear.version, [one.number for one in dear.versions()]) == (2, [1, 2])
    assert [(one.at_us, one.because) for one in dear.versions()] == [(0, None)] * 2
    assert dear.versions()[0].epoch < dear.versions()[1].epoch
    assert new in dear.versions()[1].text


def test_metrics_count_rows(stage: Stage) -> None:
    stage.bid((1, 20, 1), (2, 5, 2))
    dear = stage.connection.queries["dear"]
    assert (dear.metrics()["rows"], dear.progress()) == (1, None)
    found = stage.connection.metrics()
    assert [query["query"] for query in found["queries"]] == ["dear"]
    assert found["streams"]["bid"]["read"] == 2


@pytest.mark.parametrize("form", ["text", "json", "svg", "mermaid", "dot"])
def test_plans_are_those_of_the_mill(stage: Stage, form: str) -> None:
    stage.bid((1, 20, 1))
    assert stage.connection.explain(form=form) == stage.mill.explain(form=form)
    assert stage.connection.explain("dear", form) == stage.mill.explain("dear", form)


def test_the_plan_of_a_query_says_on_which_worker_it_runs(stage: Stage) -> None:
    stage.bid((1, 20, 1))
    text = stage.connection.queries["dear"].explain()
    assert text == stage.connection.explain("dear")
    assert "price > 10" in text and "subtask 0 on worker" in text


def test_a_checked_script_is_not_run(stage: Stage) -> None:
    stage.connection.check("CREATE QUERY q AS SELECT item FROM bid")
    with pytest.raises(REJECTED, match="itm"):
        stage.connection.check("CREATE QUERY q AS SELECT itm FROM bid")
    assert list(stage.connection.queries) == ["dear"]


def test_query_returns_the_handle_of_a_new_query(stage: Stage) -> None:
    cheap = stage.connection.query("CREATE QUERY cheap AS SELECT item FROM bid WHERE price < 5")
    stage.bid((1, 2, 1))
    assert (cheap.name, [row["item"] for row in cheap.rows()]) == ("cheap", [1])
    with pytest.raises(REJECTED, match="CREATE QUERY statements; write exactly one"):
        stage.connection.query("DROP QUERY cheap")
    two = "CREATE QUERY a AS SELECT item FROM bid; CREATE QUERY b AS SELECT price FROM bid"
    assert len(stage.connection.execute(two)) == 2


def test_values_of_every_type_are_the_same(tmp_path: Path) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        mill.execute(VALUES)
        mill.open()
        feed_rows(mill, "s", [(3, 1_500_000)])
        mill.dispatcher.run_all()
        with connected("remote", mill) as remote:
            either = (mill, remote)
            rows = [one.queries["q"].rows() for one in either]
            asked = [one.ask("SELECT * EXCLUDE (took) FROM q") for one in either]
            followed = [next(iter(one.queries["q"].follow(since=0))).rows for one in either]
    at = datetime(1970, 1, 1, 0, 0, 1, 500_000, UTC)
    # DuckDB has intervals of months and days, which have no common Python type.
    assert [found.pop("took") for (found,) in (*rows, *followed)] == [timedelta(seconds=90)] * 4
    for (found,) in (*rows, *asked, *followed):
        assert str(found.pop("no_number")) == "nan"
        assert found == {
            "_ts": at,
            "v": 3,
            "at": at,
            "on_day": date(2026, 1, 2),
            "exact": Decimal("3.00"),
            "half": 1.5,
            "code": b"a",
            "moments": [at],
            "nothing": None,
        }


def test_a_mill_has_at_most_15_public_methods() -> None:
    names = [name for name in vars(slicemill.Mill) if not name.startswith("_")]
    assert len(names) <= 15, names


def receiver() -> tuple[Callable[[LiveEpoch], None], Callable[[int], list[int]]]:
    """Return a subscriber, and a function that waits for a number of its prices."""
    prices: list[int] = []

    def receive(live: LiveEpoch) -> None:
        prices.extend(row["price"] for row in live.rows)

    def received(count: int) -> list[int]:
        wait_until(lambda: len(prices) >= count)
        return prices

    return receive, received


def wait_until(holds: Callable[[], bool]) -> None:
    """Wait for another thread, at most 20 seconds."""
    pause = threading.Event()
    for _ in range(2_000):
        if holds():
            return
        pause.wait(0.01)
    raise AssertionError("nothing happened for 20 seconds")
