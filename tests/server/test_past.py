"""Backfill of new queries and REPLAY of bad rows, seen by clients of a server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from slicemill.api.mill import Mill
from slicemill.server.audit import AuditLog
from slicemill.server.auth import PermissionDenied, Principal, UserRole
from slicemill.server.http.prometheus import prometheus_text
from slicemill.server.live_results import LiveCounts
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill_client import connect
from support.engine import Clock, fed_mill, feed_rows, inline_pool

SECOND = 1_000_000
STREAM = "CREATE STREAM s (v bigint, ts timestamp) ORDER BY ts RETAIN 1 HOUR"


@pytest.fixture
def mill(tmp_path: Path) -> Iterator[Mill]:
    clock = Clock()
    with fed_mill(tmp_path / "home", clock, inline_pool()) as made:
        made.execute(STREAM)
        made.open()
        for second in range(1, 31):
            clock.now = second * SECOND
            feed_rows(made, "s", [(second, second * SECOND)])
        yield made


def listed(user: UserSession) -> dict[str, object]:
    (answer,) = user.execute("SHOW QUERIES")
    assert answer.table is not None
    (row,) = answer.table.to_pylist()
    return {name: row[name] for name in ("name", "state", "progress", "rows_waiting")}


def test_show_queries_reports_the_progress_of_a_backfill(mill: Mill) -> None:
    user = UserSession(MillService(mill))
    user.execute("CREATE QUERY q FROM BEGINNING AS SELECT v FROM s")
    expected = {"name": "q", "state": "backfilling", "progress": "0 % of 30 rows", "rows_waiting": 30}
    assert listed(user) == expected
    mill.dispatcher.run_all()
    assert listed(user) == {"name": "q", "state": "running", "progress": None, "rows_waiting": 0}


def test_backfill_metrics_exist_only_during_the_backfill(mill: Mill) -> None:
    mill.execute("CREATE QUERY q FROM BEGINNING AS SELECT v FROM s")
    text = prometheus_text(mill, ["q"], LiveCounts()).decode()
    assert 'slicemill_query_backfill_ratio{query="q"} 0.0' in text
    assert 'slicemill_query_backfill_rows_left{query="q"} 30.0' in text
    mill.dispatcher.run_all()
    assert 'backfill_ratio{query="q"}' not in prometheus_text(mill, ["q"], LiveCounts()).decode()
    metrics = mill.queries["q"].metrics()
    assert (metrics.rows, metrics.responses.count) == (
        30,
        0,
    )  # Rows of the backfill count, but have no response time.


def test_replay_needs_the_operator_role_and_is_audited(mill: Mill) -> None:
    mill.feed(
        "s", pa.table({"v": [7], "ts": [7]})
    )  # Without a declared time unit the number is no valid timestamp.
    mill.dispatcher.admit_handed()
    service = MillService(mill, audit=AuditLog(mill.home.folder))
    with pytest.raises(PermissionDenied):
        UserSession(service, Principal("bob", UserRole.READER), "http").execute("REPLAY s_errors")
    (answer,) = UserSession(service, Principal("ann", UserRole.OPERATOR), "http").execute("REPLAY s_errors")
    assert (answer.tag, answer.message) == ("REPLAY", "1 row replayed: 0 read, 1 failed again")
    lines = (mill.home.folder / "access" / "audit.jsonl").read_text().splitlines()
    noted = [(entry["by"], entry["outcome"]) for entry in map(json.loads, lines)]
    assert noted == [("bob", "denied"), ("ann", "done")]


def test_backfill_progress_is_available_over_http(mill: Mill) -> None:
    mill.execute("CREATE QUERY q FROM BEGINNING AS SELECT v FROM s")
    with serving(MillService(mill), ServerSockets()) as url, connect(url) as connection:
        query = connection.queries["q"]
        assert query.metrics()["state"] == "backfilling"
        found = query.progress()
        assert found is not None
        assert (found["rows_done"], found["rows"], found["share"]) == (0, 30, 0.0)
        mill.dispatcher.run_all()
        assert query.progress() is None
