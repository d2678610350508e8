"""The service: statements, commands and ad hoc queries over an engine with workers in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from server.conftest import BIDS, bid
from slicemill.errors import SlicemillError
from slicemill.server.service import MillService, NotFound
from slicemill.server.user_session import UserSession
from slicemill.sql.errors import EslError
from support.engine import Clock, fed_mill, inline_pool


def rows(user: UserSession, text: str) -> list[dict[str, object]]:
    (answer,) = user.execute(text)
    assert answer.table is not None
    found: list[dict[str, object]] = answer.table.to_pylist()
    return found


def test_show_statements_names_the_user_who_declared_each_object(user: UserSession) -> None:
    assert [(row["by"], row["name"]) for row in rows(user, "SHOW STATEMENTS")] == [
        ("ann", "bid"),
        ("ann", "dear"),
    ]


def test_a_restart_needs_no_script(tmp_path: Path) -> None:
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        UserSession(MillService(mill)).execute(BIDS + "SET policy = 'hnr';")
        mill.open()
        bid(MillService(mill), (1, 20, 1))
    with fed_mill(tmp_path / "home", Clock(), inline_pool()) as mill:
        assert mill.restore() == []
        mill.open()
        user = UserSession(MillService(mill))
        bid(user.service, (2, 30, 2))
        assert [row["item"] for row in rows(user, "SELECT item FROM dear")] == [1, 2]
        assert mill.policy == "hnr"


def test_ad_hoc_queries_see_results_with_their_timestamps(user: UserSession) -> None:
    bid(user.service, (1, 20, 1), (2, 5, 2), (1, 40, 3))
    assert rows(user, "SELECT item, max(price) AS most, count(*) AS n FROM dear GROUP BY item") == [
        {"item": 1, "most": 40, "n": 2}
    ]
    assert rows(user, "SELECT epoch_us(max(_ts)) AS last FROM dear") == [{"last": 3}]


def test_an_ad_hoc_query_cannot_read_files(user: UserSession, tmp_path: Path) -> None:
    secret = tmp_path / "secret.csv"
    secret.write_text("a\n1\n")
    for adhoc_query in (
        f"SELECT * FROM read_csv('{secret}')",
        f"SELECT * FROM '{secret}'",
        f"SELECT content FROM read_text('{secret}')",
    ):
        with pytest.raises(SlicemillError):
            user.execute(adhoc_query)


def test_an_ad_hoc_query_cannot_change_data(user: UserSession) -> None:
    with pytest.raises(SlicemillError):
        user.execute("WITH x AS (SELECT 1) INSERT INTO dear SELECT * FROM x")


def test_describe_and_show_create_show_one_object(user: UserSession) -> None:
    assert rows(user, "DESCRIBE dear") == [
        {"column": "item", "type": "INT"},
        {"column": "price", "type": "INT"},
    ]
    assert rows(user, "SHOW CREATE QUERY dear") == rows(user, "SHOW CREATE dear")
    assert "WHERE price > 10" in str(rows(user, "SHOW CREATE dear"))


def test_error_positions_refer_to_the_whole_text(user: UserSession) -> None:
    with pytest.raises(EslError) as caught:
        user.execute("SHOW QUERIES;\n  CREATE QUERY q AS SELECT itm FROM bid")
    (diagnostic,) = caught.value.diagnostics
    assert caught.value.source.position(diagnostic.span.start) == (2, 28)
    assert "did you mean item" in str(caught.value)


def test_results_are_read_by_epoch(user: UserSession) -> None:
    bid(user.service, (1, 20, 1))
    first = user.results("dear")
    assert first.table.num_rows == 1
    bid(user.service, (2, 30, 2))
    second = user.results("dear", first.next_epoch)
    assert second.table.column("item").to_pylist() == [2]
    assert user.results("dear", second.next_epoch).table.num_rows == 0
    assert user.results("dear", second.next_epoch).next_epoch >= second.next_epoch


def test_an_unknown_name_is_reported_with_a_similar_name(user: UserSession) -> None:
    with pytest.raises(NotFound, match="did you mean dear"):
        user.results("deer")
