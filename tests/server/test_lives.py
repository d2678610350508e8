"""Query lifecycle over statements, REST, live events and the client, with permissions."""

from __future__ import annotations

import httpx
import pytest

from server.conftest import bid
from slicemill.server.auth import PermissionDenied, Principal, UserRole
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.sql.errors import EslError
from slicemill_client import connect

_SHOWN = "PAUSE QUERY dear", "RESUME QUERY dear", "PAUSE STREAM bid", "RESUME STREAM bid"


def rows(user: UserSession, text: str) -> list[dict[str, object]]:
    (answer,) = user.execute(text)
    assert answer.table is not None
    found: list[dict[str, object]] = answer.table.to_pylist()
    return found


def test_lifecycle_statements_report_their_effect(user: UserSession) -> None:
    answers = [(answer.tag, answer.message) for text in _SHOWN for answer in user.execute(text)]
    assert answers == [
        ("PAUSE QUERY", "query dear is paused"),
        ("RESUME QUERY", "query dear goes on"),
        ("PAUSE STREAM", "stream bid is paused"),
        ("RESUME STREAM", "stream bid goes on"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        *_SHOWN,
        "RESTART QUERY dear",
        "CREATE OR REPLACE QUERY dear AS SELECT item FROM bid",
        "ALTER QUERY dear SET (weight = 2)",
    ],
)
def test_pause_and_replace_need_the_operator_role_and_access_to_the_name(
    service: MillService, text: str
) -> None:
    for principal in (
        Principal("bob", UserRole.READER),
        Principal("cat", UserRole.OPERATOR, names=("sales_*",)),
    ):
        with pytest.raises(PermissionDenied):
            UserSession(service, principal).execute(text)


def test_an_altered_query_is_listed_with_its_new_options(user: UserSession, client: httpx.Client) -> None:
    text = "ALTER QUERY dear SET (weight = 2, slo = 'p99 < 2 s')"
    (answer,) = user.execute(text)
    assert (answer.tag, answer.message.partition(";")[2]) == (
        "ALTER QUERY",
        " weight 2, slo p99 < 2 seconds",
    )
    (row,) = rows(user, "SHOW CREATE dear")
    assert "WITH (weight = 2, slo = 'p99 < 2 seconds')" in str(row["statement"])
    assert len(rows(user, "SHOW VERSIONS dear")) == 1
    refused = client.post("/v1/statements", json={"text": "ALTER QUERY dear SET (wait = 2)"})
    assert refused.status_code == 400
    (mistake,) = refused.json()["errors"]
    assert (mistake["line"], mistake["column"], mistake["hint"]) == (1, 23, "did you mean weight?")


def test_a_paused_query_is_reported_as_paused_and_emits_its_results_after_resume(
    user: UserSession, client: httpx.Client, service: MillService
) -> None:
    bid(service, (1, 20, 1))
    with connect(str(client.base_url)) as connection:
        dear = connection.queries["dear"]
        dear.pause()
        bid(service, (2, 30, 2))
        assert [row["item"] for row in dear.rows()] == [1]
        assert rows(user, "SELECT item FROM dear") == [{"item": 1}]
        life = dear.life()
        assert (life["state"], life["paused_since"]) == ("paused", "1970-01-01T00:00:00+00:00")
        assert [row["state"] for row in rows(user, "SHOW QUERIES")] == ["paused"]
        dear.resume()
        service.mill.dispatcher.run_all()  # No other query reads the task, so its run had been postponed.
        assert [row["item"] for row in dear.rows()] == [1, 2]
        assert dear.life()["state"] == "running"


def test_results_and_events_carry_the_version_of_their_query(
    user: UserSession, client: httpx.Client, service: MillService
) -> None:
    bid(service, (1, 20, 1))
    with connect(str(client.base_url)) as connection:
        dear = connection.queries["dear"]
        new = "SELECT item, price * 2 AS twice FROM bid"
        effects = dear.explain_replace(new)
        assert [row["effect"] for row in effects] == ["keeps", "complete from", "columns"]
        dear.replace(new)
        bid(service, (2, 3, 2))
        assert [(row["item"], row["twice"]) for row in dear.rows()] == [(2, 6)]
        assert dear.version == 2
        events = []
        for event in dear.follow(since=0):
            events.append((event.version, [row["item"] for row in event.rows]))
            if len(events) == 2:
                break
        assert events == [(1, [1]), (2, [2])]
        assert [one["version"] for one in dear.versions() if one["by"] == "ann"] == [1]
    first = client.get("/v1/queries/dear/results").json()
    assert (first["version"], [row["price"] for row in first["rows"]]) == (1, [20])
    second = client.get("/v1/queries/dear/results", params={"since": first["next"]})
    assert (second.json()["version"], second.headers["slicemill-version"]) == (2, "2")
    assert [row["twice"] for row in second.json()["rows"]] == [6]
    assert [row["twice"] for row in rows(user, "SELECT twice FROM dear")] == [6]
    found = rows(user, "SHOW VERSIONS dear")
    assert [(row["kind"], row["version"]) for row in found] == [("query", 1), ("query", 2)]


def test_drop_cascade_names_the_dropped_queries_and_streams(user: UserSession) -> None:
    answers = user.execute("DROP STREAM IF EXISTS nobody; DROP STREAM bid CASCADE")
    assert [answer.message for answer in answers] == ["query dear is dropped", "stream bid is dropped"]
    assert user.execute("DROP QUERY IF EXISTS dear") == []


def test_create_if_not_exists_leaves_an_existing_query_unchanged(user: UserSession) -> None:
    assert user.execute("CREATE QUERY IF NOT EXISTS dear AS SELECT price FROM bid") == []
    user.execute("CREATE QUERY IF NOT EXISTS cheap AS SELECT item FROM bid WHERE price < 5")
    assert sorted(row["name"] for row in rows(user, "SHOW QUERIES")) == ["cheap", "dear"]  # type: ignore[type-var]


def test_an_error_in_a_replacement_query_has_line_and_column(user: UserSession) -> None:
    with pytest.raises(EslError, match=r"1:38: error: there is no column nothing"):
        user.execute("EXPLAIN REPLACE QUERY dear AS SELECT nothing FROM bid")
