"""Alerts of a mill: conditions and rows, told to a real webhook, across restarts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from slicemill.api.mill import Mill
from slicemill.sql.errors import EslError
from slicemill.testing import Clock, inline_pool, open_mill
from slicemill.time import SECOND_US
from support.engine import fed_mill, feed_rows
from support.webhooks import Webhook, listening_webhook

BIDS = """
CREATE STREAM bid (item int, price int, ts timestamp micros) ORDER BY ts;
CREATE QUERY dear AS SELECT item, price FROM bid WHERE price > 10;
"""


@pytest.fixture
def hook() -> Iterator[Webhook]:
    with listening_webhook() as made:
        yield made


@pytest.fixture
def clock() -> Clock:
    return Clock(1_000 * SECOND_US)


@pytest.fixture
def mill(tmp_path: Path, clock: Clock) -> Iterator[Mill]:
    with fed_mill(tmp_path / "home", clock, inline_pool()) as made:
        made.execute(BIDS)
        made.open()
        yield made


def bid(mill: Mill, *rows: tuple[int, int, int]) -> None:
    feed_rows(mill, "bid", rows)
    mill.dispatcher.run_all()


def tick(mill: Mill, clock: Clock, seconds: int = 1) -> None:
    """Time passes, second by second: conditions are looked at and messages sent."""
    for _ in range(seconds):
        clock.now += SECOND_US
        mill.alerts.look()
        mill.alerts.deliver_new()


def restarted(tmp_path: Path, clock: Clock) -> Mill:
    mill = fed_mill(tmp_path / "home", clock, inline_pool())
    assert mill.statements.restore() == []
    mill.open()
    return mill


def words(hook: Webhook) -> list[tuple[str, str]]:
    return [(message["status"], message["on"]) for message in hook.taken]


# -- rows -------------------------------------------------------------------------------------------------


def test_new_rows_of_a_query_are_told_and_old_ones_are_not(mill: Mill, hook: Webhook) -> None:
    bid(mill, (1, 50, 1))
    mill.execute(f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
    mill.alerts.deliver_new()
    assert hook.taken == []
    bid(mill, (2, 60, 2), (3, 5, 3))
    mill.alerts.deliver_new()
    (message,) = hook.taken
    assert message["rows"] == [{"_ts": "1970-01-01T00:00:00.000002Z", "item": 2, "price": 60}]
    assert (message["alert"], message["kind"], message["on"], message["gap"]) == ("a", "rows", "dear", False)
    assert hook.headers[0]["Idempotency-Key"] == message["id"]
    mill.alerts.deliver_new()
    assert len(hook.taken) == 1


def test_many_rows_of_one_epoch_come_in_several_messages(mill: Mill, hook: Webhook) -> None:
    mill.execute(f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
    bid(mill, *((number, 50, number) for number in range(1, 1201)))
    mill.alerts.deliver_new()
    assert [row["item"] for message in hook.taken for row in message["rows"]] == list(range(1, 1201))
    assert max(len(message["rows"]) for message in hook.taken) == 500
    assert len({message["id"] for message in hook.taken}) == len(hook.taken)


def test_rows_wait_for_a_webhook_that_is_down_and_pauses_grow(
    mill: Mill, hook: Webhook, clock: Clock
) -> None:
    hook.answer = lambda _: 503
    mill.execute(f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
    bid(mill, (1, 50, 1))
    tried = list[int]()
    for second in range(1, 40):
        before = len(hook.asked)
        tick(mill, clock)
        tried += [second] * (len(hook.asked) - before)
    assert tried == [1, 2, 4, 8, 16, 32]
    (status,) = mill.alerts.status()
    assert status.error is not None and "503" in status.error and status.waiting == 1
    mill.retention.collect()
    hook.answer = lambda _: 200
    bid(mill, (2, 50, 2))
    tick(mill, clock, 40)
    assert [row["item"] for message in hook.taken for row in message["rows"]] == [1, 2]
    assert mill.alerts.problems() == []


def test_a_pause_is_as_long_as_the_webhook_asks_for(mill: Mill, hook: Webhook, clock: Clock) -> None:
    hook.answer, hook.retry_after = (lambda _: 429), "20"
    mill.execute(f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
    bid(mill, (1, 50, 1))
    tick(mill, clock, 20)
    assert len(hook.asked) == 1
    tick(mill, clock)
    assert len(hook.asked) == 2


def test_rows_are_told_once_across_restarts_and_drops_forget(
    tmp_path: Path, mill: Mill, hook: Webhook, clock: Clock
) -> None:
    mill.execute(f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
    bid(mill, (1, 50, 1))
    mill.alerts.deliver_new()
    bid(mill, (2, 50, 2))  # not told before the end
    mill.close()
    with restarted(tmp_path, clock) as again:
        again.alerts.deliver_new()
        bid(again, (3, 50, 3))
        again.alerts.deliver_new()
        assert [row["item"] for message in hook.taken for row in message["rows"]] == [1, 2, 3]
        again.execute("DROP ALERT a")
        bid(again, (4, 50, 4))
        again.alerts.deliver_new()
        assert "a" not in again.home.alerts
    with restarted(tmp_path, clock) as last:
        assert last.alerts.status() == []
        last.execute(f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
        last.alerts.deliver_new()
    assert len(hook.taken) == 3


def test_rows_that_nobody_confirmed_come_again_under_the_same_id(
    tmp_path: Path, mill: Mill, hook: Webhook, clock: Clock
) -> None:
    """A crash between the answer of the webhook and the commit of what it took."""
    mill.execute(f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
    bid(mill, (1, 50, 1))
    sent = mill.alerts.send

    def taken_and_killed(url: str, body: bytes, headers: dict[str, str]) -> None:
        sent(url, body, headers)
        raise RuntimeError("killed")

    mill.alerts.send = taken_and_killed
    mill.alerts.deliver_new()
    mill.close(checkpoint=False)
    with restarted(tmp_path, clock) as again:
        again.alerts.deliver_new()
    first, second = hook.taken
    assert first == second


def test_a_mill_that_runs_tells_by_itself(tmp_path: Path, hook: Webhook) -> None:
    with open_mill(home=tmp_path / "home", pool=inline_pool(), subtasks=1, read_sources=False) as mill:
        mill.execute(BIDS + f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
        mill.execute(f"CREATE ALERT b ON dear WHEN rows > 0 WEBHOOK '{hook.url}'")
        mill.start()
        feed_rows(mill, "bid", [(1, 50, 1)])
        messages = hook.received(2)
    assert sorted(message["alert"] for message in messages) == ["a", "b"]


# -- conditions -------------------------------------------------------------------------------------------


def test_a_condition_is_told_once_and_when_it_is_over(mill: Mill, hook: Webhook, clock: Clock) -> None:
    mill.execute(
        f"CREATE ALERT quiet ON dear WHEN silence > INTERVAL 10 SECONDS FOR 5 SECONDS WEBHOOK '{hook.url}'"
    )
    tick(mill, clock, 12)
    assert mill.alerts.status()[0].state == "pending"
    tick(mill, clock, 20)
    assert words(hook) == [("firing", "dear")]
    assert mill.alerts.status()[0].firing == ("dear",)
    bid(mill, (1, 50, 1))
    tick(mill, clock, 5)
    assert words(hook) == [("firing", "dear"), ("resolved", "dear")]
    first, second = hook.taken
    assert first["figures"]["silence"] >= 10 * SECOND_US
    assert first["condition"] == "silence > INTERVAL 10 SECONDS"
    assert first["since"] == second["since"] and first["id"] != second["id"]
    assert mill.alerts.status()[0].state == "ok"


def test_a_firing_alarm_outlives_a_restart_and_is_resolved_after_it(
    tmp_path: Path, mill: Mill, hook: Webhook, clock: Clock
) -> None:
    mill.execute(
        f"CREATE ALERT quiet ON dear WHEN silence > INTERVAL 3 SECONDS REPEAT EVERY 1 MINUTE "
        f"WEBHOOK '{hook.url}'"
    )
    tick(mill, clock, 6)
    mill.close()
    with restarted(tmp_path, clock) as again:
        assert again.alerts.status()[0].state == "firing"
        bid(again, (1, 50, 1))
        tick(again, clock, 2)
        assert words(hook) == [("firing", "dear"), ("resolved", "dear")]


def test_a_message_that_was_not_taken_outlives_a_restart(
    tmp_path: Path, mill: Mill, hook: Webhook, clock: Clock
) -> None:
    hook.answer = lambda _: 500
    mill.execute(f"CREATE ALERT quiet ON dear WHEN silence > INTERVAL 3 SECONDS WEBHOOK '{hook.url}'")
    tick(mill, clock, 6)
    asked = hook.asked[0]
    mill.close()
    hook.answer = lambda _: 200
    with restarted(tmp_path, clock) as again:
        again.alerts.deliver_new()
    assert hook.taken == [asked]


def test_any_query_has_an_alarm_of_its_own_until_it_is_dropped(
    mill: Mill, hook: Webhook, clock: Clock
) -> None:
    mill.execute("CREATE QUERY all_bids AS SELECT item FROM bid")
    mill.execute(f"CREATE ALERT quiet ON ANY QUERY WHEN silence > INTERVAL 3 SECONDS WEBHOOK '{hook.url}'")
    tick(mill, clock, 6)
    assert sorted(words(hook)) == [("firing", "all_bids"), ("firing", "dear")]
    mill.execute("DROP QUERY all_bids")
    tick(mill, clock)
    assert words(hook)[2:] == [("resolved", "all_bids")]


def test_a_query_that_fails_is_told(mill: Mill, hook: Webhook, clock: Clock) -> None:
    mill.execute("CREATE QUERY shares AS SELECT 100 / price AS share FROM bid")
    broken = "state IN ('failed', 'restarting')"
    mill.execute(f"CREATE ALERT broken ON ANY QUERY WHEN {broken} WEBHOOK '{hook.url}'")
    bid(mill, (1, 50, 1))
    tick(mill, clock)
    assert hook.taken == []
    bid(mill, (1, 0, 2))
    tick(mill, clock)
    (message,) = hook.taken
    assert message["on"] == "shares" and "zero" in message["figures"]["error"].lower()


def test_a_query_or_stream_that_is_paused_is_told(mill: Mill, hook: Webhook, clock: Clock) -> None:
    for number, on in enumerate(("ANY QUERY", "ANY STREAM")):
        mill.execute(f"CREATE ALERT a{number} ON {on} WHEN state = 'paused' WEBHOOK '{hook.url}'")
    mill.execute("PAUSE QUERY dear; PAUSE STREAM bid")
    tick(mill, clock)
    mill.execute("RESUME QUERY dear; RESUME STREAM bid")
    tick(mill, clock)
    told = sorted(words(hook))
    assert told == [("firing", "bid"), ("firing", "dear"), ("resolved", "bid"), ("resolved", "dear")]


@pytest.mark.parametrize(
    ("on", "condition"),
    [
        ("dear", "rate > 0.1"),
        ("dear", "rows >= 3"),
        ("dear", "rows_waiting = 0 AND lag < INTERVAL 1 SECOND"),
        ("dear", "p99 < INTERVAL 1 HOUR AND p50 <= p99"),
        ("dear", "freshness + staleness = 1.0"),
        ("dear", "errors = 0 AND state = 'running'"),
        ("bid", "rows = 4 AND rate > 0.1"),
        ("bid", "late = 1 AND errors = 0"),
        ("bid", "state = 'running' AND silence < INTERVAL 1 MINUTE"),
        ("ANY STREAM", "lag > INTERVAL 1 SECOND"),
    ],
)
def test_figures_can_be_asked_for(mill: Mill, hook: Webhook, clock: Clock, on: str, condition: str) -> None:
    bid(mill, (0, 50, 1))
    mill.execute(f"CREATE ALERT a ON {on} WHEN {condition} WEBHOOK '{hook.url}'")
    tick(mill, clock)
    for number in (2, 3):
        bid(mill, (number, 50, number * 100))
        tick(mill, clock)
    bid(mill, (4, 50, 1))  # late
    tick(mill, clock)
    assert [message["status"] for message in hook.taken] == ["firing"], mill.alerts.status()


def test_a_condition_without_a_value_is_told_to_who_asks(mill: Mill, hook: Webhook, clock: Clock) -> None:
    mill.execute(f"CREATE ALERT a ON dear WHEN 1 / rows > 0 WEBHOOK '{hook.url}'")
    tick(mill, clock)
    (problem,) = mill.alerts.problems()
    assert "no value for dear" in problem
    bid(mill, (1, 50, 1))
    tick(mill, clock)
    assert mill.alerts.problems() == [] and len(hook.taken) == 1


# -- statements -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message", "hint"),
    [
        ("ON deer WEBHOOK 'http://h/'", "there is no query or stream deer", "did you mean dear?"),
        ("ON bid WEBHOOK 'http://h/'", "bid is a stream", "CREATE QUERY all_of_bid"),
        ("ON ANY QUERY WEBHOOK 'http://h/'", "an alert on rows needs one query", "WHEN state = 'failed'"),
        ("ON dear WEBHOOK 'ftp://h/'", "is no address of a webhook", "http:// or https://"),
        ("ON dear WEBHOOK 'https://me:pw@h/'", "with a password", "leave user and password out"),
        ("ON dear WEBHOOK 'http://h:99999/'", "is no address", ""),
        ("ON dear WHEN p98 > INTERVAL 1 SECOND WEBHOOK 'http://h/'", "there is no column p98", "p99"),
        ("ON dear WHEN p99 > 2 SECONDS WEBHOOK 'http://h/'", "did not expect SECONDS", "INTERVAL 5 SECONDS"),
        ("ON dear WHEN rows WEBHOOK 'http://h/'", "a condition is true or false", "compare"),
        ("ON dear WHEN count(rows) > 1 WEBHOOK 'http://h/'", "an aggregate cannot stand in WHEN", ""),
        ("ON dear WHEN rows > 1 FOR 0 SECONDS WEBHOOK 'http://h/'", "above 0", ""),
        ("ON dear", "expected", ""),
    ],
)
def test_mistakes_are_told_with_a_hint(mill: Mill, text: str, message: str, hint: str) -> None:
    with pytest.raises(EslError) as told:
        mill.execute(f"CREATE ALERT a {text}")
    (found,) = told.value.diagnostics
    assert message in found.message and hint in found.hint
    assert mill.catalog.alerts == {} and mill.home.alerts == {}


def test_what_an_alert_is_on_cannot_be_dropped(mill: Mill) -> None:
    mill.execute(
        "CREATE ALERT a ON dear WEBHOOK 'http://h/'; CREATE ALERT b ON bid WHEN rows > 1 WEBHOOK 'http://h/'"
    )
    with pytest.raises(EslError, match="dear is used by alert a"):
        mill.execute("DROP QUERY dear")
    with pytest.raises(EslError, match="there is an alert a already"):
        mill.execute("CREATE ALERT a ON dear WEBHOOK 'http://h/'")
    mill.execute("DROP ALERT a; DROP QUERY dear")
    with pytest.raises(EslError, match="bid is used by alert b"):
        mill.execute("DROP STREAM bid")


def test_a_script_that_says_something_else_replaces_the_alert_and_keeps_its_place(
    tmp_path: Path, mill: Mill, hook: Webhook, clock: Clock
) -> None:
    mill.execute(f"CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
    bid(mill, (1, 50, 1))
    mill.close()
    with fed_mill(tmp_path / "home", clock, inline_pool()) as again:
        again.execute(f"{BIDS} CREATE ALERT a ON dear WEBHOOK '{hook.url}&new=1'")
        again.open()
        again.alerts.deliver_new()
    assert len(hook.taken) == 1
    with restarted(tmp_path, clock) as last:
        assert last.catalog.alerts["a"].url.endswith("&new=1")


def test_an_alert_created_with_its_query_misses_nothing(tmp_path: Path, hook: Webhook, clock: Clock) -> None:
    with fed_mill(tmp_path / "other", clock, inline_pool()) as mill:
        mill.execute(f"{BIDS} CREATE ALERT a ON dear WEBHOOK '{hook.url}'")
        mill.open()
        bid(mill, (1, 50, 1))
        mill.alerts.deliver_new()
    taken: list[dict[str, Any]] = hook.taken
    assert [row["item"] for message in taken for row in message["rows"]] == [1]
