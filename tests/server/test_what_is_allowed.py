"""Permissions of client statements, the audit log, and limits of size and rate of requests."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from server.conftest import bid
from slicemill.catalog.catalog import SourceSpec, Table
from slicemill.cli import app
from slicemill.connectors.files.listing import listing_of
from slicemill.connectors.origin import origin_of
from slicemill.errors import SlicemillError
from slicemill.server.audit import AuditLog
from slicemill.server.auth import Access, PermissionDenied, Principal, UserRole
from slicemill.server.http.protection import LARGEST_BODY, RateLimit
from slicemill.server.permissions import ClientPermissions
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.types import VARCHAR, Column, Schema

CREATE = "CREATE QUERY cheap AS SELECT item FROM bid WHERE price < 5"


STATEMENTS = {
    "python": "CREATE FUNCTION f(x int) RETURNS int LANGUAGE PYTHON AS 'os:getpid'",
    "file": "CREATE STREAM s (a int) SOURCE 'file:/etc/passwd?format=csv'",
    "path": "CREATE TABLE t (a varchar) USING csv OPTIONS (path '/etc/passwd')",
    "parent folder": "CREATE TABLE t (a varchar) USING csv OPTIONS (path '{folder}/../../etc/passwd')",
    "tcp": "CREATE STREAM s (a int) SOURCE 'tcp://localhost:4445'",
    "kafka": "CREATE STREAM s (a int) SOURCE 'kafka://host:9092/topic'",
    "sink": "CREATE QUERY q WITH (sink = 'json:{folder}/%2e%2e/out') AS SELECT item FROM bid",
    "altered sink": "ALTER QUERY dear SET (sink = 'json:/etc/out')",
    "postgres": "CREATE QUERY q WITH (sink = 'postgres://host/db') AS SELECT item FROM bid",
}


@pytest.mark.parametrize("name", STATEMENTS)
def test_code_files_and_addresses_need_permission_of_the_administrator(
    name: str, service: MillService, tmp_path: Path
) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    service.allowed = ClientPermissions((folder,))
    with pytest.raises(PermissionDenied, match=r"start the server with --allow|without \.\."):
        UserSession(service).execute(STATEMENTS[name].format(folder=folder))


def test_statements_with_allowed_names_are_executed(service: MillService, tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "t.csv").write_text("a\nx\n")
    (tmp_path / "data" / "out").symlink_to("/etc")
    service.allowed = ClientPermissions((tmp_path / "data",), frozenset(("tcp",)), python=True)
    user = UserSession(service)
    user.execute(f"CREATE TABLE t (a varchar) USING csv OPTIONS (path '{tmp_path}/data/t.csv', header true)")
    user.execute(STATEMENTS["tcp"])
    with pytest.raises(PermissionDenied):
        user.execute(f"CREATE TABLE u (a varchar) USING csv OPTIONS (path '{tmp_path}/data/out/passwd')")


def test_a_sink_can_write_only_tables_that_its_owner_can_name(service: MillService) -> None:
    service.allowed = ClientPermissions()
    owner = UserSession(service)
    owner.execute("CREATE TABLE sales_t (item int); CREATE TABLE other_t (item int)")
    owner.execute("CREATE STREAM sales_s (item int); CREATE QUERY sales_q AS SELECT item FROM sales_s")
    limited = UserSession(service, Principal("sue", UserRole.OPERATOR, ("sales_*",)))
    limited.execute("CREATE QUERY sales_w WITH (sink = 'table:sales_t') AS SELECT item FROM sales_s")
    with pytest.raises(PermissionDenied, match="other_t"):
        limited.execute("CREATE QUERY sales_x WITH (sink = 'table:other_t') AS SELECT item FROM sales_s")
    with pytest.raises(PermissionDenied, match="other_t"):
        limited.execute("ALTER QUERY sales_q SET (sink = 'table:other_t')")


def test_function_bodies_can_write_only_tables_that_their_owner_can_name(service: MillService) -> None:
    service.allowed = ClientPermissions()
    owner = UserSession(service)
    owner.execute("CREATE TABLE other_t (item int); CREATE STREAM sales_s (item int)")
    body = "INITIALIZE: ITERATE: { INSERT INTO other_t VALUES (item); INSERT INTO RETURN VALUES (item); }"
    limited = UserSession(service, Principal("sue", UserRole.OPERATOR, ("sales_*",)))
    with pytest.raises(PermissionDenied, match="other_t"):
        limited.execute(f"CREATE AGGREGATE sales_f (item int) : int {{ {body} }}")
    owner.execute(f"CREATE AGGREGATE sales_f (item int) : int {{ {body} }}")
    for statement in ("CREATE QUERY sales_q AS", "CREATE STREAM sales_d AS"):
        with pytest.raises(PermissionDenied, match="other_t"):
            limited.execute(f"{statement} SELECT sales_f(item) AS item FROM sales_s")
    owner.execute("CREATE QUERY sales_q AS SELECT sales_f(item) AS item FROM sales_s")
    assert owner.service.mill.catalog.writers_for("sales_q")


def test_changes_and_rejected_statements_are_in_the_audit_log(service: MillService, tmp_path: Path) -> None:
    service.audit = AuditLog(tmp_path, clock=lambda: 7)
    UserSession(service, Principal("ann", UserRole.OPERATOR), "http").execute(CREATE)
    with pytest.raises(PermissionDenied):
        UserSession(service, Principal("bob", UserRole.READER), "http").execute("DROP QUERY cheap")
    lines = (tmp_path / "access" / "audit.jsonl").read_text().splitlines()
    assert [(entry["by"], entry["outcome"]) for entry in map(json.loads, lines)] == [
        ("ann", "done"),
        ("bob", "denied"),
    ]


def test_a_request_with_another_host_header_is_rejected(client: httpx.Client) -> None:
    response = client.get("/v1/queries", headers={"host": "evil.example:8080"})
    assert response.status_code == 421


def test_a_too_large_request_body_is_rejected(client: httpx.Client, service: MillService) -> None:
    answer = client.post("/v1/statements", content=b"x" * (LARGEST_BODY + 1))
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    bid(service, (1, 20, 1))
    assert client.get("/health").status_code == 200


@pytest.mark.parametrize("path", ["/v1/statements", "/v1/check", "/v1/nothing", "/health"])
def test_a_too_large_chunked_body_is_not_read_to_its_end(client: httpx.Client, path: str) -> None:
    """Also covers routes that need no body."""
    part = b"10000\r\n" + b" " * (1 << 16) + b"\r\n"
    assert client.base_url.port is not None
    with socket.socket() as sender:
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1 << 16)
        sender.settimeout(30)
        sender.connect(("127.0.0.1", client.base_url.port))
        sender.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\n".encode())
        sender.sendall(b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n")
        sent = 0
        with pytest.raises(ConnectionError):
            while sent < 39 << 20:
                sender.sendall(part)
                sent += len(part)
    assert sent < 20 << 20, "the buffers of the kernel hold a few MB"
    assert client.get("/health").status_code == 200


def test_a_too_large_chunked_body_gets_status_413(client: httpx.Client) -> None:
    def parts() -> Iterator[bytes]:
        yield b" " * LARGEST_BODY
        yield b" "

    answer = client.post("/v1/statements", content=parts())
    assert (answer.status_code, answer.headers["connection"]) == (413, "close")
    assert answer.json()["errors"][0]["message"] == "the request is too large; send at most 2,097,152 bytes"


@pytest.mark.parametrize("path", ["/health", "/v1/queries", "/", "/openapi.json", "/nothing", "/metrics"])
def test_every_answer_forbids_browsers_to_guess_its_content_type(client: httpx.Client, path: str) -> None:
    assert client.get(path).headers.get_list("x-content-type-options") == ["nosniff"]


def test_the_rate_limit_delays_requests_of_one_address() -> None:
    now = [0.0]
    limit = RateLimit(burst=2, rate=1, clock=lambda: now[0])
    assert [limit.takes("a") for _ in range(3)] == [True, True, False]
    assert limit.takes("b")
    now[0] = 1.0
    assert [limit.takes("a"), limit.takes("a")] == [True, False]


def test_clients_that_send_nothing_do_not_delay_other_clients(client: httpx.Client) -> None:
    port = client.base_url.port
    assert port is not None
    silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
    for one in silent:
        one.sendall(b"POST /v1/statements HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n")
    began = time.monotonic()
    assert client.get("/health").status_code == 200
    assert time.monotonic() - began < 20
    for one in silent:
        one.close()


def test_the_token_command_adds_lists_and_drops_tokens(tmp_path: Path) -> None:
    def told(*arguments: str, status: int = 0) -> str:
        done = CliRunner().invoke(app, ("token", *arguments, "--home", str(tmp_path)))
        assert done.exit_code == status, done.output
        return done.output

    token = told("add", "ann", "--role", "operator", "--name", "sales_*").strip()
    assert Access(tmp_path).principal(token) == Principal("ann", UserRole.OPERATOR, ("sales_*",))
    assert "sales_*" in told("ls")
    told("drop", "ann")
    assert Access(tmp_path).entries() == []


PIECES = [
    "#",
    "?",
    "..",
    ".",
    "/",
    "%2e",
    "%2F",
    "%23",
    "{",
    "}",
    ",",
    "*",
    "\\",
    "[o]",
    "in.csv",
    "link.csv",
]
PIECES += ["out", "sub", "file:", "FILE://", "//", "secret.csv", "format=csv", "path="]


@pytest.fixture(scope="module")
def linked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Create a folder `data` beside a file, with links to the file in some of its folders."""
    top = tmp_path_factory.mktemp("linked")
    (top / "secret.csv").write_text("secret\n")
    for name in ("#", "?", "sub", "out", "{sub", "sub,", "*"):
        (top / "data" / name).mkdir(parents=True)
        (top / "data" / name / "in.csv").write_text("x\n")
    (top / "data" / "in.csv").write_text("x\n")
    (top / "data" / "out" / "link.csv").symlink_to(top / "secret.csv")
    (top / "data" / "sub" / "out").symlink_to("../out")
    return top


@given(st.lists(st.sampled_from(PIECES), max_size=8).map("".join), st.booleans())
def test_no_spelling_of_an_allowed_source_reads_a_file_outside(linked: Path, end: str, written: bool) -> None:
    data = linked / "data"
    prefix = end.startswith(("file:", "FILE:")) and end.partition(":")[0] + ":"
    text = f"{prefix or ''}{data}/{end.removeprefix(prefix or '')}"
    spec = SourceSpec(url=text) if written else SourceSpec(format="csv", options=(("path", text),))
    table = Table("t", Schema((Column("a", VARCHAR),)), spec)
    try:
        ClientPermissions((data,)).check([table], linked)
        found = origin_of(spec, "t", linked)
    except SlicemillError:
        return
    assert found.file is not None
    listing = listing_of(found.file.absolute())
    for file in listing.new(frozenset()):
        assert (listing.root / file.name).resolve().is_relative_to(data), text
