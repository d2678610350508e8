"""Notices: the start of a new query, the effects of a replacement, and rows that an ad hoc query misses."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.testing import Clock, inline_pool, open_mill
from support.engine import checkpoint_twice

BID = "CREATE STREAM bid (item int, price int, ts timestamp) ORDER BY ts USING csv OPTIONS (path 'bids')"
COUNTS = "AS SELECT item, count(*) AS n FROM bid [RANGE 4 SECONDS SLIDE 2 SECONDS] GROUP BY item"


class People:
    """User of a service over a folder of bids."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.clock = folder, Clock(10**15)
        (folder / "bids").mkdir()
        self.mill = open_mill(home=folder / "home", folder=folder, pool=inline_pool(), clock=self.clock)
        self.mill.open()
        self.user = UserSession(MillService(self.mill))

    def say(self, text: str) -> str:
        """Return the message of the answer to one statement."""
        (answer,) = self.user.execute(text)
        return answer.message

    def bid(self, first: int, last: int) -> None:
        rows = "".join(f"{n % 2},{n},2026-01-01 00:00:{n:02}\n" for n in range(first, last + 1))
        (self.folder / "bids" / f"{first:02}.csv").write_text(rows)
        self.clock.now += 1_000_000
        self.mill.running.read_all()
        self.mill.dispatcher.run_all()

    def forget(self) -> None:
        """Free the rows that all queries have read."""
        checkpoint_twice(self.mill)
        self.mill.retention.collect()


@pytest.fixture
def people(tmp_path: Path) -> Iterator[People]:
    made = People(tmp_path)
    yield made
    made.mill.close()


def test_create_reports_the_first_row_that_a_query_reads(people: People) -> None:
    assert people.say(BID).endswith("queries start with its first row")
    tcp = "CREATE STREAM heard (x int) SOURCE 'tcp://localhost:1'"
    assert people.say(tcp).endswith("queries start with the rows that arrive after their creation")
    assert people.say(f"CREATE QUERY a {COUNTS}").endswith("it starts with the first row of bid")
    people.bid(1, 5)
    assert people.say(f"CREATE QUERY b {COUNTS}").endswith(
        "it starts with the first row of bid, and reads bid again for it"
    )
    assert people.say(f"CREATE QUERY c FROM NOW {COUNTS}").endswith(
        "it starts after 2026-01-01 00:00:05: earlier rows of bid are not in its results; "
        "its windows are complete after 2026-01-01 00:00:09"
    )


def test_create_or_replace_reports_the_effects_of_explain_replace(people: People) -> None:
    people.say(BID)
    people.say(f"CREATE QUERY a {COUNTS}")
    people.bid(1, 5)
    text = f"CREATE OR REPLACE QUERY a {COUNTS.replace('count(*)', 'sum(price)')}"
    effects = people.mill.statements.explain_replace(text)
    lines = people.say(text).splitlines()
    assert lines[1:] == [f"{one.name} {one.effect}: {one.what}" for one in effects]
    assert any(one.effect == "complete from" for one in effects)


def test_an_ad_hoc_query_over_a_stream_reports_the_rows_that_it_misses(people: People) -> None:
    people.say(BID)
    assert people.say("SELECT count(*) FROM bid").startswith("no query reads bid, so none of its rows")
    people.say(f"CREATE QUERY a {COUNTS}")
    people.bid(1, 5)
    assert people.say("SELECT count(*) FROM bid") == "", "all rows are still here"
    people.forget()
    people.bid(6, 6)
    assert people.say("SELECT count(*) FROM bid") == (
        "bid stores 1 of the 6 rows that were read: those that queries have not read yet; "
        "declare bid with RETAIN, as in RETAIN 7 DAYS, to keep more"
    )
    assert people.say("SELECT count(*) FROM a") == ""


def test_late_rows_are_retained_as_long_as_results(people: People) -> None:
    people.say(BID)
    people.say("CREATE QUERY a AS SELECT item, price FROM bid")
    people.bid(5, 6)
    people.bid(1, 1)
    people.forget()
    (answer,) = people.user.execute("SELECT price FROM bid_late")
    assert answer.table is not None
    assert answer.table.to_pylist() == [{"price": 1}]


def test_the_hint_for_a_materialized_view_is_a_statement_that_works(people: People) -> None:
    people.say(BID)
    with pytest.raises(Exception, match="CREATE QUERY name AS SELECT"):
        people.say("CREATE MATERIALIZED VIEW v AS SELECT item, sum(price) AS s FROM bid GROUP BY item")
    people.say("CREATE QUERY v AS SELECT item, sum(price) AS s FROM bid GROUP BY item")
    people.bid(1, 4)
    (answer,) = people.user.execute("SELECT item, s FROM v ORDER BY item")
    assert answer.table is not None
    assert answer.table.to_pylist() == [{"item": 0, "s": 6}, {"item": 1, "s": 4}]
