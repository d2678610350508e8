"""Passwords in statements: rejected before they are stored, masked where an earlier version stored them."""

from __future__ import annotations

import io
import logging
import zipfile
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from server.conftest import BIDS
from slicemill.api.mill import Mill
from slicemill.binder import bind
from slicemill.errors import SlicemillError
from slicemill.lifecycle.catalog_journal import in_force
from slicemill.server.audit import AuditLog
from slicemill.server.logs import JsonLogLines, TextLogLines
from slicemill.server.network import ServerSockets, serving
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.sql.errors import EslError
from slicemill.storage.changes import Change
from support.engine import Clock, fed_mill, inline_pool

SECRET = "s3cret"
SINK = f"postgres://ada:{SECRET}@127.0.0.1:1/shop"
STATEMENTS = [
    f"CREATE QUERY q WITH (sink = '{SINK}') AS SELECT item FROM bid",
    f"CREATE OR REPLACE QUERY dear WITH (sink = '{SINK}') AS SELECT item FROM bid",
    f"CREATE QUERY IF NOT EXISTS dear WITH (sink = '{SINK}') AS SELECT item FROM bid",
    f"ALTER QUERY dear SET (sink = '{SINK}')",
    f"CREATE QUERY q WITH (sink = 'postgres://host/shop?user=ada&password={SECRET}') AS SELECT item FROM bid",
    f"CREATE QUERY q WITH (SINK = 'json:out?x=://ada:{SECRET}@') AS SELECT item FROM bid",
    f"CREATE STREAM s (a int) SOURCE 'kafka://ada:{SECRET}@host:9092/topic'",
    f"CREATE TABLE t (a int) SOURCE 's3a://key:{SECRET}@bucket/x.csv'",
    f"CREATE TABLE t (a int) USING jdbc OPTIONS (url 'jdbc:postgresql://host/shop', password '{SECRET}')",
    f"CREATE TABLE t (a int) USING jdbc OPTIONS (url 'jdbc:postgresql://host/shop?password={SECRET}')",
    "CREATE STREAM s (a int) USING kafka OPTIONS ("
    f"subscribe 't', kafka.sasl.jaas.config 'x required password=\"{SECRET}\";')",
    f"CREATE ALERT w ON dear WEBHOOK 'https://ada:{SECRET}@host/x'",
    f"EXPLAIN REPLACE QUERY dear WITH (sink = '{SINK}') AS SELECT item FROM bid",
]
OLD = f"CREATE QUERY old WITH (sink = '{SINK}') AS SELECT item FROM bid"
OLD_STREAM = (
    f"CREATE STREAM away (a int) USING kafka OPTIONS (subscribe 't', kafka.ssl.key.password '{SECRET}')"
)


def files_with_secret(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]


@pytest.mark.parametrize("statement", STATEMENTS)
def test_a_password_is_rejected_before_the_statement_is_stored(
    statement: str,
    service: MillService,
    user: UserSession,
    client: httpx.Client,
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    service.audit = AuditLog(tmp_path / "home")
    before = list(service.mill.home.statements)
    with pytest.raises(EslError, match="password") as refused:
        user.execute(statement)
    assert SECRET not in str(refused.value)
    assert all(one.hint for one in refused.value.diagnostics)
    with caplog.at_level(logging.INFO):
        answer = client.post("/v1/statements", json={"text": statement})
    assert answer.status_code == 400
    assert SECRET not in answer.text
    assert SECRET not in caplog.text
    assert service.mill.home.statements == before
    assert files_with_secret(tmp_path) == []


def test_a_reference_to_a_secret_is_stored_as_written(user: UserSession, tmp_path: Path) -> None:
    sink = "postgres://ada:${SLICEMILL_SECRET_SHOP}@127.0.0.1:1/shop"
    user.execute(f"ALTER QUERY dear SET (sink = '{sink}')")
    assert user.service.mill.catalog.queries["dear"].options.sink == sink
    user.execute("CREATE QUERY q WITH (sink = 'postgres://ada@127.0.0.1:1/shop') AS SELECT item FROM bid")
    user.service.mill.sinks.deliver_new()
    assert any("SLICEMILL_SECRET_SHOP is not set" in problem for problem in user.service.problems())


@pytest.fixture
def old_home(tmp_path: Path) -> Iterator[MillService]:
    """Reopen a home directory in whose journal an earlier version has written passwords."""
    folder = tmp_path / "old"
    with fed_mill(folder, Clock(), inline_pool()) as mill:
        mill.execute(BIDS)
        entry = {"at": 1, "by": "ann", "kind": "query", "name": "old", "text": OLD}
        away = {"at": 1, "by": "ann", "kind": "relation", "name": "away", "text": OLD_STREAM}
        again = {**entry, "text": OLD.replace("SELECT item", "SELECT item, price")}
        mill.home.commit(Change(catalog=[entry, again, away]))
    assert files_with_secret(folder)
    with fed_mill(folder, Clock(), inline_pool()) as mill:
        assert mill.restore() == []
        mill.open()
        yield MillService(mill)


def test_a_home_directory_with_stored_passwords_opens_and_shows_no_password(old_home: MillService) -> None:
    mill, user = old_home.mill, UserSession(old_home)
    assert mill.catalog.queries["old"].options.sink == SINK
    assert "old" in mill.sinks.names()
    shown = [
        user.execute(command)
        for command in (
            "SHOW QUERIES",
            "SHOW STREAMS",
            "SHOW STATEMENTS",
            "SHOW CREATE QUERY old",
            "SHOW CREATE STREAM away",
            "SHOW VERSIONS old",
            "EXPLAIN old",
        )
    ]
    texts = [str([answer.table.to_pylist() for (answer,) in shown if answer.table is not None])]
    assert "***" in texts[0]
    with (
        serving(old_home, ServerSockets()) as url,
        httpx.Client(base_url=url, timeout=60) as client,
    ):
        for path in client.get("/openapi.json").json()["paths"]:
            if path.endswith(("/live", "/line")) or ("{name}" in path and "queries" not in path):
                continue
            answer = client.get(path.replace("{name}", "old").replace("{query}", "old"))
            content = answer.content
            if path == "/v1/support-bundle":
                with zipfile.ZipFile(io.BytesIO(content)) as bundle:
                    content = b"".join(bundle.read(name) for name in bundle.namelist())
                assert b"postgres://ada:***@" in content
            texts.append(content.decode())
        texts.append(client.get("/v1/catalog").text)
        preview = client.post("/v1/preview", json={"text": "CREATE QUERY n AS SELECT item FROM bid"})
        texts.append(preview.text)
    assert "postgres://ada:***@127.0.0.1:1/shop" in texts[-2]
    assert [text for text in texts if SECRET in text] == []


def test_statements_about_a_query_with_a_stored_password_work_and_show_no_password(
    old_home: MillService,
) -> None:
    user, mill = UserSession(old_home), old_home.mill
    answers = user.execute("ALTER QUERY old SET (weight = 2); PAUSE QUERY old; RESUME QUERY old")
    assert mill.catalog.queries["old"].options.sink == SINK
    assert SECRET not in str([(answer.tag, answer.message) for answer in answers])
    with pytest.raises(SlicemillError) as refused:
        user.execute("CREATE QUERY old AS SELECT price FROM bid")
    assert SECRET not in str(refused.value)
    with pytest.raises(EslError) as refused:  # The masked output of SHOW CREATE cannot be executed.
        user.execute("ALTER QUERY old SET (sink = 'postgres://ada:***@127.0.0.1:1/shop')")
    assert "SLICEMILL_SECRET_" in refused.value.diagnostics[0].hint
    user.execute("ALTER QUERY old SET (sink = 'postgres://ada:${SLICEMILL_SECRET_SHOP}@127.0.0.1:1/shop')")
    texts = [entry["text"] for entry in in_force(mill.home.statements).values() if entry["name"] == "old"]
    assert SECRET not in str(texts)


def test_log_lines_and_errors_show_no_password(caplog: pytest.LogCaptureFixture) -> None:
    record = logging.LogRecord("slicemill", logging.WARNING, "f", 1, "sink %s failed", (SINK,), None)
    assert SECRET not in TextLogLines().format(record) + JsonLogLines().format(record)
    with pytest.raises(EslError) as refused:
        bind(f"CREATE STREAM s (a itn) SOURCE '{SINK}'")
    assert SECRET not in str(refused.value)
    assert "itn" in str(refused.value)


def test_the_python_interface_rejects_passwords(mill: Mill) -> None:
    with pytest.raises(EslError, match="password"):
        mill.execute(f"{BIDS} CREATE QUERY q WITH (sink = '{SINK}') AS SELECT item FROM bid")
