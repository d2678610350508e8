"""Permissions of every interface, for each role, without a token and with a wrong token."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import get_args

import httpx
import psycopg
import pytest
from starlette.routing import Route

from server.conftest import bid
from slicemill.binder import bind
from slicemill.catalog.catalog import Statement
from slicemill.catalog.statements import (
    Command,
    Describe,
    Explain,
    ExplainReplace,
    Show,
    ShowCreate,
    ShownKind,
    ShowVersions,
)
from slicemill.errors import SlicemillError
from slicemill.extension import statements
from slicemill.extensions.classify.definition import Classifier
from slicemill.extensions.models.definition import ModelDefinition, ModelTemplate
from slicemill.server.auth import Access, PermissionDenied, Principal, UserRole
from slicemill.server.http.app import create_app
from slicemill.server.live_results import LiveResults
from slicemill.server.network import ServerSockets, check_address, serving
from slicemill.server.pages.stored_slices import SliceWatch
from slicemill.server.sampling import Sampler
from slicemill.server.service import MillService
from slicemill.server.user_session import UserSession
from slicemill.sql.errors import SourceText
from slicemill.sql.grammar.statements import read_command
from slicemill.sql.grammar.tables import ROW_CHANGES

CREATE = "CREATE QUERY cheap AS SELECT item FROM bid WHERE price < 5"
READS = [
    ("GET", "/v1/catalog", None),
    ("GET", "/v1/queries", None),
    ("GET", "/v1/queries/dear", None),
    ("GET", "/v1/queries/dear/results", None),
    ("GET", "/v1/queries/dear/explain", None),
    ("GET", "/v1/explain", None),
    ("GET", "/v1/metrics", None),
    ("GET", "/v1/alerts", None),
    ("POST", "/v1/check", {"text": CREATE}),
    ("POST", "/v1/statements", {"text": "SHOW QUERIES; SELECT * FROM dear; DESCRIBE dear; EXPLAIN"}),
]

LISTINGS = (*ShownKind, *(hook.plural for hook in statements().values()))


@pytest.fixture
def access(tmp_path: Path) -> Access:
    return Access(tmp_path / "home")


@pytest.fixture
def tokens(access: Access) -> dict[str, str]:
    made = {role.word: access.add(role.word, role.word, (), 0) for role in UserRole}
    return {**made, "limited": access.add("limited", "operator", ["sales_*"], 0)}


@pytest.fixture
def listening(service: MillService, access: Access, tokens: dict[str, str]) -> Iterator[ServerSockets]:
    made = ServerSockets(postgres_port=0)
    with serving(service, made, access):
        yield made


def client(listening: ServerSockets, token: str | None) -> httpx.Client:
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return httpx.Client(base_url=listening.url, headers=headers, timeout=60)


@pytest.mark.parametrize("token", [None, "wrong", "x" * 5000])
def test_requests_without_a_valid_token_are_rejected(listening: ServerSockets, token: str | None) -> None:
    with client(listening, token) as made:
        for method, path, body in (*READS, ("GET", "/v1/queries/dear/live", None)):
            response = made.request(method, path, json=body)
            assert response.status_code == 401, path
            assert "dear" not in response.text
        assert made.get("/health").status_code == 200


ANYBODY = None
# Role that each HTTP route needs. A route that is missing here fails the tests below.
ROUTES: dict[tuple[str, str], UserRole | None] = {
    ("GET", "/health"): ANYBODY,
    ("GET", "/"): ANYBODY,  # static page of the console, without data
    ("GET", "/console/{name}"): ANYBODY,
    ("GET", "/openapi.json"): ANYBODY,  # equal for all servers
    ("POST", "/v1/statements"): UserRole.READER,  # CHANGES and COMMANDS have the role of each statement
    ("POST", "/v1/check"): UserRole.READER,
    ("GET", "/v1/catalog"): UserRole.READER,
    ("GET", "/v1/queries"): UserRole.READER,
    ("GET", "/v1/queries/{name}"): UserRole.READER,
    ("GET", "/v1/queries/{name}/explain"): UserRole.READER,
    ("GET", "/v1/queries/{name}/results"): UserRole.READER,
    ("GET", "/v1/queries/{name}/versions"): UserRole.READER,
    ("GET", "/v1/queries/{name}/live"): UserRole.READER,
    ("GET", "/v1/queries/{name}/line"): UserRole.READER,
    ("GET", "/v1/alerts"): UserRole.READER,
    ("GET", "/v1/explain"): UserRole.READER,
    ("GET", "/v1/metrics"): UserRole.READER,
    ("GET", "/metrics"): UserRole.READER,
    ("GET", "/v1/overview"): UserRole.READER,
    ("GET", "/v1/history"): UserRole.READER,
    ("GET", "/v1/history/{name}"): UserRole.READER,
    ("GET", "/v1/graph"): UserRole.READER,
    ("GET", "/v1/graph/components"): UserRole.READER,
    ("POST", "/v1/preview"): UserRole.READER,
    ("GET", "/v1/words"): UserRole.READER,
    ("GET", "/v1/slices"): UserRole.READER,
    ("GET", "/v1/slices/{query}"): UserRole.READER,
    ("GET", "/v1/policies"): UserRole.READER,
    ("POST", "/v1/simulate"): UserRole.OPERATOR,
    ("GET", "/v1/models"): UserRole.READER,
    ("GET", "/v1/support-bundle"): UserRole.ADMIN,
    ("GET", "/v1/tokens"): UserRole.ADMIN,
    ("POST", "/v1/tokens"): UserRole.ADMIN,
    ("DELETE", "/v1/tokens/{name}"): UserRole.ADMIN,
}
BODIES: dict[tuple[str, str], dict[str, object]] = {
    ("POST", "/v1/statements"): {"text": "SHOW QUERIES"},
    ("POST", "/v1/check"): {"text": CREATE},
    ("POST", "/v1/preview"): {"text": CREATE},
    ("POST", "/v1/simulate"): {"text": CREATE, "rates": {}, "policies": ["fcfs"], "cores": 1, "seconds": 1},
    ("POST", "/v1/tokens"): {"name": "eve", "role": "reader"},
}
ADMINS = {route for route, role in ROUTES.items() if role is UserRole.ADMIN}


def test_every_route_is_in_the_table_of_roles(service: MillService, access: Access) -> None:
    """Covers routes that are missing in the OpenAPI description, too."""
    app = create_app(service, LiveResults(service), Sampler(service.mill), SliceWatch(service.mill), access)
    found = {
        (method, route.path)
        for route in app.routes
        if isinstance(route, Route)
        for method in route.methods or ()
        if method != "HEAD"
    }
    assert found == ROUTES.keys()


@pytest.mark.parametrize("role", ["", "wrong", *(role.word for role in UserRole)])
def test_every_route_needs_its_role(listening: ServerSockets, tokens: dict[str, str], role: str) -> None:
    token = tokens.get(role, role or None)
    known = next((one for one in UserRole if one.word == role), None)
    with client(listening, token) as made:
        for (method, path), needed in ROUTES.items():
            index = path.replace("{name}", "dear").replace("{query}", "dear")
            with made.stream(method, index, json=BODIES.get((method, path))) as response:
                status = response.status_code
            if needed is ANYBODY or (known is not None and known >= needed):
                assert status not in (401, 403, 500), (method, path, status)
            else:
                assert status == (401 if known is None else 403), (method, path, status)


def every_route(listening: ServerSockets, token: str) -> list[tuple[str, str]]:
    with client(listening, token) as made:
        paths = made.get("/openapi.json").json()["paths"]
    return [(method.upper(), path) for path, methods in paths.items() for method in methods]


@pytest.mark.parametrize("token", [None, "wrong"])
def test_every_route_needs_a_token(
    listening: ServerSockets, tokens: dict[str, str], service: MillService, token: str | None
) -> None:
    """The token is checked before the body of the request."""
    statements = list(service.mill.home.statements)
    with client(listening, token) as made:
        for method, path in every_route(listening, tokens["admin"]):
            for body in (None, {"text": CREATE}, {"name": "eve", "role": "admin"}):
                index = path.replace("{name}", "dear").replace("{query}", "dear")
                response = made.request(method, index, json=body)
                assert response.status_code == (200 if ROUTES[method, path] is ANYBODY else 401), (
                    method,
                    path,
                )
    assert list(service.mill.home.statements) == statements


@pytest.mark.parametrize("role", ["reader", "operator"])
def test_admin_routes_are_rejected_for_other_roles(
    listening: ServerSockets, tokens: dict[str, str], access: Access, role: str
) -> None:
    known = access.entries()
    with client(listening, tokens[role]) as made:
        for method, path in ADMINS:
            body = {"name": "eve", "role": "admin"} if method == "POST" else None
            response = made.request(method, path.replace("{name}", "admin"), json=body)
            assert response.status_code == 403, (method, path)
    assert access.entries() == known
    assert set(every_route(listening, tokens["admin"])) >= ADMINS


@pytest.mark.parametrize("role", [role.word for role in UserRole])
def test_every_role_can_read_and_operators_can_change(
    listening: ServerSockets, tokens: dict[str, str], role: str
) -> None:
    with client(listening, tokens[role]) as made:
        for method, path, body in READS:
            assert made.request(method, path, json=body).status_code == 200, path
        changes = [made.post("/v1/statements", json={"text": text}) for text in (CREATE, "DROP QUERY cheap")]
        changes.append(made.post("/v1/statements", json={"text": "SET policy = 'hnr'"}))
        expected = 403 if role == "reader" else 200
        assert [change.status_code for change in changes] == [expected] * 3


CHANGES = {
    "stream": ("CREATE STREAM s AS SELECT item FROM bid", "DROP STREAM s"),
    "source": ("CREATE STREAM s (a int, ts timestamp) ORDER BY ts", "DROP STREAM s"),
    "table": (
        "CREATE TABLE t (a int PRIMARY KEY, b int)",
        "INSERT INTO t VALUES (1, 2)",
        "UPDATE t SET b = 3",
        "DELETE FROM t WHERE a = 1",
        "TRUNCATE t",
        "DROP TABLE t",
    ),
    "classifier": (
        "CREATE TABLE history (item int, price int, sold boolean)",
        "CREATE CLASSIFIER selling ON bid(price) PARTITION BY item LEARN sold FROM history EVERY 5 MINUTES "
        "WITH (capacity = 8)",
        "DROP CLASSIFIER selling",
        "DROP TABLE history",
    ),
    "aggregate": (
        "CREATE AGGREGATE most(next int) : int { TABLE seen(top int); "
        "INITIALIZE: { INSERT INTO seen VALUES (next); } "
        "ITERATE: { UPDATE seen SET top = next WHERE next > top; } "
        "TERMINATE: { INSERT INTO RETURN SELECT top FROM seen; } }",
        "DROP AGGREGATE most",
    ),
    "replaced query and stream": (
        CREATE,
        "CREATE OR REPLACE QUERY cheap AS SELECT item FROM bid WHERE price < 4",
        "CREATE STREAM s AS SELECT item FROM bid",
        "CREATE OR REPLACE STREAM s AS SELECT item FROM bid WHERE price > 0",
        "DROP STREAM IF EXISTS s CASCADE",
        "DROP QUERY cheap",
    ),
    "view": ("CREATE VIEW v AS SELECT item FROM bid [RANGE 1 HOUR]", "DROP VIEW v"),
    "query": (CREATE, "DROP QUERY cheap"),
    "model": ("CREATE MODEL mean2(x REAL) AS SUM(x) / COUNT(x)", "DROP MODEL mean2"),
    "model with parameters": (
        "CREATE MODEL change_of(x REAL; ticks REAL) AS last(x) - lag(x, ticks)",
        "DROP MODEL change_of",
    ),
    "function": ("CREATE FUNCTION twice(x int) RETURNS int AS x + x", "DROP FUNCTION twice"),
    "setting": ("SET policy = 'hnr'", "SET policy = 'fcfs'"),
    "alert": ("CREATE ALERT a ON dear WHEN rows > 1 WEBHOOK 'http://localhost:9/'", "DROP ALERT a"),
    "pause": ("PAUSE QUERY dear", "RESUME QUERY dear"),
    "added column": (
        "CREATE STREAM wide (a int)",
        "ALTER STREAM wide ADD COLUMN b int DEFAULT 1",
        "DROP STREAM wide",
    ),
    "alter": ("ALTER QUERY dear SET (weight = 2)", "ALTER QUERY dear SET (weight = NULL)"),
    "pause a stream": ("PAUSE STREAM bid", "RESUME STREAM bid"),
    "backfill": (
        "CREATE STREAM kept (a int, ts timestamp) ORDER BY ts RETAIN 1 DAY",
        "CREATE QUERY old FROM BEGINNING AS SELECT a FROM kept",
        "DROP QUERY old",
        "DROP STREAM kept",
    ),
    "replay": ("REPLAY bid_errors", "REPLAY bid_errors WHERE raw LIKE '1%'"),
}


def test_every_statement_needs_the_operator_role_over_both_protocols(
    listening: ServerSockets, tokens: dict[str, str]
) -> None:
    """For each role and statement: a permitted statement runs, a rejected statement changes nothing."""
    assert listening.postgres is not None
    port = listening.postgres.getsockname()[1]
    for role in UserRole:
        may = role >= UserRole.OPERATOR
        with (
            client(listening, tokens[role.word]) as http,
            psycopg.connect(
                host="127.0.0.1", port=port, user="x", dbname="x", password=tokens[role.word], autocommit=True
            ) as postgres,
        ):
            before = http.get("/v1/catalog").json()
            for kind, texts in CHANGES.items():
                for text in texts:
                    status = http.post("/v1/statements", json={"text": text}).status_code
                    assert status == (200 if may else 403), (role, kind, text)
                for text in texts:
                    with nullcontext() if may else pytest.raises(psycopg.errors.InsufficientPrivilege):
                        postgres.execute(text)
            restarted = http.post("/v1/statements", json={"text": "RESTART QUERY dear"})
            assert restarted.status_code == (
                400 if may else 403
            )  # The query runs, so RESTART has nothing to restart.
            assert may or http.get("/v1/catalog").json() == before
            for listed in LISTINGS:
                assert http.post("/v1/statements", json={"text": f"SHOW {listed}"}).status_code == 200, listed
            bundle = http.get("/v1/support-bundle").status_code
            assert bundle == (200 if role >= UserRole.ADMIN else 403)


def test_every_kind_of_statement_is_in_the_table_of_changes(service: MillService) -> None:
    found: set[type] = set()
    for texts in CHANGES.values():
        catalog = service.mill.catalog
        for text in texts:
            bound = bind(text, catalog)
            catalog = bound.catalog
            found |= {type(statement) for statement, _ in bound.statements}
    assert [kind for kind in get_args(Statement) if not any(issubclass(one, kind) for one in found)] == []
    assert {Classifier, ModelDefinition, ModelTemplate} <= found
    first_words = {text.split()[0] for texts in CHANGES.values() for text in texts}
    assert set(ROW_CHANGES) - first_words == set()


COMMANDS = {
    Show: [f"SHOW {listed}" for listed in LISTINGS],
    ShowCreate: ["SHOW CREATE dear", "SHOW CREATE bid"],
    ShowVersions: ["SHOW VERSIONS dear"],
    Describe: ["DESCRIBE dear", "DESC bid"],
    Explain: ["EXPLAIN", "EXPLAIN dear"],
    ExplainReplace: ["EXPLAIN REPLACE QUERY dear AS SELECT item FROM bid"],
}


def test_every_command_is_for_readers_and_shows_only_permitted_names(service: MillService) -> None:
    assert set(get_args(Command)) == COMMANDS.keys()
    reader = UserSession(service, Principal("bob", UserRole.READER))
    limited = UserSession(service, Principal("sue", UserRole.OPERATOR, ("sales_*",)))
    for kind, texts in COMMANDS.items():
        for text in texts:
            assert isinstance(read_command(SourceText(text)), kind)
            (answer,) = reader.execute(text)
            assert answer.table is not None
            if kind is Show:
                (answer,) = limited.execute(text)
                assert "dear" not in str(answer.table), text
            else:
                with pytest.raises(PermissionDenied):
                    limited.execute(text)


SECRETS = {
    "a body that reads": "CREATE AGGREGATE sales_spy(n int) : varchar { "
    "INITIALIZE: { INSERT INTO RETURN SELECT word FROM secret WHERE id = n; } "
    "ITERATE: { INSERT INTO RETURN SELECT word FROM secret WHERE id = n; } }",
    "a function that reads": "CREATE FUNCTION sales_words(n int) RETURNS TABLE (w varchar) "
    "AS SELECT word FROM secret WHERE id = n; "  # the body replaces a call, so the caller needs permission
    "CREATE QUERY sales_q AS SELECT r.w FROM sales_bid AS b, TABLE(sales_words(b.item)) AS r",
    "a lookup": "CREATE QUERY sales_q AS SELECT word FROM sales_bid, secret WHERE id = item",
    "an error in a query": "CREATE QUERY sales_q AS SELECT wrod FROM secret",
    "an error in rows": "INSERT INTO sales_t SELECT wrod FROM secret",
    "rows": "INSERT INTO sales_t SELECT word FROM secret",
    "an ad hoc query": "SELECT (SELECT word FROM secret) AS w",
    "an error in an ad hoc query": "SELECT wrod FROM secret",
}


@pytest.mark.parametrize("way", SECRETS)
def test_rows_and_columns_of_forbidden_names_are_not_revealed(service: MillService, way: str) -> None:
    """Neither rows nor columns in error messages appear."""
    UserSession(service).execute(
        "CREATE TABLE secret (id int PRIMARY KEY, word varchar); CREATE TABLE sales_t (w varchar); "
        "CREATE STREAM sales_bid AS SELECT item FROM bid"
    )
    limited = UserSession(service, Principal("sue", UserRole.OPERATOR, ("sales_*",)))
    with pytest.raises(PermissionDenied) as refused:
        limited.execute(SECRETS[way])
    assert "word" not in str(refused.value)
    if way == "an error in a query":
        with pytest.raises(PermissionDenied):
            limited.check(SECRETS[way])


@pytest.mark.parametrize("kind", CHANGES)
def test_a_principal_with_limited_names_cannot_change_other_names(service: MillService, kind: str) -> None:
    """Run the statements in order, so that the objects of each statement exist."""
    limited = UserSession(service, Principal("sue", UserRole.OPERATOR, ("sales_*",)))
    for text in CHANGES[kind]:
        with pytest.raises(PermissionDenied):
            limited.execute(text)
        UserSession(service).execute(text)


def test_health_names_queries_only_for_requests_with_a_token(
    listening: ServerSockets, tokens: dict[str, str], service: MillService
) -> None:
    service.other_problems.append(lambda: ["secret_query does not run"])
    told = {}
    for who in (None, "wrong", "reader", "limited"):
        with client(listening, tokens.get(who or "", who)) as made:
            response = made.get("/health")
            assert (response.status_code, response.json()["ready"]) == (200, True)
            told[who] = response.json()["problems"]
    hidden = ["1 problem; a token for all names shows them"]
    assert told == {
        None: hidden,
        "wrong": hidden,
        "limited": hidden,
        "reader": ["secret_query does not run"],
    }


def test_a_principal_with_limited_names_sees_and_changes_only_these_names(
    listening: ServerSockets, tokens: dict[str, str], service: MillService
) -> None:
    UserSession(service).execute("CREATE STREAM sales_bid AS SELECT item, price FROM bid")
    with client(listening, tokens["limited"]) as made:

        def sent(text: str) -> int:
            return made.post("/v1/statements", json={"text": text}).status_code

        assert sent("CREATE QUERY sales_q AS SELECT item FROM sales_bid") == 200
        for text in (
            "CREATE QUERY mine AS SELECT item FROM sales_bid",
            "CREATE QUERY sales_r AS SELECT item FROM bid",
            "DROP QUERY dear",
            "SELECT * FROM dear",
            "DESCRIBE dear",
            "SHOW CREATE dear",
            "SHOW VERSIONS dear",
            "EXPLAIN",
            "EXPLAIN REPLACE QUERY dear AS SELECT item FROM sales_bid",
        ):
            assert sent(text) == 403, text
        assert [entry["name"] for entry in made.get("/v1/queries").json()] == ["sales_q"]
        assert {entry["name"] for entry in made.get("/v1/catalog").json()} == {"sales_q", "sales_bid"}
        for path in ("/v1/queries/dear/results", "/v1/queries/dear/live", "/v1/explain", "/v1/metrics"):
            assert made.get(path).status_code == 403, path


def test_postgresql_clients_send_their_token_as_password(
    listening: ServerSockets, tokens: dict[str, str]
) -> None:
    assert listening.postgres is not None
    port = listening.postgres.getsockname()[1]

    def connected(token: str) -> psycopg.Connection:
        return psycopg.connect(
            host="127.0.0.1", port=port, user="x", dbname="x", password=token, autocommit=True
        )

    with pytest.raises(psycopg.OperationalError, match="not a valid token of this server"):
        connected("wrong")
    with connected(tokens["reader"]) as made:
        assert made.execute("SELECT count(*) FROM dear").fetchone() == (0,)
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            made.execute(CREATE)
    with connected(tokens["limited"]) as made:
        for text in ("SELECT * FROM dear", "SUBSCRIBE dear", "COPY (SELECT * FROM dear) TO STDOUT"):
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                made.execute(text)
        listed = made.execute("SELECT table_name FROM information_schema.tables").fetchall()
        assert ("dear",) not in listed
    with connected(tokens["operator"]) as made:
        made.execute(CREATE)


def test_a_token_is_stored_as_a_hash_and_revoked_at_once(access: Access, tokens: dict[str, str]) -> None:
    assert access.principal(tokens["reader"]) == Principal("reader", UserRole.READER)
    stored = next((Path(access._file.parent)).glob("tokens.json"))  # type: ignore[union-attr]
    assert tokens["reader"] not in stored.read_text()
    assert stored.stat().st_mode & 0o077 == 0
    access.drop("reader")
    assert access.principal(tokens["reader"]) is None
    with pytest.raises(SlicemillError, match="already"):
        access.add("admin", "reader", (), 0)
    with pytest.raises(SlicemillError, match="did you mean reader"):
        access.add("bob", "reeder", (), 0)


def test_a_revoked_token_closes_its_open_connections(
    listening: ServerSockets, tokens: dict[str, str], access: Access, service: MillService
) -> None:
    assert listening.postgres is not None
    asking, following = (
        psycopg.connect(
            host="127.0.0.1",
            port=listening.postgres.getsockname()[1],
            user="x",
            dbname="x",
            password=tokens["operator"],
            autocommit=True,
        )
        for _ in range(2)
    )
    with asking, following, client(listening, tokens["operator"]) as http:
        assert asking.execute("SELECT 1").fetchone() == (1,)
        rows = following.cursor().stream("SUBSCRIBE dear SINCE 0")
        with http.stream("GET", "/v1/queries/dear/live?since=0") as live:
            bid(service, (1, 20, 1))
            next(rows)
            lines = live.iter_lines()
            next(line for line in lines if line.startswith("data:"))
            access.drop("operator")
            with pytest.raises(psycopg.OperationalError):
                asking.execute("SELECT item FROM dear")
            with pytest.raises(psycopg.OperationalError):
                next(rows)
            assert not [line for line in lines if line], "it ends by itself"


def test_remote_addresses_are_served_only_with_tokens(tmp_path: Path) -> None:
    access = Access(tmp_path)
    for host in ("127.0.0.1", "::1", "localhost"):
        check_address(host, access)
    with pytest.raises(SlicemillError, match="slicemill token add"):
        check_address("0.0.0.0", access)
    access.add("ann", "admin", (), 0)
    check_address("0.0.0.0", access)
